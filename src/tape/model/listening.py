"""The work of a listener besides accepting: its hold, its rate and its cadence.

One listener works for a subscription at a time, by a hold on the listener's row (`hold`). It works
by one revision until nothing of that is in hand, whatever is registered meanwhile. A subscription
that drains is deactivated when its listener lets go, or when it is found that nobody's hold is
alive: then nothing is in hand.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from tape.errors import InvalidArgument
from tape.model.hold import check_held, check_ttl, granted, is_held, let_go, renewed
from tape.model.move import Decision, Need, Reading, RowChange, State, save
from tape.model.names import check_name
from tape.model.rate import CATCH_UP_US, allowed_starts, free_after_idling, free_by_rate
from tape.model.run_write import clipped
from tape.model.subscription import (
    LISTENERS,
    PASSED_POSITIONS,
    SUBSCRIPTIONS,
    Listener,
    PassedPosition,
    Subscription,
    SubscriptionState,
)
from tape.model.subscription_moves import (
    IDLE,
    deactivated,
    find_listener,
    find_subscription,
    paused,
    subscription_entry,
)
from tape.settings import Limits

NextDue = Callable[[str, int], int]
"""When a cadence is due next, strictly after a moment."""
MOST_PASSED: Final = 10_000
"""As many origins one report may name."""
SAID_AGAIN_MS: Final = 3_600_000
"""How old what was reported of an origin may get before the same is noted again."""
UNTHROTTLED_MS: Final = 10_000
"""So long nothing may have been held up for a rate to count as no longer reached."""
MOST_RESERVED: Final = 100_000


class HoldSubscription(NamedTuple):
    """Take the lease (`fencing_token` 0), renew it or let go of it, and report what was done since.

    `fetched` is added to the count; `in_flight` is how much is in hand, and nothing is being
    fetched, where it is 0. `backlog` of -1 is not known. `passed` are positions, by origin, up to
    which the source delivers nothing again, -1 where it may deliver everything. Whoever lets go
    because the source has `refused` the login or the settings leaves a paused subscription behind:
    the next one would be refused, too.
    `revision` is the one that is worked by, which the listener's row need not have any more; 0 is
    that of the row.
    """

    name: str
    owner: str
    ttl_ms: int
    fencing_token: int = 0
    letting_go: bool = False
    fetched: int = 0
    in_flight: int = 0
    backlog: int = -1
    last_error: str = ""
    passed: tuple[tuple[str, int], ...] = ()
    refused: bool = False
    revision: int = 0


class HoldAnswer(NamedTuple):
    """The rows as they are, and whether their holder may listen."""

    is_granted: bool
    subscription: Subscription
    listener: Listener
    now_ms: int


class ReservedDispatches(NamedTuple):
    """How many messages may be fetched now; if fewer than asked for, when to ask again."""

    granted: int
    again_in_ms: int


def held_listener(state: Reading, name: str, fencing_token: int) -> Listener:
    """The listener's row, if this is the token that its lease was last granted with."""
    listener = state.get(LISTENERS, name)
    return check_held(listener, fencing_token, what=f"subscription {name!r}", who="listener")


class HoldListener:
    """Take the lease, renew it or let go of it, and note what its holder has done."""

    __slots__ = ("_event_id", "_next_due", "_reader", "_request", "_states", "weight")

    def __init__(
        self,
        request: HoldSubscription,
        event_id: str,
        limits: Limits,
        *,
        next_due: NextDue,
        reader: str = "",
        states: Collection[SubscriptionState] = (SubscriptionState.ACTIVE,),
    ) -> None:
        """It may be taken in one of `states`. `reader` is whose the positions are, as in
        `PassedPosition`."""
        check_name(request.name, limits, field="name", required=True)
        check_name(request.owner, limits, field="lease_owner", required=not request.fencing_token)
        check_ttl(request.ttl_ms)
        for field, least in (("fetched", 0), ("in_flight", 0), ("backlog", -1), ("revision", 0)):
            if getattr(request, field) < least:
                raise InvalidArgument(f"must not be below {least}", field=field)
        if len(request.passed) > MOST_PASSED:
            raise InvalidArgument(f"{MOST_PASSED} origins at most", field="passed")
        if any(position < -1 for _origin, position in request.passed):
            raise InvalidArgument("a position must not be below -1", field="passed")
        if request.refused and not (request.letting_go and request.fencing_token):
            raise InvalidArgument("goes with letting_go, by who holds the lease", field="refused")
        self._request = request._replace(last_error=clipped(request.last_error, limits))
        self._event_id = event_id
        self._next_due = next_due
        self._reader = reader
        self._states = states
        self.weight = 512 + 64 * len(request.passed)

    def needs(self) -> Iterable[Need]:
        name = self._request.name
        yield Need(SUBSCRIPTIONS, name)
        yield Need(LISTENERS, name)
        for origin, _position in self._request.passed:
            yield Need(PASSED_POSITIONS, (name, origin))

    def decide(self, state: State) -> Decision[HoldAnswer]:
        subscription = find_subscription(state, self._request.name)
        if not self._request.fencing_token:
            return self._acquire(state, subscription)
        return self._report(state, subscription)

    def _acquire(self, state: State, subscription: Subscription) -> Decision[HoldAnswer]:
        request, now_ms = self._request, state.now_ms
        listener = find_listener(state, request.name)
        if is_held(listener, now_ms):
            refused = HoldAnswer(False, subscription, listener, now_ms)
            return Decision(lambda _place: refused)
        if subscription.state == SubscriptionState.DRAINING:
            return self._drained(subscription, let_go(listener)._replace(in_flight=0), now_ms)
        if subscription.mode != "pull" or subscription.state not in self._states:
            refused = HoldAnswer(False, subscription, listener, now_ms)
            return Decision(lambda _place: refused)
        listener = granted(listener, request.owner, request.ttl_ms, now_ms)
        listener = self._working_by(subscription, listener._replace(in_flight=0), now_ms)
        answer = HoldAnswer(True, subscription, listener, now_ms)
        return Decision(lambda _place: answer, changes=[save(LISTENERS, listener)])

    def _report(self, state: State, subscription: Subscription) -> Decision[HoldAnswer]:
        request, now_ms = self._request, state.now_ms
        listener = held_listener(state, request.name, request.fencing_token)._replace(
            in_flight=request.in_flight, backlog=request.backlog, last_error=request.last_error
        )
        listener = listener._replace(fetched=listener.fetched + request.fetched)
        is_over = subscription.state in IDLE or subscription.mode != "pull"
        if request.letting_go or is_over:
            listener = let_go(listener)._replace(in_flight=0)
            if subscription.state == SubscriptionState.DRAINING:
                return self._drained(subscription, listener, now_ms, self._passed(state))
            if request.refused and self._is_of(subscription, listener):
                return self._paused(state, subscription, listener)
        else:
            listener = renewed(listener, request.ttl_ms, now_ms)
            if not request.in_flight:
                listener = self._working_by(subscription, listener, now_ms)
        answer = HoldAnswer(bool(listener.lease_owner), subscription, listener, now_ms)
        changes = [save(LISTENERS, listener), *self._passed(state)]
        return Decision(lambda _place: answer, changes=changes)

    def _drained(
        self,
        subscription: Subscription,
        listener: Listener,
        now_ms: int,
        passed: Iterable[RowChange] = (),
    ) -> Decision[HoldAnswer]:
        subscription, entry, changes = deactivated(subscription, self._event_id, now_ms)
        answer = HoldAnswer(False, subscription, listener, now_ms)
        return Decision(
            lambda _place: answer, [entry], [*changes, save(LISTENERS, listener), *passed]
        )

    def _is_of(self, subscription: Subscription, listener: Listener) -> bool:
        """Whether it was the newest revision that the source has refused, and still is active. By
        another one the source may work."""
        is_active = subscription.state == SubscriptionState.ACTIVE
        return is_active and (self._request.revision or listener.revision) == subscription.revision

    def _paused(
        self, state: State, subscription: Subscription, listener: Listener
    ) -> Decision[HoldAnswer]:
        because = self._request.last_error
        subscription, entry, changes = paused(subscription, because, self._event_id, state.now_ms)
        answer = HoldAnswer(False, subscription, listener, state.now_ms)
        changes += [save(LISTENERS, listener), *self._passed(state)]
        return Decision(lambda _place: answer, [entry], changes)

    def _working_by(self, subscription: Subscription, listener: Listener, now_ms: int) -> Listener:
        """The listener by the newest revision, with the moment at which that one fetches."""
        if listener.revision != subscription.revision:
            listener = listener._replace(revision=subscription.revision, due_at_ms=0)
        if subscription.activation == "scheduled" and not listener.due_at_ms:
            due_at_ms = self._next_due(subscription.cadence, now_ms)
            listener = listener._replace(due_at_ms=due_at_ms)
        return listener

    def _passed(self, state: State) -> list[RowChange]:
        """What is new of what was reported. A position may go back: a consumer may have been made
        again under its name, or a group set back."""
        changes = []
        for origin, reported in dict(self._request.passed).items():
            known = state.get(PASSED_POSITIONS, (self._request.name, origin))
            row = PassedPosition(self._request.name, origin, self._reader, reported, state.now_ms)
            if (
                known is not None
                and known._replace(reported_at_ms=row.reported_at_ms) == row
                and (state.now_ms - known.reported_at_ms < SAID_AGAIN_MS)
            ):
                continue
            changes.append(save(PASSED_POSITIONS, row))
        return changes


class EndDraining:
    """Deactivate a subscription that drains and that nobody holds; whether it was one."""

    __slots__ = ("_event_id", "_name", "weight")

    def __init__(self, name: str, event_id: str, limits: Limits) -> None:
        self._name = check_name(name, limits, field="name", required=True)
        self._event_id = event_id
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(SUBSCRIPTIONS, self._name)
        yield Need(LISTENERS, self._name)

    def decide(self, state: State) -> Decision[bool]:
        subscription = state.get(SUBSCRIPTIONS, self._name)
        listener = state.get(LISTENERS, self._name)
        drains = subscription is not None and subscription.state == SubscriptionState.DRAINING
        if subscription is None or not drains or (listener and is_held(listener, state.now_ms)):
            return Decision(lambda _place: False)
        _now, entry, changes = deactivated(subscription, self._event_id, state.now_ms)
        if listener is not None:
            changes.append(save(LISTENERS, let_go(listener)._replace(in_flight=0)))
        return Decision(lambda _place: True, [entry], changes)


class ReserveDispatches:
    """Take from the rate what it allows now, over everybody who asks.

    The journal is told when the rate holds something up that did not before.
    """

    __slots__ = (
        "_event_id", "_fencing_token", "_held_up", "_most", "_name", "_per_s", "_unused", "weight",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        fencing_token: int,
        event_id: str,
        limits: Limits,
        *,
        most: int,
        per_s: float,
        unused: int = 0,
        held_up: bool = False,
    ) -> None:
        """`per_s` of 0 is no limit. `unused` of what was granted before comes back. `held_up` is
        whether there would have been more than that: then something is held up, though a rate that
        is faster than the turns of who asks always grants something."""
        self._name = check_name(name, limits, field="name", required=True)
        for field, number in (("most", most), ("unused", unused)):
            if not 0 <= number <= MOST_RESERVED:
                raise InvalidArgument(f"{number} is not in 0..{MOST_RESERVED}", field=field)
        self._fencing_token = fencing_token
        self._most = most
        self._per_s = per_s
        self._unused = unused
        self._held_up = held_up
        self._event_id = event_id
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(SUBSCRIPTIONS, self._name)
        yield Need(LISTENERS, self._name)

    def decide(self, state: State) -> Decision[ReservedDispatches]:
        subscription = find_subscription(state, self._name)
        before = writing_listener(state, subscription, self._fencing_token)
        if not self._per_s or not self._most:
            return Decision(lambda _place: ReservedDispatches(self._most, 0))
        now_ms = state.now_ms
        reserved_us = free_by_rate(self._per_s, before.free_at_us, now_ms * 1000)
        free_us = reserved_us - round(self._unused * 1_000_000 / self._per_s)
        if self._unused or free_us < now_ms * 1000 - CATCH_UP_US:
            free_us = free_after_idling(self._per_s, free_us, now_ms * 1000)
        starts = allowed_starts(self._per_s, free_us, now_ms * 1000)
        taken = min(self._most, starts.most)
        free_us = starts.free_us_after(taken)
        again_in_ms = 0 if taken == self._most else max(1, -(-free_us // 1000) - now_ms)
        reserved = ReservedDispatches(taken, again_in_ms)
        is_new = taken or self._unused or reserved_us != before.free_at_us
        listener = before._replace(free_at_us=free_us) if is_new else before
        entries = []
        if taken and not self._held_up:
            if now_ms - before.throttled_at_ms >= UNTHROTTLED_MS:
                listener = listener._replace(throttled_at_ms=0)
        else:
            if now_ms - before.throttled_at_ms >= UNTHROTTLED_MS:
                payload = {"per_s": self._per_s, "again_in_ms": again_in_ms}
                entries = [subscription_entry(self._event_id, "rate_limited", self._name, payload)]
            listener = listener._replace(throttled_at_ms=now_ms)
        changes = [save(LISTENERS, listener)] if listener != before else []
        return Decision(lambda _place: reserved, entries, changes)


class TickSubscription:
    """Note that a scheduled fetch is done; when the next one is due.

    Whoever names another moment than the one that is due was slower than somebody else, and is told
    what is due by now.
    """

    __slots__ = ("_due_at_ms", "_fencing_token", "_name", "_next_due", "weight")

    def __init__(
        self,
        name: str,
        fencing_token: int,
        due_at_ms: int,
        limits: Limits,
        *,
        next_due: Callable[[int], int],
    ) -> None:
        """`next_due` is by the cadence of the revision that the listener works by."""
        self._name = check_name(name, limits, field="name", required=True)
        self._fencing_token = fencing_token
        self._due_at_ms = due_at_ms
        self._next_due = next_due
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(SUBSCRIPTIONS, self._name)
        yield Need(LISTENERS, self._name)

    def decide(self, state: State) -> Decision[int]:
        find_subscription(state, self._name)
        listener = held_listener(state, self._name, self._fencing_token)
        if listener.due_at_ms != self._due_at_ms:
            due_at_ms = listener.due_at_ms
            return Decision(lambda _place: due_at_ms)
        due = self._next_due(max(state.now_ms, self._due_at_ms))
        ticked = listener._replace(due_at_ms=due)
        return Decision(lambda _place: due, changes=[save(LISTENERS, ticked)])


def writing_listener(state: Reading, subscription: Subscription, fencing_token: int) -> Listener:
    """The listener's row for whoever may write under this token: the holder of a pull, and with the
    token 0 whoever takes deliveries of a push."""
    if subscription.mode == "pull":
        return held_listener(state, subscription.name, fencing_token)
    if fencing_token:
        raise InvalidArgument(
            f"subscription {subscription.name!r} is pushed to: nobody holds it, the token is 0",
            field="fencing_token",
        )
    return find_listener(state, subscription.name)
