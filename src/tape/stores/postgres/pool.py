"""A few sessions of one kind, opened when they are needed and kept for the next who needs one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from tape.errors import Closed, StoreUnavailable
from tape.stores.postgres.connection import translated
from tape.stores.postgres.turn import SQL

T = TypeVar("T")


class PostgresPool:
    def __init__(
        self, url: str, most: int, connect: Callable[[], Awaitable[asyncpg.Connection]]
    ) -> None:
        self._url = url
        self._connect = connect
        self._idle: list[asyncpg.Connection] = []
        self._room = asyncio.Semaphore(most)
        self._closed = False
        self.pids: set[int] = set()
        """The server processes of its sessions."""

    async def use(self, work: Callable[[asyncpg.Connection], Awaitable[T]], *, again: bool) -> T:
        """Do the work on a session.

        With `again`, a session that died while it lay idle is replaced without a word: for work
        that may be done twice.
        """
        async with self._room:
            if self._closed:
                raise Closed
            while self._idle:
                connection = self._idle.pop()
                if connection.is_closed():
                    continue
                try:
                    return await self._on(connection, work)
                except StoreUnavailable:
                    if not again:
                        raise
            with translated(self._url):
                connection = await self._connect()
            pid = connection.get_server_pid()
            self.pids.add(pid)
            connection.add_termination_listener(lambda _connection: self.pids.discard(pid))
            return await self._on(connection, work)

    async def at_once(self, read: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Read with several statements on one snapshot."""

        async def reading(connection: asyncpg.Connection) -> T:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await read(connection)

        return await self.use(reading, again=True)

    async def rows(self, kind: Callable[..., T], name: str, *params: object) -> list[T]:
        """What a statement finds. It may be done twice."""
        found = await self.use(lambda connection: connection.fetch(SQL[name], *params), again=True)
        return [kind(*row) for row in found]

    async def row(self, kind: Callable[..., T], name: str, *params: object) -> T | None:
        """The one row that a statement finds, if there is one."""
        found = await self.rows(kind, name, *params)
        return found[0] if found else None

    async def execute(self, name: str, *params: object) -> int:
        """Make a change that may be made twice; how many rows it changed."""
        done = await self.use(lambda connection: connection.execute(SQL[name], *params), again=True)
        return int(done.rpartition(" ")[2])

    async def _on(
        self, connection: asyncpg.Connection, work: Callable[[asyncpg.Connection], Awaitable[T]]
    ) -> T:
        try:
            with translated(self._url):
                result = await work(connection)
        except BaseException:
            connection.terminate()
            raise
        if self._closed:
            connection.terminate()
        else:
            self._idle.append(connection)
        return result

    def close(self) -> None:
        self._closed = True
        for connection in self._idle:
            connection.terminate()
