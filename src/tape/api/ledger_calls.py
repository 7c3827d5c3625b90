"""The calls on the event ledger: a message in, the operation, a message out."""

import asyncio

from tape.api.auth import Role, needs
from tape.api.ending import unless_ending
from tape.api.fitting import ANSWER_BYTES, fitting
from tape.api.handlers import Unary
from tape.bus import Operations
from tape.config import Limits
from tape.errors import Closed
from tape.ledger.operations import LedgerOperations
from tape.model.event_subscription import DEFAULT_DRAINER
from tape.model.names import check_name
from tape.wire import mapping_entries, records
from tape.wire.v1 import tape_pb2 as pb


class LedgerCalls:
    def __init__(self, operations: Operations, limits: Limits) -> None:
        self._operations = operations
        self._limits = limits
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Whoever waits for a pass comes back to whoever serves next."""
        self._ending.set()

    def methods(self) -> dict[str, Unary]:
        return {
            "PutEventSubscription": self.put_subscription,
            "DeleteEventSubscription": self.delete_subscription,
            "ListEventSubscriptions": self.list_subscriptions,
            "DrainEvents": self.drain,
            "ListDrainers": self.list_drainers,
            "SkipDrainerEvent": self.skip,
            "ResumeDrainer": self.resume,
            "ReadRecent": self.read_recent,
        }

    @needs(Role.WRITE)
    async def put_subscription(self, request: pb.EventSubscription) -> pb.EventSubscription:
        new = records.NEW_SUBSCRIPTION.from_wire(request)
        return records.EVENT_SUBSCRIPTION.to_wire(await self._ledger.put_subscription(new))

    @needs(Role.WRITE)
    async def delete_subscription(
        self, request: pb.DeleteEventSubscriptionRequest
    ) -> pb.DeleteEventSubscriptionResponse:
        deleted = await self._ledger.delete_subscription(request.subscription_id)
        return pb.DeleteEventSubscriptionResponse(deleted=deleted)

    @needs(Role.READ)
    async def list_subscriptions(
        self, request: pb.ListEventSubscriptionsRequest
    ) -> pb.ListEventSubscriptionsResponse:
        """As many as fit; the rest is what the next call begins with."""
        after = check_name(
            request.after_subscription_id, self._limits, field="after_subscription_id"
        )
        found = await self._ledger.list_subscriptions(request.drainer_id)
        later = [row for row in found if row.subscription_id > after]
        rows, more = fitting(map(records.EVENT_SUBSCRIPTION.to_wire, later))
        return pb.ListEventSubscriptionsResponse(subscriptions=rows, more=more)

    @needs(Role.WRITE)
    async def drain(self, request: pb.DrainEventsRequest) -> pb.DrainEventsResponse:
        draining = self._ledger.drain(
            request.drainer_id or DEFAULT_DRAINER,
            limit=request.limit,
            await_s=request.await_s if request.HasField("await_s") else None,
        )
        report = await unless_ending(self._ending, draining)  # it may wait for the end of a run
        if report is None:
            raise Closed("the server is shutting down")
        return records.DRAIN_REPORT.to_wire(report)

    @needs(Role.READ)
    async def list_drainers(self, request: pb.ListDrainersRequest) -> pb.ListDrainersResponse:
        """Likewise."""
        after = check_name(request.after_drainer_id, self._limits, field="after_drainer_id")
        found = await self._ledger.list_drainers()
        later = [state for state in found if state.drainer.drainer_id > after]
        drainers, more = fitting(map(records.DRAINER_STATE.to_wire, later))
        return pb.ListDrainersResponse(drainers=drainers, more=more)

    @needs(Role.ADMIN)
    async def skip(self, request: pb.SkipDrainerEventRequest) -> pb.DrainerRecord:
        state = await self._ledger.skip(
            request.drainer_id, request.event_id, reason=request.reason, by=request.by
        )
        return records.DRAINER_STATE.to_wire(state)

    @needs(Role.WRITE)
    async def resume(self, request: pb.ResumeDrainerRequest) -> pb.DrainerRecord:
        state = await self._ledger.resume(request.drainer_id, by=request.by)
        return records.DRAINER_STATE.to_wire(state)

    @needs(Role.READ)
    async def read_recent(self, request: pb.ReadRecentRequest) -> pb.EntryBatch:
        """As many as fit. The answer says where to go on, so what is left out is not lost."""
        query = records.RECENT_QUERY.from_wire(request)
        found = await self._ledger.recent(query._replace(max_bytes=ANSWER_BYTES // 2))
        messages, more = fitting(map(mapping_entries.entry_to_wire, found.entries))
        before = messages[-1].global_seq if more else found.before
        return pb.EntryBatch(entries=messages, cursor=before)

    @property
    def _ledger(self) -> LedgerOperations:
        return self._operations.ledger
