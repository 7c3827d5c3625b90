"""The life of a subscription: registered, moved from state to state, deleted.

Repeating what holds already changes nothing and leaves no entry. Anything else is an entry, and
everybody who listens or verifies for a subscription learns of it by following those.
"""

import hashlib
from base64 import b32hexencode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from tape.errors import InvalidArgument, NotFound, TooLarge, WrongState
from tape.model.entry import NO_TRACE, EntryDraft, Kind, Trace
from tape.model.hold import is_held
from tape.model.move import Decision, Need, Reading, RowChange, State, delete, save
from tape.model.names import check_name
from tape.model.run_write import raw
from tape.model.subject import check_length
from tape.model.subjects import subscription as subscription_subject
from tape.model.subscription import (
    GATEWAY_PATHS,
    LISTENERS,
    SUBSCRIPTION_REVISIONS,
    SUBSCRIPTIONS,
    GatewayPath,
    Listener,
    Subscription,
    SubscriptionRevision,
    SubscriptionState,
    SubscriptionVerb,
)
from tape.settings import Limits

LONGEST_VERB: Final = "message_directives_applied"
PATH: Final = "subscriptions/"

REGISTERED, ACTIVE, PAUSED, DRAINING, DEACTIVATED = SubscriptionState
IDLE: Final = frozenset({REGISTERED, DEACTIVATED})
"""Nothing is fetched or accepted, and nothing is in hand."""


class _Step(NamedTuple):
    """What a verb leads to, from where, and the word for it in the journal."""

    to: SubscriptionState
    may_leave: frozenset[SubscriptionState]
    word: str


_STEPS: Final = {
    SubscriptionVerb.ACTIVATE: _Step(ACTIVE, IDLE, "activated"),
    SubscriptionVerb.PAUSE: _Step(PAUSED, frozenset({ACTIVE}), "paused"),
    SubscriptionVerb.RESUME: _Step(ACTIVE, frozenset({PAUSED}), "resumed"),
    SubscriptionVerb.DRAIN: _Step(DRAINING, frozenset({ACTIVE, PAUSED}), "draining"),
    SubscriptionVerb.DEACTIVATE: _Step(
        DEACTIVATED, frozenset({ACTIVE, PAUSED, DRAINING}), "deactivated"
    ),
}


class NewSubscription(NamedTuple):
    """A document that was read and found in order; `document_json` is its canonical form."""

    name: str
    source: str
    mode: str
    document_json: str
    activation: str = ""
    cadence: str = ""
    gateway_path: str = ""
    target: str = ""
    listener_pool: str = ""

    @property
    def path(self) -> str:
        return PATH + self.name

    @property
    def digest(self) -> str:
        """Equal documents have equal ones."""
        found = hashlib.sha256(self.document_json.encode()).digest()[:20]
        return b32hexencode(found).decode().lower()

    def checked(self, limits: Limits) -> "NewSubscription":
        check_name(self.name, limits, field="metadata.name", required=True)
        check_name(self.gateway_path, limits, field="spec.ingress.gateway_path")
        try:
            check_length(subscription_subject(LONGEST_VERB, self.name), limits)
        except TooLarge as fault:
            raise TooLarge(f"is too long: {fault}", field="metadata.name") from None
        return self


class Registration(NamedTuple):
    """The subscription as it is now, whether there was none, and whether this is a new revision.

    None where something is left of one by that name that was deleted: it must go first, or its
    messages would be taken for those of the new one.
    """

    subscription: Subscription | None
    is_new: bool = False
    is_changed: bool = False


def find_subscription(state: Reading, name: str) -> Subscription:
    found = state.get(SUBSCRIPTIONS, name)
    if found is None:
        raise NotFound(f"no subscription {name!r}")
    return found


def find_listener(state: Reading, name: str) -> Listener:
    return state.get(LISTENERS, name) or Listener(name)


def subscription_entry(
    event_id: str, word: str, name: str, payload: Mapping[str, Any], trace: Trace = NO_TRACE
) -> EntryDraft:
    """`word` is a verb of an entry, as `activated` or `message_deduplicated`."""
    return EntryDraft(
        event_id,
        Kind.SUBSCRIPTION.value,
        subscription_subject(word, name),
        orjson.dumps(payload).decode(),
        trace_id=trace.trace_id,
        span_id=trace.span_id,
        parent_span_id=trace.parent_span_id,
    )


class RegisterSubscription:
    """Add a subscription, or a revision of one that is there; never its state."""

    __slots__ = ("_event_id", "_new", "weight")

    def __init__(self, new: NewSubscription, event_id: str, limits: Limits) -> None:
        self._new = new.checked(limits)
        self._event_id = event_id
        self.weight = 1024 + 2 * len(new.document_json)

    def needs(self) -> Iterable[Need]:
        yield Need(SUBSCRIPTIONS, self._new.name)
        yield Need(LISTENERS, self._new.name)
        if self._new.gateway_path:
            yield Need(GATEWAY_PATHS, self._new.gateway_path)

    def decide(self, state: State) -> Decision[Registration]:
        new = self._new
        before = state.get(SUBSCRIPTIONS, new.name)
        if before is None and state.get(LISTENERS, new.name) is not None:
            unfinished = Registration(None)
            return Decision(lambda _place: unfinished)
        if before is not None and before.digest == new.digest:
            known = Registration(before)
            return Decision(lambda _place: known)
        self._check(state, before)
        now = Subscription(
            name=new.name,
            path=new.path,
            state=before.state if before else REGISTERED.value,
            revision=before.revision + 1 if before else 1,
            digest=new.digest,
            source=new.source,
            mode=new.mode,
            activation=new.activation,
            cadence=new.cadence,
            gateway_path=new.gateway_path,
            target=new.target,
            listener_pool=new.listener_pool,
            created_at_ms=before.created_at_ms if before else state.now_ms,
            changed_at_ms=state.now_ms,
        )
        registered = Registration(now, is_new=before is None, is_changed=True)
        payload = {
            "name": new.name,
            "revision": now.revision,
            "state": now.state,
            "document": raw(new.document_json),
        }
        entry = subscription_entry(self._event_id, "registered", new.name, payload)
        return Decision(lambda _place: registered, [entry], self._changes(before, now))

    def _check(self, state: State, before: Subscription | None) -> None:
        new = self._new
        if before is not None and before.mode != new.mode and before.state not in IDLE:
            raise WrongState(
                f"subscription {new.name!r} is {before.state}: deactivate it before its mode "
                f"changes from {before.mode} to {new.mode}",
                state=before.state,
            )
        taken = state.get(GATEWAY_PATHS, new.gateway_path) if new.gateway_path else None
        if taken is not None and taken.name != new.name:
            raise InvalidArgument(
                f"{new.gateway_path!r} belongs to the subscription {taken.name!r}: choose another",
                field="spec.ingress.gateway_path",
            )

    def _changes(self, before: Subscription | None, now: Subscription) -> list[RowChange]:
        document = self._new.document_json
        revision = SubscriptionRevision(now.name, now.revision, document, now.changed_at_ms)
        changes = [save(SUBSCRIPTIONS, now), save(SUBSCRIPTION_REVISIONS, revision)]
        if before is None:
            # A token of a namesake that was deleted must never be good again.
            changes.append(save(LISTENERS, Listener(now.name, fencing_token=now.created_at_ms)))
        elif before.gateway_path not in ("", now.gateway_path):
            changes.append(delete(GATEWAY_PATHS, before.gateway_path))
        if now.gateway_path:
            changes.append(save(GATEWAY_PATHS, GatewayPath(now.gateway_path, now.name)))
        return changes


class MoveSubscription:
    """Activate, pause, resume, drain or deactivate."""

    __slots__ = ("_ids", "_name", "_verb", "weight")

    def __init__(
        self, name: str, verb: SubscriptionVerb, ids: Sequence[str], limits: Limits
    ) -> None:
        """`ids` are two."""
        self._name = check_name(name, limits, field="name", required=True)
        self._verb = verb
        self._ids = ids
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(SUBSCRIPTIONS, self._name)
        yield Need(LISTENERS, self._name)

    def decide(self, state: State) -> Decision[Subscription]:
        subscription = find_subscription(state, self._name)
        step = _STEPS[self._verb]
        if subscription.state == step.to or (
            step.to is DRAINING and subscription.state == DEACTIVATED
        ):
            return Decision(lambda _place: subscription)
        if subscription.state not in step.may_leave:
            raise WrongState(
                f"subscription {self._name!r} is {subscription.state}: to {self._verb.value} it, "
                f"it must be {' or '.join(sorted(step.may_leave))}",
                state=subscription.state,
            )
        listener = find_listener(state, self._name)
        moved = _moved(subscription, step.to, state.now_ms)
        entries = [_state_entry(self._ids[0], step.word, subscription, moved)]
        changes = [save(SUBSCRIPTIONS, moved)]
        if step.to is DRAINING and not is_held(listener, state.now_ms):
            moved, entry, changes = deactivated(moved, self._ids[1], state.now_ms)
            entries.append(entry)
        if self._verb is SubscriptionVerb.ACTIVATE:
            changes.append(save(LISTENERS, listener._replace(due_at_ms=0, last_error="")))
        return Decision(lambda _place: moved, entries, changes)


def deactivated(
    subscription: Subscription, event_id: str, now_ms: int
) -> tuple[Subscription, EntryDraft, list[RowChange]]:
    """What is left of one that drains once nothing of it is in hand."""
    moved = _moved(subscription, DEACTIVATED, now_ms)
    entry = _state_entry(event_id, "deactivated", subscription, moved)
    return moved, entry, [save(SUBSCRIPTIONS, moved)]


def paused(
    subscription: Subscription, because: str, event_id: str, now_ms: int
) -> tuple[Subscription, EntryDraft, list[RowChange]]:
    """An active one that its listener pauses, because its source has refused to work."""
    moved = _moved(subscription, PAUSED, now_ms)
    entry = _state_entry(event_id, "paused", subscription, moved, by="listener", because=because)
    return moved, entry, [save(SUBSCRIPTIONS, moved)]


class DeleteSubscription:
    """Remove one that is not in use, because it was deactivated or never activated; False if there
    is none.

    Its listener's row stays until everything else of it is gone, which is too much for one move.
    """

    __slots__ = ("_event_id", "_name", "weight")

    def __init__(self, name: str, event_id: str, limits: Limits) -> None:
        self._name = check_name(name, limits, field="name", required=True)
        self._event_id = event_id
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(SUBSCRIPTIONS, self._name)

    def decide(self, state: State) -> Decision[bool]:
        subscription = state.get(SUBSCRIPTIONS, self._name)
        if subscription is None:
            return Decision(lambda _place: False)
        if subscription.state not in IDLE:
            raise WrongState(
                f"subscription {self._name!r} is {subscription.state}: deactivate it first",
                state=subscription.state,
            )
        payload = {
            "name": self._name,
            "revision": subscription.revision,
            "before": subscription.state,
        }
        entry = subscription_entry(self._event_id, "deleted", self._name, payload)
        changes = [delete(SUBSCRIPTIONS, self._name)]
        if subscription.gateway_path:
            changes.append(delete(GATEWAY_PATHS, subscription.gateway_path))
        return Decision(lambda _place: True, [entry], changes)


def _moved(subscription: Subscription, to: SubscriptionState, now_ms: int) -> Subscription:
    return subscription._replace(state=to.value, changed_at_ms=now_ms)


def _state_entry(
    event_id: str, word: str, before: Subscription, now: Subscription, **details: str
) -> EntryDraft:
    payload = {
        "name": now.name,
        "revision": now.revision,
        "state": now.state,
        "before": before.state,
        **details,
    }
    return subscription_entry(event_id, word, now.name, payload)
