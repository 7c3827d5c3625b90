"""What a store keeps of writes in bulk, for whoever records them: `store.writes`.

See `model.bulk_write`. Chunks get there by `ports.bulk.Staging`.
"""

from collections.abc import Sequence
from typing import Protocol

from tape.model.bulk_write import BulkWrite, WriteList


class WriteStore(Protocol):
    async def get_write(self, write_id: str) -> BulkWrite | None: ...

    async def get_write_list(self, write_id: str, epoch: int) -> WriteList | None: ...

    async def get_chunk(
        self, write_id: str, epoch: int, part: str, number: int
    ) -> bytes | None: ...

    async def discard_parts(self, write_id: str, epoch: int, parts: Sequence[str]) -> None:
        """Forget what these parts staged."""

    async def discard_staged(self, write_id: str, upto_epoch: int, older_than_ms: int) -> int:
        """Forget a few of the chunks of these epochs, and of those that any write has staged so
        long ago and never registered; how many, 0 if there are none left.
        """

    async def forget_write(self, write_id: str, upto_epoch: int, *, wholly: bool) -> None:
        """Forget the lists of these epochs; `wholly`, the finished write itself as well."""
