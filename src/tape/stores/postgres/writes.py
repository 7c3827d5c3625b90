"""What Postgres keeps of writes in bulk; see `ports.writes`."""

from collections.abc import Sequence

import asyncpg

from tape.model.bulk_write import Write, WriteList
from tape.stores.postgres.pool import Pool
from tape.stores.postgres.turn import SQL

DISCARDED_AT_ONCE = 16


class PostgresWrites:
    def __init__(self, reads: Pool, writes: Pool) -> None:
        self._reads = reads
        self._writes = writes

    async def get_write(self, write_id: str) -> Write | None:
        row = await self._row("get_write", write_id)
        return Write(*row) if row else None

    async def get_list(self, write_id: str, epoch: int) -> WriteList | None:
        row = await self._row("get_write_list", write_id, epoch)
        return WriteList(*row) if row else None

    async def get_chunk(self, *key: str | int) -> bytes | None:
        row = await self._row("get_chunk", *key)
        return row[0] if row else None

    async def discard_parts(self, write_id: str, epoch: int, parts: Sequence[str]) -> None:
        for part in parts:
            await self._do("discard_part", write_id, epoch, part)

    async def discard_staged(self, write_id: str, upto_epoch: int, older_than_ms: int) -> int:
        done = await self._do(
            "discard_staged", write_id, upto_epoch, older_than_ms, DISCARDED_AT_ONCE
        )
        return int(done.rpartition(" ")[2])

    async def forget(self, write_id: str, upto_epoch: int, *, wholly: bool) -> None:
        await self._do("forget_write_lists", write_id, upto_epoch)
        if wholly:
            await self._do("forget_write", write_id, upto_epoch)

    async def _row(self, name: str, *params: str | int) -> asyncpg.Record | None:
        return await self._reads.use(
            lambda connection: connection.fetchrow(SQL[name], *params), again=True
        )

    async def _do(self, name: str, *params: str | int) -> str:
        """What may be done twice."""
        return await self._writes.use(
            lambda connection: connection.execute(SQL[name], *params), again=True
        )
