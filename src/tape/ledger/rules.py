"""Event subscriptions made ready for draining: globs, predicates and recipes, compiled once.

Pure: it decides which subscriptions an event is for, and what run it becomes.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from tape.journal.follow import envelope
from tape.model.entry import Entry, Trace
from tape.model.event_glob import Glob, parse_glob
from tape.model.event_subscription import RUN_USER, EventSubscription
from tape.model.input_mapper import Mapper, parse_mapper
from tape.model.lease import NewRun
from tape.model.run import RunName
from tape.ports.predicate import EntryPredicate
from tape.predicates import STORED_LIMITS, check
from tape.settings import KIB, Limits

TYPES_REMEMBERED = 10_000


@lru_cache(10_000)
def _checked(expression: str) -> EntryPredicate:
    return check(expression, limits=STORED_LIMITS)


class EventSubscriptionRule(NamedTuple):
    """One enabled subscription."""

    subscription: EventSubscription
    glob: Glob
    predicate: EntryPredicate
    mapper: Mapper

    @classmethod
    def of(cls, subscription: EventSubscription, limits: Limits) -> "EventSubscriptionRule":
        return cls(
            subscription,
            parse_glob(subscription.event_type_glob, limits),
            _checked(subscription.filter_expr),
            parse_mapper(subscription.input_mapper, limits),
        )

    def holds(self, event: Entry) -> bool:
        """Whether the filter lets it through; PredicateError if the filter has no result."""
        if self.predicate.always_true:
            return True
        return self.predicate.evaluate(envelope(event, with_payload=True))

    def new_run(self, event: Entry, attempt: int, limits: Limits) -> NewRun:
        """What the event becomes; InvalidArgument or TooLarge if it cannot become that."""
        subscription = self.subscription
        name = RunName(
            subscription.workflow_type,
            RUN_USER,
            subscription.subscription_id,
            invocation_id(event, attempt, limits),
        )
        trace = Trace(event.trace_id, "", event.span_id or event.parent_span_id)
        new = NewRun(name, self.mapper.apply(event), subscription.pool, trace=trace)
        return new.checked(limits)


class EventSubscriptionRules:
    """The enabled subscriptions of one drainer, by id."""

    def __init__(self, subscriptions: Iterable[EventSubscription], limits: Limits) -> None:
        self._rules = [
            EventSubscriptionRule.of(row, limits) for row in subscriptions if row.enabled
        ]
        self._remembered: dict[str, list[EventSubscriptionRule]] = {}

    def of_type(self, event_type: str) -> list[EventSubscriptionRule]:
        """Those whose globs match, in the order in which they are dispatched."""
        found = self._remembered.get(event_type)
        if found is None:
            found = [rule for rule in self._rules if rule.glob.matches(event_type)]
            if len(self._remembered) >= TYPES_REMEMBERED:
                self._remembered.clear()
            self._remembered[event_type] = found
        return found


def invocation_id(event: Entry, attempt: int, limits: Limits) -> str:
    """`event:<type>:<id>`, from the second attempt on with its number behind; where that is too
    long for a name, a digest of type and id instead of them."""
    behind = f"~{attempt}" if attempt > 1 else ""
    told = f"{event.event_type}:{event.event_id}"
    if len(f"event:{told}{behind}".encode()) > limits.name_bytes:
        told = hashlib.sha256(told.encode()).hexdigest()
    return f"event:{told}{behind}"


def roomier(limits: Limits) -> Limits:
    """An input is an event with its fields, which may be a little more than an event may hold."""
    return replace(
        limits, payload_bytes=limits.payload_bytes + 64 * KIB, json_depth=limits.json_depth + 2
    )
