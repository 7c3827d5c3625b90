"""The operations on the outbox over gRPC."""

from tape.client.representable import representable
from tape.client.server import Server
from tape.model.outbox import OutboxPlace
from tape.ports.outbox import OutboxStatus
from tape.wire import records
from tape.wire.v1 import tape_pb2 as pb


class GrpcOutbox:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._rpc = server.rpc

    async def outbox_status(self) -> OutboxStatus:
        request = pb.GetOutboxStatusRequest()
        status = await self._server.call(self._rpc.GetOutboxStatus, request)
        return records.OUTBOX_STATUS.from_wire(status)

    async def skip_outbox_row(self, row_id: int, *, reason: str, by: str) -> OutboxPlace:
        with representable():
            request = pb.SkipOutboxRowRequest(row_id=row_id, reason=reason, by=by)
        place = await self._server.call(self._rpc.SkipOutboxRow, request, writes=True)
        return records.OUTBOX_PLACE.from_wire(place)
