"""The operations on the event ledger over gRPC."""

from tape.client.representable import representable
from tape.client.server import Server
from tape.model.drainer import DrainerState, DrainReport
from tape.model.event_subscription import DEFAULT_DRAINER, EventSubscription, NewSubscription
from tape.ports.ledger import RecentEntries, RecentQuery
from tape.wire import mapping_entries, records
from tape.wire.v1 import tape_pb2 as pb


class GrpcLedger:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._rpc = server.rpc

    async def put_subscription(self, new: NewSubscription) -> EventSubscription:
        with representable():
            request = records.NEW_SUBSCRIPTION.to_wire(new)
        kept = await self._server.call(self._rpc.PutEventSubscription, request, writes=True)
        return records.EVENT_SUBSCRIPTION.from_wire(kept)

    async def delete_subscription(self, subscription_id: str) -> bool:
        with representable():
            request = pb.DeleteEventSubscriptionRequest(subscription_id=subscription_id)
        call = self._rpc.DeleteEventSubscription
        return (await self._server.call(call, request, writes=True)).deleted

    async def list_subscriptions(self, drainer_id: str = "") -> list[EventSubscription]:
        found: list[EventSubscription] = []
        while True:
            after = found[-1].subscription_id if found else ""
            with representable():
                request = pb.ListEventSubscriptionsRequest(
                    drainer_id=drainer_id, after_subscription_id=after
                )
            answer = await self._server.call(self._rpc.ListEventSubscriptions, request)
            found += map(records.EVENT_SUBSCRIPTION.from_wire, answer.subscriptions)
            if not answer.more:
                return found

    async def drain(
        self, drainer_id: str = DEFAULT_DRAINER, *, limit: int = 0, await_s: float | None = None
    ) -> DrainReport:
        with representable():
            request = pb.DrainEventsRequest(drainer_id=drainer_id, limit=limit, await_s=await_s)
        answer = await self._server.call(self._rpc.DrainEvents, request, writes=True)
        return records.DRAIN_REPORT.from_wire(answer)

    async def list_drainers(self) -> list[DrainerState]:
        found: list[DrainerState] = []
        while True:
            after = found[-1].drainer.drainer_id if found else ""
            request = pb.ListDrainersRequest(after_drainer_id=after)
            answer = await self._server.call(self._rpc.ListDrainers, request)
            found += map(records.DRAINER_STATE.from_wire, answer.drainers)
            if not answer.more:
                return found

    async def skip(self, drainer_id: str, event_id: str, *, reason: str, by: str) -> DrainerState:
        with representable():
            request = pb.SkipDrainerEventRequest(
                drainer_id=drainer_id, event_id=event_id, reason=reason, by=by
            )
        record = await self._server.call(self._rpc.SkipDrainerEvent, request, writes=True)
        return records.DRAINER_STATE.from_wire(record)

    async def resume(self, drainer_id: str, *, by: str) -> DrainerState:
        with representable():
            request = pb.ResumeDrainerRequest(drainer_id=drainer_id, by=by)
        record = await self._server.call(self._rpc.ResumeDrainer, request, writes=True)
        return records.DRAINER_STATE.from_wire(record)

    async def recent(self, query: RecentQuery) -> RecentEntries:
        """It may hold fewer than there are: no more than one message does."""
        with representable():
            request = records.RECENT_QUERY.to_wire(query)
        batch = await self._server.call(self._rpc.ReadRecent, request)
        return RecentEntries(mapping_entries.entries_from_wire(batch), batch.cursor)
