"""The operations on the outbox: what waits in it, what was refused, and how to pass it."""

from typing import Final, Protocol

from tape.journal.follow import check_position
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.outbox import OutboxPlace, SkipOutboxRow
from tape.ports.outbox import OutboxStatus
from tape.ports.store import Store
from tape.settings import Limits

FAILING_TOLD: Final = 100


class OutboxOperations(Protocol):
    async def outbox_status(self) -> OutboxStatus:
        """What waits in the outbox, the first of what was not taken, and who leads."""

    async def skip_outbox_row(self, row_id: int, *, reason: str, by: str) -> OutboxPlace:
        """Let what comes after a row that was not taken pass it; the journal has the reason."""


class Outbox:
    def __init__(self, store: Store, writer: Writer, ids: UlidFactory, limits: Limits) -> None:
        self._store = store
        self._writer = writer
        self._ids = ids
        self._limits = limits

    async def outbox_status(self) -> OutboxStatus:
        return await self._store.outbox.read_outbox_status(FAILING_TOLD)

    async def skip_outbox_row(self, row_id: int, *, reason: str, by: str) -> OutboxPlace:
        check_position(row_id, "row_id")
        move = SkipOutboxRow(row_id, reason, by, next(self._ids), self._limits)
        return await self._writer.submit(move)
