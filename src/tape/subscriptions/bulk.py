"""Loading a subscription's messages in bulk: accepted as a listener accepts them, under its hold.

Whoever loads holds the subscription, so no listener works for it meanwhile; it may be paused, which
keeps listeners away before and after. Each message becomes what a listener would have made of it,
and is remembered by its place: what either of them meets again is `redelivered`, and nothing more.
The rate of the subscription holds here, too.

A hold outlives whoever is killed by the length of a lease. So who finds one waits as long as it is
not renewed; if it is, its holder is alive, and is named in the refusal.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from tape.errors import Closed, InvalidArgument, NotFound, StaleLease, TapeError, WrongState
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.accept_messages import AcceptedMessage, PlannedMessage
from tape.model.hold import is_held
from tape.model.listening import HoldAnswer, HoldListener, HoldSubscription, ReserveDispatches
from tape.model.subscription import Subscription, SubscriptionState
from tape.settings import Limits
from tape.subscriptions.acceptor import Acceptor
from tape.subscriptions.cadence import next_due_ms
from tape.subscriptions.company import MOST_TOGETHER
from tape.subscriptions.revisions import ReadyRevision, Revisions

STATES: Final = (SubscriptionState.ACTIVE, SubscriptionState.PAUSED)
LOOK_S: Final = 0.5
LOST: Final = (StaleLease, NotFound, WrongState)


def refuse_unloadable(subscription: Subscription) -> None:
    """Refuse one of which nothing can be loaded as it is now."""
    name, state = subscription.name, subscription.state
    if subscription.mode != "pull":
        raise InvalidArgument(
            f"{name!r} is pushed to: there is no source to read", field="subscription"
        )
    if state not in STATES:
        raise WrongState(
            f"subscription {name!r} is {state}: activate it first, and pause it if no listener "
            "should work for it",
            state=state,
        )


def _ended(subscription: Subscription) -> WrongState | None:
    name, state = subscription.name, subscription.state
    if state in STATES:
        return None
    return WrongState(f"subscription {name!r} is {state} now: nothing more is loaded", state=state)


class BulkLoading:
    """Use it once: `begin`, `accept` as often as there is something, `end`."""

    def __init__(
        self,
        request: HoldSubscription,
        writer: Writer,
        ids: UlidFactory,
        limits: Limits,
        *,
        revisions: Revisions,
        acceptor: Acceptor,
    ) -> None:
        self._request = request
        self._writer = writer
        self._ids = ids
        self._limits = limits
        self._revisions = revisions
        self._acceptor = acceptor
        self._ready: ReadyRevision | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._lost: TapeError | None = None
        self._fetched = 0

    async def begin(self) -> ReadyRevision:
        """Take the hold; the revision that all messages are accepted by."""
        answer = await self._taken()
        name = self._request.name
        self._ready = await self._revisions.get(name, answer.listener.revision)
        self._request = self._request._replace(fencing_token=answer.listener.fencing_token)
        self._renewing = asyncio.create_task(self._renew(), name=f"tape-bulk-{name}")
        return self._ready

    async def check_revision(self) -> None:
        """WrongState once there is a newer revision: whoever goes on and on begins anew by it."""
        ready = self._of()
        now = (await self._revisions.stored(ready.spec.name)).subscription
        if now.revision != ready.revision:
            raise WrongState(
                f"subscription {now.name!r} has revision {now.revision} now, and was loaded by "
                f"revision {ready.revision} so far: start the job again to go on by the new one",
                state=now.state,
            )

    async def accept(self, planned: Sequence[PlannedMessage]) -> list[AcceptedMessage]:
        """What became of each, in order, once that is durable."""
        accepted: list[AcceptedMessage] = []
        self._fetched += len(planned)
        while len(accepted) < len(planned):
            if self._lost is not None:
                raise self._lost
            rest = planned[len(accepted) :][:MOST_TOGETHER]
            try:
                allowed = await self._allowed(len(rest))
                token = self._request.fencing_token
                accepted += await self._acceptor.accept_planned(self._of(), token, rest[:allowed])
            except StaleLease as error:
                raise await self._lost_by(error) from None
        return accepted

    async def end(self) -> None:
        """Let go of the hold."""
        if self._renewing is None:
            return
        self._ending.set()  # not cancelled: what it is reporting is counted once
        await asyncio.gather(self._renewing, return_exceptions=True)
        if self._lost is None:
            with contextlib.suppress(TapeError):  # then the hold ends by itself
                await self._hold(letting_go=True)

    def _of(self) -> ReadyRevision:
        assert self._ready is not None  # noqa: S101 - see begin
        return self._ready

    async def _taken(self) -> HoldAnswer:
        found: HoldAnswer | None = None
        while True:
            refuse_unloadable((await self._revisions.stored(self._request.name)).subscription)
            answer = await self._hold()
            if answer.is_granted:
                return answer
            now, before = answer.listener, found.listener if found else answer.listener
            if is_held(now, answer.now_ms) and (
                (now.lease_owner, now.fencing_token, now.lease_expires_at_ms)
                != (before.lease_owner, before.fencing_token, before.lease_expires_at_ms)
            ):
                raise WrongState(
                    f"subscription {self._request.name!r} is held by {now.lease_owner}, who works "
                    "for it: pause the subscription, or stop who holds it",
                    state=answer.subscription.state,
                )
            found = answer
            await asyncio.sleep(LOOK_S)

    async def _hold(self, *, letting_go: bool = False) -> HoldAnswer:
        fetched, self._fetched = self._fetched, 0
        # By one revision to the end: with nothing in hand it would change to the newest.
        request = self._request._replace(
            letting_go=letting_go, fetched=fetched, in_flight=0 if letting_go else 1
        )
        move = HoldListener(
            request, next(self._ids), self._limits, next_due=next_due_ms, states=STATES
        )
        return await self._writer.submit(move)

    async def _renew(self) -> None:
        """Until it is lost, or no longer needed."""
        every_s = self._request.ttl_ms / 3000
        while self._lost is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), every_s)
                return
            try:
                answer = await self._hold()
            except (*LOST, Closed) as error:
                self._lost = error
            except TapeError:  # the store is away: whoever accepts is told
                continue
            else:
                self._lost = _ended(answer.subscription)
                if self._lost is not None and answer.is_granted:
                    await self._hold(letting_go=True)

    async def _lost_by(self, error: TapeError) -> TapeError:
        """Why the hold is no longer good: where the subscription was deactivated, nobody has taken
        it over."""
        stored = await self._revisions.stored(self._request.name)
        self._lost = self._lost or _ended(stored.subscription) or error
        return self._lost

    async def _allowed(self, most: int) -> int:
        """How many the rate of the subscription allows, once that is any."""
        per_s = self._of().spec.dispatch_per_sec
        while per_s:
            reserved = await self._writer.submit(
                ReserveDispatches(
                    self._request.name, self._request.fencing_token, next(self._ids),
                    self._limits, most=most, per_s=per_s,
                )
            )  # fmt: skip
            if reserved.granted:
                return reserved.granted
            await asyncio.sleep(reserved.again_in_ms / 1000)
        return most
