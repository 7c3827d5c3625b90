"""The journal in a SQLite file.

One thread owns the connection that writes. It takes the file's write lock before it looks, so a
turn is alone across all processes, and numbers entries from SQLite's own AUTOINCREMENT record.
Readers have threads and connections of their own and are never blocked by a writer.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from tape.errors import Closed, TapeError
from tape.model.entry import Entry
from tape.model.move import EntryPlace, Need
from tape.ports.clock import Clock, system_clock
from tape.ports.predicate import SqlFilter
from tape.ports.store import PAGE_BYTES, Decide, EntryRange, JournalInfo, ReadEntries
from tape.settings import SqliteSettings
from tape.stores.bell import Bell
from tape.stores.filtered import FilteredReads
from tape.stores.head import Head
from tape.stores.migrations import has_draw_subjects, log_created
from tape.stores.recent import Recent
from tape.stores.retained import may_have_holes, refuse_pruned
from tape.stores.sqlite.connection import WRITE_CACHE_KIB, is_read_only
from tape.stores.sqlite.entries import read_entries, read_up_to
from tape.stores.sqlite.inspect import refuse_absent
from tape.stores.sqlite.ledger import SqliteLedger
from tape.stores.sqlite.matching import SqliteMatching
from tape.stores.sqlite.migrate import applied_migrations, check_current, migrate
from tape.stores.sqlite.outbox import SqliteOutbox
from tape.stores.sqlite.pool import SqlitePool
from tape.stores.sqlite.retention import SqliteRetention
from tape.stores.sqlite.runs import SqliteRuns
from tape.stores.sqlite.sessions import SqliteSessions
from tape.stores.sqlite.subscriptions import SqliteSubscriptions
from tape.stores.sqlite.tasks import SqliteTasks
from tape.stores.sqlite.turn import SQL, SqliteTurns, as_json
from tape.stores.sqlite.values import SqliteValues
from tape.stores.sqlite.wallet import SqliteWallet
from tape.stores.sqlite.writes import SqliteWrites
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.sqlite")


class SqliteStore:
    def __init__(self, path: Path, settings: SqliteSettings, clock: Clock = system_clock) -> None:
        self._settings = settings
        self._head = Head()
        self._turns = SqliteTurns(clock)
        self._recent = Recent()
        self._bell = Bell()
        writes = self._writing = SqlitePool(
            path, settings.busy_s, 1, "tape-sqlite-write", cache_kib=WRITE_CACHE_KIB
        )
        reads = self._reading = SqlitePool(
            path, settings.busy_s, settings.readers, "tape-sqlite-read"
        )
        self._filtered = FilteredReads("sqlite", settings.readers)
        self.values = SqliteValues(reads)
        self.sessions = SqliteSessions(reads)
        self.runs = SqliteRuns(reads, clock)
        self.matching = SqliteMatching(reads, writes, clock, self._bell)
        self.tasks = SqliteTasks(reads, writes, clock, self._bell)
        self.ledger = SqliteLedger(reads, clock)
        self.subscriptions = SqliteSubscriptions(reads, writes, clock)
        self.outbox = SqliteOutbox(path, settings, reads, writes, commit=self.commit, clock=clock)
        self.retention = SqliteRetention(reads, writes, self._recent)
        self.writes = SqliteWrites(reads, writes)
        self.wallet = SqliteWallet(reads)
        self._poll: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        path: Path,
        settings: SqliteSettings,
        *,
        migrating: bool = True,
        creating: bool = True,
        clock: Clock = system_clock,
    ) -> "SqliteStore":
        """All stores on one file must go by the same clock."""
        if not creating:
            await asyncio.to_thread(refuse_absent, path)
        store = cls(path, settings, clock)
        try:
            brings_up = migrating and not is_read_only(path)
            applied = await store._writing.use(migrate if brings_up else check_current)
            log_created(applied, f"sqlite:{path}")
            steps = await store._reading.use(applied_migrations)
            store.runs.has_draw_subjects = has_draw_subjects(steps)
            store._head.advance(await store._reading.use(_read_head))
        except BaseException:
            await store.close()
            raise
        store._poll = asyncio.create_task(store._keep_polling(), name="tape-sqlite-poll")
        return store

    @property
    def head(self) -> int:
        return self._head.global_seq

    async def await_beyond(self, global_seq: int) -> int:
        return await self._head.beyond(global_seq)

    async def commit(self, needs: Iterable[Need], decide: Decide) -> EntryPlace:
        wanted = tuple(needs)
        turn = await self._writing.use(lambda db: self._turns.take(db, wanted, decide))
        self._recent.note(turn.place, turn.entries)
        self._head.advance(turn.place.global_seq + len(turn.entries) - 1)
        if turn.queued:
            self._bell.ring()
        return turn.place

    async def read_last_given(self) -> int:
        (last,) = await self._reading.rows(int, "read_last_given")
        return last

    async def read_entries(self, query: ReadEntries) -> EntryRange:
        recent = self._recent.read(query)
        if recent is not None:
            return recent
        found = await self._filtered.read(query, self._read_range)
        if query.unbroken and may_have_holes(query, found):
            refuse_pruned(query, await self.retention.read_pruned_through())
        return found

    async def _read_range(
        self, query: ReadEntries, condition: SqlFilter | None
    ) -> EntryRange | None:
        return await self._reading.use(lambda db: read_entries(db, query, condition))

    async def read_run(
        self, run_id: str, after_seq: int, limit: int, max_bytes: int = PAGE_BYTES
    ) -> list[Entry]:
        return await self._read_up_to(max_bytes, "read_run", run_id, after_seq, limit)

    async def read_value_history(
        self, subjects: Sequence[str], after: int, limit: int, max_bytes: int = PAGE_BYTES
    ) -> list[Entry]:
        params = (as_json(subjects), after, limit)
        return await self._read_up_to(max_bytes, "read_value_history", *params)

    async def _read_up_to(self, max_bytes: int, name: str, *params: object) -> list[Entry]:
        found, _is_cut = await self._reading.use(
            lambda db: read_up_to(db, SQL[name], params, max_bytes)
        )
        return found

    async def info(self) -> JournalInfo:
        def read(db: sqlite3.Connection) -> JournalInfo:
            (tail,) = db.execute(SQL["read_tail"]).fetchone()
            number = max((m.number for m in applied_migrations(db)), default=0)
            return JournalInfo("sqlite", tail, _read_head(db), number)

        return await self._reading.at_once(read)

    async def close(self) -> None:
        pools = (self._reading, self._writing)
        for one in (self._head, self._bell, *pools):
            one.close()
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)
        for pool in pools:
            await pool.wait_closed()

    async def _keep_polling(self) -> None:
        """Hear of entries that other processes committed, and of tasks they may have queued."""
        retrying = Retrying(log, "reading the end of the journal")
        while True:
            await asyncio.sleep(self._settings.poll_s)
            try:
                self._head.advance(await self._reading.use(_read_head))
                self._bell.ring()
                retrying.succeeded()
            except Closed:
                return
            except TapeError as error:
                retrying.failed(error)


def _read_head(db: sqlite3.Connection) -> int:
    (head,) = db.execute(SQL["read_head"]).fetchone()
    return int(head)
