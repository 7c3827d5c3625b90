"""Threads that have a connection to the file each, opened when they are needed."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tape.errors import Closed
from tape.stores.sqlite.connection import READ_CACHE_KIB, connect, translated
from tape.stores.sqlite.turn import SQL, maker

T = TypeVar("T")


class SqlitePool:
    def __init__(
        self, path: Path, busy_s: float, most: int, name: str, *, cache_kib: int = READ_CACHE_KIB
    ) -> None:
        self._path = path
        self._busy_s = busy_s
        self._cache_kib = cache_kib
        self._threads = ThreadPoolExecutor(most, name)
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._closed = False

    async def use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work on a connection, in its thread."""
        if self._closed:
            raise Closed
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        try:
            self._threads.submit(self._work, work, done, loop)
        except RuntimeError:  # the store closes, or the interpreter ends and takes every pool along
            raise Closed from None
        return await done

    async def at_once(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Read with several statements on one snapshot."""

        def reading(db: sqlite3.Connection) -> T:
            db.execute("BEGIN")
            try:
                return read(db)
            finally:
                db.execute("ROLLBACK")

        return await self.use(reading)

    async def rows(self, kind: Callable[..., T], name: str, *params: object) -> list[T]:
        """What a statement finds."""

        def read(db: sqlite3.Connection) -> list[T]:
            make = maker(kind)
            return [make(*row) for row in db.execute(SQL[name], params)]

        return await self.use(read)

    async def row(self, kind: Callable[..., T], name: str, *params: object) -> T | None:
        """The one row that a statement finds, if there is one."""

        def read(db: sqlite3.Connection) -> T | None:
            found = db.execute(SQL[name], params).fetchone()
            return maker(kind)(*found) if found else None

        return await self.use(read)

    async def execute(self, name: str, *params: object) -> int:
        """Make a change with one statement; how many rows it changed."""
        return await self.use(lambda db: db.execute(SQL[name], params).rowcount)

    def close(self) -> None:
        """Refuse further work."""
        self._closed = True

    async def wait_closed(self) -> None:
        """Wait for the work under way, and close the connections."""
        await asyncio.to_thread(self._threads.shutdown)
        for connection in self._opened:
            connection.close()

    def _work(
        self,
        work: Callable[[sqlite3.Connection], T],
        done: "asyncio.Future[T]",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """What `run_in_executor` does, for two thirds of what that costs."""
        if done.cancelled():
            return
        try:
            settle = partial(_give, done, self._with_connection(work))
        except BaseException as error:  # noqa: BLE001 - it belongs to who waits
            settle = partial(_fail, done, error)
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it who waited
            loop.call_soon_threadsafe(settle)

    def _with_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with translated(self._path):
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = connect(self._path, self._busy_s, cache_kib=self._cache_kib)
                self._local.connection = connection
                self._opened.append(connection)
            return work(connection)


def _give(done: "asyncio.Future[T]", result: T) -> None:
    if not done.cancelled():
        done.set_result(result)


def _fail(done: "asyncio.Future[Any]", error: BaseException) -> None:
    if not done.cancelled():
        done.set_exception(error)
