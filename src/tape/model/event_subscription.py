"""An event subscription: events whose type matches a glob become runs of an app, in order.

`drainer_id` names the drainer that dispatches them. `filter_expr` is CEL, empty for all.
`input_mapper` is a JSON object of input names and recipes, empty for the whole event:

| recipe | gives |
|---|---|
| `$.payload.price.amount`, `$.payload.lines[0].sku` | a part of the payload |
| `$.entity_id`, `$.event_type`, `$.occurred_at_ms`, … | a field of the event |
| `literal:foo` | the text `foo` |
"""

from typing import NamedTuple

from tape.model.move import Table

DEFAULT_DRAINER = "workflow_runner"


class EventSubscription(NamedTuple):
    """As it is kept. With `awaits_end` an event counts as dispatched when its run has ended well;
    without, when the run has begun."""

    subscription_id: str
    drainer_id: str
    event_type_glob: str
    workflow_type: str
    input_mapper: str
    filter_expr: str
    enabled: bool
    awaits_end: bool
    created_at_ms: int


class NewSubscription(NamedTuple):
    """A subscription as it is declared; `workflow_type` is the name of an app."""

    subscription_id: str
    event_type_glob: str
    workflow_type: str
    drainer_id: str = DEFAULT_DRAINER
    input_mapper: str = ""
    filter_expr: str = ""
    enabled: bool = True
    awaits_end: bool = True


SUBSCRIPTIONS = Table("event_subscriptions", EventSubscription, lambda row: row.subscription_id)
