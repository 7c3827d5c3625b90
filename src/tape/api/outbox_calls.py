"""The calls on the outbox: a message in, the operation, a message out."""

from tape.api.auth import Role, needs
from tape.api.handlers import Unary
from tape.bus import Operations
from tape.config import Limits
from tape.wire import records
from tape.wire.v1 import tape_pb2 as pb


class OutboxCalls:
    def __init__(self, operations: Operations, _limits: Limits) -> None:
        self._operations = operations

    def methods(self) -> dict[str, Unary]:
        return {"GetOutboxStatus": self.get_status, "SkipOutboxRow": self.skip}

    @needs(Role.READ)
    async def get_status(self, _request: pb.GetOutboxStatusRequest) -> pb.OutboxStatus:
        return records.OUTBOX_STATUS.to_wire(await self._operations.outbox.outbox_status())

    @needs(Role.ADMIN)
    async def skip(self, request: pb.SkipOutboxRowRequest) -> pb.OutboxPlace:
        place = await self._operations.outbox.skip_outbox_row(
            request.row_id, reason=request.reason, by=request.by
        )
        return records.OUTBOX_PLACE.to_wire(place)
