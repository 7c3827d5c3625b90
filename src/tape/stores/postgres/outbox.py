"""The relay's side of Postgres: a session of its own whose lock is the lead; see `ports.outbox`.

The session does nothing but this relay's reads and marks, and is heard of every third of `hung_s`.
When it is silent for `hung_s`, because its process hangs or the way to it is cut, Postgres ends it
(`idle_session_timeout`), and the lock is free. So a lock that is held is held by somebody alive.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

import asyncpg

from tape.errors import NotLeading, StoreUnavailable
from tape.model.outbox import FailingRow, OutboxRow, RelayTerm, RepeatedRow
from tape.model.relay import Candidate
from tape.ports.outbox import Lead, OutboxLeader, OutboxStatus
from tape.settings import PostgresSettings
from tape.stores.elections import Commit, elect
from tape.stores.postgres.connection import connect_leader, translated
from tape.stores.postgres.pool import PostgresPool
from tape.stores.postgres.turn import SQL

CHANNEL = "bus_outbox_appended"
COUNT_MOST = 100_000
ERROR_MOST = 1_000


class PostgresOutbox:
    def __init__(
        self, url: str, settings: PostgresSettings, reads: PostgresPool, *, commit: Commit
    ) -> None:
        self._url = url
        self._settings = settings
        self._reads = reads
        self._commit = commit

    async def lead_outbox(self, lead: Lead) -> OutboxLeader | None:
        with translated(self._url):
            connection = await connect_leader(self._url, self._settings, lead.hung_s)
        leader = PostgresLeader(self._url, connection, lead)
        try:
            with translated(self._url):
                won = await connection.fetchval(SQL["take_lead"], lead.lock_key)
            if won:
                await leader.begin(self._commit)
                return leader
        except BaseException:
            await leader.release()
            raise
        await leader.release()
        return None

    async def has_unpromoted(self) -> bool:
        (found,) = await self._reads.rows(bool, "has_unpromoted")
        return found

    async def read_outbox_status(self, limit: int) -> OutboxStatus:
        async def read(connection: asyncpg.Connection) -> OutboxStatus:
            ((waiting, unpromoted, oldest_ms, repeated),) = await connection.fetch(
                SQL["count_outbox"], COUNT_MOST
            )
            failing = await connection.fetch(SQL["read_failing"], limit)
            terms = await connection.fetch(SQL["read_relays"])
            repeats = await connection.fetch(SQL["read_repeats"], limit)
            return OutboxStatus(
                waiting,
                unpromoted,
                oldest_ms,
                [FailingRow(*row) for row in failing],
                [RelayTerm(*row) for row in terms],
                repeated,
                [RepeatedRow(*row) for row in repeats],
            )

        return await self._reads.at_once(read)


class PostgresLeader:
    def __init__(self, url: str, connection: asyncpg.Connection, lead: Lead) -> None:
        self._url = url
        self._connection = connection
        self._lead = lead
        self._one_at_a_time = asyncio.Lock()
        self._appended = asyncio.Event()
        self._confirmed_at = time.monotonic()
        self._term = RelayTerm(lead.relay, 0, lead.owner, 0, 0)
        self._heartbeat: asyncio.Task[None] | None = None

    async def begin(self, commit: Commit) -> None:
        self._heartbeat = asyncio.create_task(self._keep_alive(), name="tape-relay-heartbeat")
        pid = self._connection.get_server_pid()
        with translated(self._url):
            await self._connection.add_listener(CHANNEL, self._heard)
        candidate = Candidate(self._lead.relay, self._lead.owner, f"pid {pid}")
        term = await elect(commit, candidate, self._lead.event_id)
        if term is None:
            raise NotLeading
        self._term = term

    @property
    def term(self) -> RelayTerm:
        return self._term

    @property
    def is_certain(self) -> bool:
        return time.monotonic() - self._confirmed_at < self._lead.hung_s / 2

    async def read_unpromoted(self, limit: int, held: Sequence[str] = ()) -> list[OutboxRow]:
        rows = await self._fetch("read_unpromoted", limit, list(held))
        return [OutboxRow(*row) for row in rows]

    async def read_unpublished(self, limit: int, held: Sequence[str] = ()) -> list[OutboxRow]:
        rows = await self._fetch("read_unpublished", limit, list(held))
        return [OutboxRow(*row) for row in rows]

    async def mark_published(self, ids: Sequence[int]) -> None:
        await self._fetch("mark_published", list(ids), self._term.term)

    async def note_failure(self, row_id: int, error: str) -> None:
        await self._fetch("note_outbox_failure", row_id, error[:ERROR_MOST])

    async def confirm(self) -> None:
        await self._fetch("confirm_lead")

    async def wait(self, timeout_s: float) -> None:
        if self._connection.is_closed():
            raise NotLeading
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._appended.wait()
        self._appended.clear()

    async def forget_published(self, older_than_ms: int, limit: int) -> int:
        return await self._execute("forget_published", older_than_ms, limit)

    async def forget_repeats(self, older_than_ms: int, limit: int) -> int:
        return await self._execute("forget_repeats", older_than_ms, limit)

    async def forget_promoted(self, older_than_ms: int, limit: int) -> int:
        return await self._execute("forget_promoted", older_than_ms, limit)

    async def release(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            await asyncio.gather(self._heartbeat, return_exceptions=True)
        with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError,
                                 asyncpg.InterfaceError, asyncpg.InternalClientError):  # fmt: skip
            await self._connection.close(timeout=self._lead.hung_s)
        self._connection.terminate()

    async def _fetch(self, name: str, *params: object) -> list[Any]:
        rows: list[Any] = await self._on_session("fetch", name, *params)
        return rows

    async def _execute(self, name: str, *params: object) -> int:
        """How many rows a statement changed."""
        status: str = await self._on_session("execute", name, *params)
        return int(status.rpartition(" ")[2])

    async def _on_session(self, how: str, name: str, *params: object) -> Any:
        async with self._one_at_a_time:
            asked_at = time.monotonic()
            try:
                with translated(self._url):
                    found = await getattr(self._connection, how)(SQL[name], *params)
            except StoreUnavailable as error:
                self._connection.terminate()
                raise NotLeading(f"the session that led is gone: {error}") from error
        self._confirmed_at = asked_at
        return found

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._lead.hung_s / 3)
            try:
                await self.confirm()
            except NotLeading:
                self._appended.set()  # whoever waits finds out at once
                return

    def _heard(self, *_notification: object) -> None:
        self._appended.set()
