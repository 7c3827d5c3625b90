"""The operations of the bus over gRPC.

Readers outlive their server: they wait for it to come back and go on from their cursor, so nothing
is skipped or repeated. A write is sent again only where a repeat cannot do harm.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from tape.bus import FollowQuery
from tape.client.address import parse_address
from tape.client.again import until_answered
from tape.client.grpc_ledger import GrpcLedger
from tape.client.grpc_outbox import GrpcOutbox
from tape.client.grpc_reactions import GrpcReactions
from tape.client.grpc_runs import GrpcRuns
from tape.client.grpc_sessions import GrpcSessions
from tape.client.grpc_tasks import GrpcTasks
from tape.client.grpc_values import GrpcValues
from tape.client.outliving import outliving
from tape.client.representable import representable
from tape.client.server import Server
from tape.config import Settings
from tape.journal.follow import Page
from tape.model.event import NewEvent, Recorded
from tape.ports.store import JournalInfo
from tape.wire import mapping_entries, mapping_events
from tape.wire.v1 import tape_pb2 as pb


class GrpcBus:
    """Tape at a server. Open it on the event loop it will be used on."""

    def __init__(self, server: Server, settings: Settings) -> None:
        self._server = server
        self._rpc = server.rpc
        self._settings = settings
        self._exposed = True
        self._retry_for_s = settings.writer.retry_for_s
        self.runs = GrpcRuns(server, self._retry_for_s, settings.limits)
        self.tasks = GrpcTasks(server)
        self.values = GrpcValues(server, self._retry_for_s)
        self.sessions = GrpcSessions(server)
        self.reactions = GrpcReactions(server)
        self.ledger = GrpcLedger(server)
        self.outbox = GrpcOutbox(server)

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def exposed(self) -> bool:
        """Whether others can reach the server; one that does not say so may be."""
        return self._exposed

    @classmethod
    async def open(cls, url: str, token: str, settings: Settings) -> "GrpcBus":
        """A server that is not there, or does not let us in, is found out here."""
        address = parse_address(url, with_token=bool(token))
        bus = cls(Server(address, token), settings)
        try:
            await bus._get_to_know()
        except BaseException:
            await bus.close()
            raise
        return bus

    async def record_events(self, events: Sequence[NewEvent]) -> list[Recorded]:
        """With a key on every event a request that was cut off is sent again for a while."""
        with representable():
            request = mapping_events.events_to_wire(events)
        keyed = all(event.idempotency_key for event in events)

        async def send() -> pb.RecordEventsResponse:
            return await self._server.call(self._rpc.RecordEvents, request, writes=True)

        response = await until_answered(send, self._retry_for_s if keyed else 0)
        return mapping_events.recorded_from_wire(response)

    async def follow(self, query: FollowQuery) -> AsyncGenerator[Page, None]:
        cursor = query.after

        def ask() -> pb.FollowEntriesRequest:
            return pb.FollowEntriesRequest(
                subject_pattern=query.pattern,
                predicate_cel=query.predicate,
                from_global_seq=cursor,
                max_batch=query.max_batch,
                to_global_seq=query.until,
                kind=query.kind,
                run_id=query.run_id,
                from_ts_ms=query.from_ts_ms,
            )

        async with aclosing(outliving(self._server, self._rpc.FollowEntries, ask)) as batches:
            async for batch in batches:
                cursor = batch.cursor
                entries = mapping_entries.entries_from_wire(batch)
                yield Page(entries, cursor, batch.skipped, batch.last_error)
                if query.until and cursor >= query.until:
                    return

    async def info(self) -> JournalInfo:
        return mapping_entries.info_from_wire(await self._info())

    async def _info(self) -> pb.GetJournalInfoResponse:
        return await self._server.call(self._rpc.GetJournalInfo, pb.GetJournalInfoRequest())

    async def _get_to_know(self) -> None:
        """What is refused before it is sent is what the server would refuse."""
        told = await self._info()
        self.runs.limits = mapping_entries.limits_from_wire(told, self._settings.limits)
        self._exposed = told.exposed

    async def close(self) -> None:
        await self._server.close()
