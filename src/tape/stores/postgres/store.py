"""The journal in Postgres. `turn` writes, a small pool reads, one session listens.

A wake-up is only a hint: whoever may connect may notify, so the head is read from the journal and
never from the notification. Its channel is named after this journal's own table, so two journals in
one database do not wake each other. Listening may fail at any time; a slow poll beside it means a
lost notification costs a second, never an entry.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial

import asyncpg

from tape.errors import StoreUnavailable, TapeError
from tape.model.entry import Entry
from tape.model.move import EntryPlace, Need
from tape.ports.predicate import SqlFilter
from tape.ports.store import PAGE_BYTES, Decide, EntryRange, JournalInfo, ReadEntries
from tape.settings import PostgresSettings
from tape.stores.bell import Bell
from tape.stores.filtered import FilteredReads
from tape.stores.head import Head
from tape.stores.migrations import has_draw_subjects, log_created, no_store
from tape.stores.postgres.connection import (
    address,
    connect_reader,
    connect_worker,
    translated,
)
from tape.stores.postgres.entries import read_entries
from tape.stores.postgres.ledger import PostgresLedger
from tape.stores.postgres.matching import PostgresMatching
from tape.stores.postgres.migrate import applied_migrations, check_current, migrate
from tape.stores.postgres.outbox import PostgresOutbox
from tape.stores.postgres.pool import PostgresPool
from tape.stores.postgres.retention import PostgresRetention
from tape.stores.postgres.runs import PostgresRuns
from tape.stores.postgres.sessions import PostgresSessions
from tape.stores.postgres.subscriptions import PostgresSubscriptions
from tape.stores.postgres.tasks import PostgresTasks
from tape.stores.postgres.turn import SQL, PostgresTurns
from tape.stores.postgres.values import PostgresValues
from tape.stores.postgres.wallet import PostgresWallet
from tape.stores.postgres.writes import PostgresWrites
from tape.stores.recent import Recent
from tape.stores.retained import may_have_holes, refuse_pruned
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.postgres")


class PostgresStore:
    def __init__(self, url: str, settings: PostgresSettings) -> None:
        self._url = url
        self._settings = settings
        self._head = Head()
        self._turns = PostgresTurns(url, settings)
        self._recent = Recent()
        self._bell = Bell()
        reads = self._reading = PostgresPool(
            url, settings.readers, partial(connect_reader, url, settings)
        )
        quick, writes = (
            PostgresPool(
                url, settings.workers, partial(connect_worker, url, settings, durable=durable)
            )
            for durable in (False, True)
        )
        self._quick = quick
        self._pools = (reads, quick, writes)
        self._filtered = FilteredReads("postgres", settings.readers)
        self.values = PostgresValues(reads)
        self.sessions = PostgresSessions(reads)
        self.runs = PostgresRuns(reads)
        self.matching = PostgresMatching(reads, quick, writes, self._bell)
        self.tasks = PostgresTasks(reads, quick, writes, self._bell)
        self.ledger = PostgresLedger(reads)
        self.subscriptions = PostgresSubscriptions(reads, quick)
        self.outbox = PostgresOutbox(url, settings, reads, commit=self.commit)
        self.retention = PostgresRetention(reads, quick, self._recent)
        self.writes = PostgresWrites(reads, writes)
        self.wallet = PostgresWallet(reads)
        self._listen: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()

    @classmethod
    async def open(
        cls,
        url: str,
        settings: PostgresSettings,
        *,
        migrating: bool = True,
        creating: bool = True,
    ) -> "PostgresStore":
        store = cls(url, settings)
        await store._first_contact(migrating=migrating, creating=creating)
        store._listen = asyncio.create_task(store._keep_listening(), name="tape-postgres-listen")
        return store

    @property
    def head(self) -> int:
        return self._head.global_seq

    async def await_beyond(self, global_seq: int) -> int:
        return await self._head.beyond(global_seq)

    async def commit(self, needs: Iterable[Need], decide: Decide) -> EntryPlace:
        self._head.check_open()
        place, entries = await self._turns.commit(list(needs), decide, self._head.global_seq)
        self._recent.note(place, entries)
        self._head.advance(place.global_seq + len(entries) - 1)
        return place

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
        return await self._reading.use(
            lambda connection: read_entries(connection, query, condition), again=True
        )

    async def read_run(
        self, run_id: str, after_seq: int, limit: int, max_bytes: int = PAGE_BYTES
    ) -> list[Entry]:
        return await self._reading.rows(Entry, "read_run", run_id, after_seq, limit, max_bytes)

    async def read_value_history(
        self, subjects: Sequence[str], after: int, limit: int, max_bytes: int = PAGE_BYTES
    ) -> list[Entry]:
        params = (list(subjects), after, limit, max_bytes)
        return await self._reading.rows(Entry, "read_value_history", *params)

    async def info(self) -> JournalInfo:
        async def read(connection: asyncpg.Connection) -> JournalInfo:
            applied = await applied_migrations(connection)
            tail = await connection.fetchval(SQL["read_tail"])
            head = await connection.fetchval(SQL["read_head"])
            return JournalInfo("postgres", tail, head, max((m.number for m in applied), default=0))

        return await self._reading.use(read, again=True)

    async def close(self) -> None:
        self._head.close()
        self._bell.close()
        if self._listen is not None:
            self._listen.cancel()
            await asyncio.gather(self._listen, return_exceptions=True)
        with contextlib.suppress(OSError, asyncpg.InterfaceError, TimeoutError):
            await self._turns.close()
        for pool in self._pools:
            pool.close()

    async def _first_contact(self, *, migrating: bool, creating: bool) -> None:
        where = f"postgres://{address(self._url)}"
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._settings.connect_s
        while True:
            try:
                with translated(self._url):
                    connection = await connect_reader(self._url, self._settings)
                    try:
                        if not creating and not await applied_migrations(connection):
                            raise no_store(where)
                        if migrating:
                            log_created(await migrate(connection), where)
                        else:
                            await check_current(connection)
                        steps = await applied_migrations(connection)
                        self.runs.has_draw_subjects = has_draw_subjects(steps)
                        self._head.advance(await connection.fetchval(SQL["read_head"]))
                    finally:
                        await connection.close()
            except StoreUnavailable:
                if loop.time() > give_up:
                    raise
                await asyncio.sleep(0.2)
            else:
                return

    async def _keep_listening(self) -> None:
        retrying = Retrying(log, "listening to Postgres")
        while True:
            try:
                async with self._listening() as connection:
                    while True:
                        self._woken.clear()
                        self._head.advance(await connection.fetchval(SQL["read_head"]))
                        retrying.succeeded()
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(self._settings.poll_s):
                                await self._woken.wait()
            except TapeError as error:
                retrying.failed(error)
                await asyncio.sleep(self._settings.poll_s)

    @contextlib.asynccontextmanager
    async def _listening(self) -> AsyncIterator[asyncpg.Connection]:
        with translated(self._url):
            connection = await connect_reader(self._url, self._settings)
            try:
                number = await connection.fetchval("SELECT 'tape_journal'::regclass::oid::text")
                await connection.add_listener(f"tape_journal_{number}", self._heard)
                await connection.add_listener(f"tape_tasks_{number}", self._heard_of_tasks)
                yield connection
            finally:
                connection.terminate()

    def _heard(self, _connection: object, pid: int, _channel: str, _payload: object) -> None:
        if pid != self._turns.pid:  # of our own commits we know
            self._woken.set()

    def _heard_of_tasks(
        self, _connection: object, pid: int, _channel: str, _payload: object
    ) -> None:
        if pid not in self._quick.pids:  # of our own steps, too
            self._bell.ring()
