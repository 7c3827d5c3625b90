"""What Postgres keeps of writes in bulk; see `ports.writes`."""

from collections.abc import Sequence

from tape.model.bulk_write import BulkWrite, WriteList
from tape.stores.postgres.pool import PostgresPool

DISCARDED_AT_ONCE = 16


class PostgresWrites:
    def __init__(self, reads: PostgresPool, writes: PostgresPool) -> None:
        self._reads = reads
        self._writes = writes

    async def get_write(self, write_id: str) -> BulkWrite | None:
        return await self._reads.row(BulkWrite, "get_write", write_id)

    async def get_write_list(self, write_id: str, epoch: int) -> WriteList | None:
        return await self._reads.row(WriteList, "get_write_list", write_id, epoch)

    async def get_chunk(self, write_id: str, epoch: int, part: str, number: int) -> bytes | None:
        return await self._reads.row(bytes, "get_chunk", write_id, epoch, part, number)

    async def discard_parts(self, write_id: str, epoch: int, parts: Sequence[str]) -> None:
        for part in parts:
            await self._writes.execute("discard_part", write_id, epoch, part)

    async def discard_staged(self, write_id: str, upto_epoch: int, older_than_ms: int) -> int:
        return await self._writes.execute(
            "discard_staged", write_id, upto_epoch, older_than_ms, DISCARDED_AT_ONCE
        )

    async def forget_write(self, write_id: str, upto_epoch: int, *, wholly: bool) -> None:
        await self._writes.execute("forget_write_lists", write_id, upto_epoch)
        if wholly:
            await self._writes.execute("forget_write", write_id, upto_epoch)
