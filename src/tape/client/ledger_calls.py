"""What a client says about event subscriptions and drainers: a part of its face."""

from collections.abc import Mapping

from tape.bus import Operations
from tape.ledger.declare import new_subscription, pool_of
from tape.model.drainer import DrainerState, DrainReport
from tape.model.event_subscription import DEFAULT_DRAINER, EventSubscription
from tape.runs.declare import DECLARED_APPS


class LedgerCalls:
    _operations: Operations

    async def subscribe_events(
        self,
        event_type_glob: str,
        app: str,
        *,
        subscription_id: str = "",
        drainer: str = DEFAULT_DRAINER,
        where: str = "",
        input: Mapping[str, str] | None = None,  # noqa: A002 - what an app calls it
        enabled: bool = True,
        awaits_end: bool = True,
        pool: str = "",
    ) -> EventSubscription:
        """Events whose type matches the glob become runs of the app, in order.

        `where` is a CEL predicate, `input` names recipes such as `$.payload.price`. Without an id
        it is named after the app and the glob. One that is there is changed. Its runs go to that
        `pool`, or to the app's own if it is declared in this process.
        """
        new = new_subscription(
            event_type_glob,
            app,
            subscription_id=subscription_id,
            drainer=drainer,
            where=where,
            input=input,
            enabled=enabled,
            awaits_end=awaits_end,
            pool=pool or pool_of(DECLARED_APPS.apps.get(app)),
        )
        return await self._operations.ledger.put_subscription(new)

    async def unsubscribe_events(self, subscription_id: str) -> bool:
        """Remove a subscription; False if there was none. The runs it has made go on."""
        return await self._operations.ledger.delete_subscription(subscription_id)

    async def event_subscriptions(self, drainer: str = "") -> list[EventSubscription]:
        """By id, of one drainer or of all."""
        return await self._operations.ledger.list_subscriptions(drainer)

    async def drain(
        self, drainer: str = DEFAULT_DRAINER, *, limit: int = 0, await_s: float | None = None
    ) -> DrainReport:
        """One pass: dispatch the events after the cursor in order, at most `limit` of them, and
        wait for a run's end at most so long."""
        return await self._operations.ledger.drain(drainer, limit=limit, await_s=await_s)

    async def drainers(self) -> list[DrainerState]:
        """By id, with how they are doing."""
        return await self._operations.ledger.list_drainers()

    async def skip_event(
        self, drainer: str, event_id: str, *, reason: str, by: str = ""
    ) -> DrainerState:
        """Move past the event that a drainer is halted on, and no other."""
        return await self._operations.ledger.skip(drainer, event_id, reason=reason, by=by)

    async def resume_drainer(self, drainer: str = DEFAULT_DRAINER, *, by: str = "") -> DrainerState:
        """Have a halted drainer try its event again now."""
        return await self._operations.ledger.resume(drainer, by=by)
