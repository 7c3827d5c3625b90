"""What a client says about event subscriptions and drainers: a part of its face."""

from collections.abc import Mapping

from tape.bus import Operations
from tape.ledger.declare import new_subscription, pool_of
from tape.model.drainer import DrainerState, DrainReport
from tape.model.event_subscription import DEFAULT_DRAINER, EventSubscription
from tape.runs.declare import DECLARED_APPS


class LedgerMethods:
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
        """Run the app for each event whose type matches the glob, in order.

        `where` is a CEL predicate; `input` maps names to recipes such as `$.payload.price`. Without
        an id the subscription is named after the app and the glob. If it exists, it is updated. Its
        runs go to `pool`, or to the app's own pool if the app is declared in this process.
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
        return await self._operations.ledger.put_event_subscription(new)

    async def unsubscribe_events(self, subscription_id: str) -> bool:
        """Remove a subscription. Returns False if it does not exist. The runs that it started
        continue.
        """
        return await self._operations.ledger.delete_event_subscription(subscription_id)

    async def event_subscriptions(self, drainer: str = "") -> list[EventSubscription]:
        """Return the subscriptions of one drainer, or of all, by id."""
        return await self._operations.ledger.list_event_subscriptions(drainer)

    async def drain(
        self, drainer: str = DEFAULT_DRAINER, *, limit: int = 0, await_s: float | None = None
    ) -> DrainReport:
        """Make one pass: dispatch at most `limit` events after the cursor, in order.

        `await_s` is how long the pass waits for the end of a run.
        """
        return await self._operations.ledger.drain(drainer, limit=limit, await_s=await_s)

    async def drainers(self) -> list[DrainerState]:
        """Return all drainers with their state, by id."""
        return await self._operations.ledger.list_drainers()

    async def skip_event(
        self, drainer: str, event_id: str, *, reason: str, by: str = ""
    ) -> DrainerState:
        """Move a drainer past the event at which it is halted or for whose run it waits, and no
        other.
        """
        return await self._operations.ledger.skip(drainer, event_id, reason=reason, by=by)

    async def resume_drainer(self, drainer: str = DEFAULT_DRAINER, *, by: str = "") -> DrainerState:
        """Let a halted drainer retry its event now."""
        return await self._operations.ledger.resume(drainer, by=by)
