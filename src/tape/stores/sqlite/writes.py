"""What a SQLite file keeps of writes in bulk; see `ports.writes`."""

import sqlite3
from collections.abc import Sequence

from tape.model.bulk_write import BulkWrite, WriteList
from tape.stores.sqlite.connection import transaction
from tape.stores.sqlite.pool import SqlitePool
from tape.stores.sqlite.turn import SQL

DISCARDED_AT_ONCE = 16
"""Every chunk is some hundred pages to free while others wait for the file."""


class SqliteWrites:
    def __init__(self, reads: SqlitePool, writes: SqlitePool) -> None:
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
        def forget(db: sqlite3.Connection) -> None:
            with transaction(db):
                db.execute(SQL["forget_write_lists"], (write_id, upto_epoch))
                if wholly:
                    db.execute(SQL["forget_write"], (write_id, upto_epoch))

        await self._writes.use(forget)
