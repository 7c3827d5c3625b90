"""The relay's side of a SQLite file: the lead is a lease, and its term fences what is marked.

SQLite has no notifications. A connection that only looks is told by SQLite whether any other has
committed something (`PRAGMA data_version`), which costs no read of any table.
"""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tape.errors import Closed, NotLeading, TapeError
from tape.model.outbox import FailingRow, OutboxRow, RelayTerm, RepeatedRow
from tape.model.relay import Candidate
from tape.ports.clock import Clock
from tape.ports.outbox import Lead, OutboxLeader, OutboxStatus
from tape.settings import SqliteSettings
from tape.stores.elections import Commit, elect
from tape.stores.sqlite.connection import transaction
from tape.stores.sqlite.pool import SqlitePool
from tape.stores.sqlite.turn import SQL, as_json

T = TypeVar("T")

COUNT_MOST = 100_000
ERROR_MOST = 1_000
LOOK_S = 0.02


class SqliteOutbox:
    def __init__(
        self,
        path: Path,
        settings: SqliteSettings,
        reads: SqlitePool,
        writes: SqlitePool,
        *,
        commit: Commit,
        clock: Clock,
    ) -> None:
        self._path = path
        self._settings = settings
        self._reads = reads
        self._writes = writes
        self._commit = commit
        self._clock = clock

    async def lead_outbox(self, lead: Lead) -> OutboxLeader | None:
        candidate = Candidate(lead.relay, lead.owner, lease_ms=int(lead.hung_s * 1000))
        term = await elect(self._commit, candidate, lead.event_id)
        if term is None:
            return None
        looks = SqlitePool(self._path, self._settings.busy_s, 1, "tape-sqlite-relay")
        return SqliteLeader(lead, term, looks, self._writes, self._clock)

    async def has_unpromoted(self) -> bool:
        (found,) = await self._reads.rows(bool, "has_unpromoted")
        return found

    async def read_outbox_status(self, limit: int) -> OutboxStatus:
        def read(db: sqlite3.Connection) -> OutboxStatus:
            db.text_factory = lambda text: text.decode(errors="replace")  # shown, whatever it is
            try:
                waiting, unpromoted, oldest_ms, repeated = db.execute(
                    SQL["count_outbox"], (COUNT_MOST, self._clock())
                ).fetchone()
                failing = [FailingRow(*row) for row in db.execute(SQL["read_failing"], (limit,))]
                terms = [RelayTerm(*row) for row in db.execute(SQL["read_relays"])]
                repeats = [RepeatedRow(*row) for row in db.execute(SQL["read_repeats"], (limit,))]
            finally:
                db.text_factory = str
            return OutboxStatus(waiting, unpromoted, oldest_ms, failing, terms, repeated, repeats)

        return await self._reads.at_once(read)


class SqliteLeader:
    def __init__(
        self, lead: Lead, term: RelayTerm, looks: SqlitePool, writes: SqlitePool, clock: Clock
    ) -> None:
        self._lead = lead
        self._term = term
        self._looks = looks
        self._writes = writes
        self._clock = clock
        self._version = -1
        self._confirmed_at = time.monotonic()
        self._lost = False
        self._heartbeat = asyncio.create_task(self._keep_alive(), name="tape-relay-heartbeat")

    @property
    def term(self) -> RelayTerm:
        return self._term

    @property
    def is_certain(self) -> bool:
        return time.monotonic() - self._confirmed_at < self._lead.hung_s / 2

    async def read_unpromoted(self, limit: int, held: Sequence[str] = ()) -> list[OutboxRow]:
        return await self._rows("read_unpromoted", limit, held)

    async def read_unpublished(self, limit: int, held: Sequence[str] = ()) -> list[OutboxRow]:
        return await self._rows("read_unpublished", limit, held)

    async def mark_published(self, ids: Sequence[int]) -> None:
        await self._change("mark_published", as_json(ids), self._term.term, self._clock())

    async def note_failure(self, row_id: int, error: str) -> None:
        await self._change("note_outbox_failure", row_id, error[:ERROR_MOST])

    async def confirm(self) -> None:
        await self._change()

    async def wait(self, timeout_s: float) -> None:
        give_up = time.monotonic() + timeout_s
        while await self._look(_read_version) == self._version:
            left = give_up - time.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(min(left, LOOK_S))

    async def forget_published(self, older_than_ms: int, limit: int) -> int:
        return await self._change("forget_published", self._clock() - older_than_ms, limit)

    async def forget_repeats(self, older_than_ms: int, limit: int) -> int:
        return await self._change("forget_repeats", self._clock() - older_than_ms, limit)

    async def forget_promoted(self, older_than_ms: int, limit: int) -> int:
        return await self._change("forget_promoted", self._clock() - older_than_ms, limit)

    async def release(self) -> None:
        self._heartbeat.cancel()
        await asyncio.gather(self._heartbeat, return_exceptions=True)
        with contextlib.suppress(NotLeading, Closed):
            await self._change(expires_at_ms=0)
        self._lost = True
        self._looks.close()
        await self._looks.wait_closed()

    async def _rows(self, name: str, limit: int, held: Sequence[str]) -> list[OutboxRow]:
        def read(db: sqlite3.Connection) -> list[OutboxRow]:
            db.text_factory = _decoded
            self._version = _read_version(db)
            # Others are no subjects, and JSON has no half characters.
            ascii_only = [subject for subject in held if subject.isascii()]
            return [OutboxRow(*row) for row in db.execute(SQL[name], (limit, as_json(ascii_only)))]

        return await self._look(read)

    async def _change(
        self, name: str = "", *params: object, expires_at_ms: int | None = None
    ) -> int:
        """Renew the lease and, in the same transaction, change something; how many rows."""
        asked_at = time.monotonic()
        if expires_at_ms is None:
            expires_at_ms = self._clock() + int(self._lead.hung_s * 1000)
        lease = (self._term.relay, self._term.term, expires_at_ms)

        def work(db: sqlite3.Connection) -> int | None:
            with transaction(db):
                if db.execute(SQL["confirm_lead"], lease).fetchall() == []:
                    return None
                return db.execute(SQL[name], params).rowcount if name else 0

        changed = None if self._lost else await self._writes.use(work)
        if changed is None:
            self._lost = True
            raise NotLeading
        self._confirmed_at = asked_at
        return changed

    async def _look(self, read: Callable[[sqlite3.Connection], T]) -> T:
        if self._lost:
            raise NotLeading
        return await self._looks.use(read)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._lead.hung_s / 3)
            try:
                await self.confirm()
            except NotLeading:
                return
            except TapeError:  # a busy file: the lease runs on, and the next time may be in time
                continue


def _decoded(text: bytes) -> str:
    """What is not UTF-8 becomes half characters, which no event may hold: that row alone is held
    up, where an error would stop the reading of all."""
    return text.decode(errors="surrogateescape")


def _read_version(db: sqlite3.Connection) -> Any:
    return db.execute("PRAGMA data_version").fetchone()[0]
