"""An event subscription: events whose type matches a glob become runs of an app, in order.

`drainer_id` names the drainer that dispatches them. `event_type_glob` is a glob (`event_glob`),
`filter_expr` is CEL, empty for all, and `input_mapper` is a JSON object of input names and recipes
(`input_mapper`), empty for the whole event. `pool` is where its runs go; empty is the default pool.
Every change of a subscription is an entry.
"""

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from tape.model.entry import EntryDraft, Kind
from tape.model.event_glob import parse_glob
from tape.model.input_mapper import parse_mapper
from tape.model.move import Decision, Need, State, Table, delete, save
from tape.model.names import check_name
from tape.model.run import RunName
from tape.model.subject import check_length
from tape.model.subjects import drainer_event_subscription, run_status
from tape.settings import Limits

DEFAULT_DRAINER = "workflow_runner"
RUN_USER = "event"
"""The user of the runs that events make; their session is the subscription."""


class EventSubscription(NamedTuple):
    """A subscription as it is stored.

    With `awaits_end` an event counts as dispatched when its run has succeeded; without it, when the
    run has started.
    """

    subscription_id: str
    drainer_id: str
    event_type_glob: str
    workflow_type: str
    input_mapper: str
    filter_expr: str
    enabled: bool
    awaits_end: bool
    created_at_ms: int
    pool: str = ""


class NewEventSubscription(NamedTuple):
    """A subscription as it is declared; `workflow_type` is the name of an app."""

    subscription_id: str
    event_type_glob: str
    workflow_type: str
    drainer_id: str = DEFAULT_DRAINER
    input_mapper: str = ""
    filter_expr: str = ""
    enabled: bool = True
    awaits_end: bool = True
    pool: str = ""

    def checked(self, limits: Limits) -> "NewEventSubscription":
        """Refuse what could never work; the filter is judged by who knows predicates."""
        for field in ("subscription_id", "workflow_type", "drainer_id"):
            check_name(getattr(self, field), limits, field=field, required=True)
        check_name(self.pool, limits, field="pool")
        parse_glob(self.event_type_glob, limits)
        parse_mapper(self.input_mapper, limits)
        check_length(
            drainer_event_subscription("unsubscribed", self.drainer_id, self.subscription_id),
            limits,
        )
        name = RunName(self.workflow_type, RUN_USER, self.subscription_id, "")
        check_length(run_status("cancel_requested", *name[:3], name.run_id), limits)
        return self


EVENT_SUBSCRIPTIONS = Table(
    "event_subscriptions", EventSubscription, lambda row: row.subscription_id
)


class PutEventSubscription:
    """Add a subscription, or change one that is there. What changes nothing leaves no entry."""

    __slots__ = ("_event_id", "_new", "weight")

    def __init__(self, new: NewEventSubscription, event_id: str, limits: Limits) -> None:
        self._new = new.checked(limits)
        self._event_id = event_id
        self.weight = 1024 + len(new.input_mapper)

    def needs(self) -> Iterable[Need]:
        yield Need(EVENT_SUBSCRIPTIONS, self._new.subscription_id)

    def decide(self, state: State) -> Decision[EventSubscription]:
        new = self._new
        before = state.get(EVENT_SUBSCRIPTIONS, new.subscription_id)
        now = EventSubscription(
            **new._asdict(), created_at_ms=before.created_at_ms if before else state.now_ms
        )
        if now == before:
            return Decision(lambda _place: now)
        draft = _draft(self._event_id, "subscribed", now)
        return Decision(lambda _place: now, [draft], [save(EVENT_SUBSCRIPTIONS, now)])


class DeleteEventSubscription:
    """Remove a subscription; False if there is none. The runs it has made go on."""

    __slots__ = ("_event_id", "_subscription_id", "weight")

    def __init__(self, subscription_id: str, event_id: str, limits: Limits) -> None:
        self._subscription_id = check_name(
            subscription_id, limits, field="subscription_id", required=True
        )
        self._event_id = event_id
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(EVENT_SUBSCRIPTIONS, self._subscription_id)

    def decide(self, state: State) -> Decision[bool]:
        before = state.get(EVENT_SUBSCRIPTIONS, self._subscription_id)
        if before is None:
            return Decision(lambda _place: False)
        draft = _draft(self._event_id, "unsubscribed", before)
        gone = delete(EVENT_SUBSCRIPTIONS, self._subscription_id)
        return Decision(lambda _place: True, [draft], [gone])


def _draft(event_id: str, verb: str, row: EventSubscription) -> EntryDraft:
    subject = drainer_event_subscription(verb, row.drainer_id, row.subscription_id)
    payload = orjson.dumps(row._asdict()).decode()
    return EntryDraft(event_id, Kind.DRAINER.value, subject, payload)
