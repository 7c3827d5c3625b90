"""Staging in Postgres from Spark's Python workers, over one session."""

import asyncio
from collections.abc import Sequence

import asyncpg

from tape.errors import StoreUnavailable
from tape.ports.bulk import Chunk
from tape.settings import PostgresSettings
from tape.stores.postgres.connection import connect_worker, translated
from tape.stores.statements import load_statements

SQL = load_statements("tape.stores.postgres")
TRIES = 3


class PostgresStaging:
    """See `ports.bulk.Staging`."""

    def __init__(self, url: str, settings: PostgresSettings) -> None:
        self._url = url
        self._settings = settings
        self._loop = asyncio.Runner()
        self._connection: asyncpg.Connection | None = None

    def stage(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            self._do("stage_chunk", *chunk)

    def discard(self, write_id: str, epoch: int, parts: Sequence[str]) -> None:
        for part in parts:
            self._do("discard_part", write_id, epoch, part)

    def close(self) -> None:
        if self._connection is not None:
            self._loop.run(_ended(self._connection))
        self._loop.close()

    def _do(self, name: str, *params: str | int | bytes) -> None:
        """Each may be done twice, so a session that broke is replaced."""
        for tried in range(TRIES):
            try:
                self._loop.run(self._execute(SQL[name], *params))
            except StoreUnavailable:
                if tried == TRIES - 1:
                    raise
            else:
                return

    async def _execute(self, statement: str, *params: str | int | bytes) -> None:
        with translated(self._url):
            if self._connection is None:
                self._connection = await connect_worker(self._url, self._settings, durable=True)
            try:
                await self._connection.execute(statement, *params)
            except BaseException:
                self._connection.terminate()
                self._connection = None
                raise


async def _ended(connection: asyncpg.Connection) -> None:
    connection.terminate()
