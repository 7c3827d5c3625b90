"""Event subscriptions: which events become runs of which app."""

from typing import Annotated

import orjson
from fastapi import Query
from pydantic import Field

from tape.api.http.fields import Body, Params, PathText, Reply
from tape.api.http.routes import Routes, TheDoor
from tape.calls.role import Role
from tape.model.event_subscription import (
    DEFAULT_DRAINER,
    EventSubscription,
    NewEventSubscription,
)

routes = Routes("event-subscriptions")


class SubscriptionBody(Body):
    """`input_mapper` maps names of the app's input to recipes: `$.payload.price`, `$.entity_id`,
    `literal:foo`; without it the app gets the whole event. `filter_expr` is CEL. Runs go to `pool`,
    or to `shared` if it is empty.
    """

    event_type_glob: Annotated[str, Field(min_length=1, examples=["price.*"])]
    workflow_type: Annotated[str, Field(min_length=1, examples=["reprice"])]
    drainer_id: Annotated[str, Field(min_length=1)] = DEFAULT_DRAINER
    input_mapper: dict[str, str] = Field(default={}, examples=[{"sku": "$.entity_id"}])
    filter_expr: str = ""
    enabled: bool = True
    awaits_end: bool = True
    pool: str = ""


class SubscriptionReply(Reply):
    subscription_id: str
    drainer_id: str
    event_type_glob: str
    workflow_type: str
    input_mapper: dict[str, str]
    filter_expr: str
    enabled: bool
    awaits_end: bool
    created_at_ms: int
    pool: str

    @classmethod
    def of(cls, kept: EventSubscription) -> "SubscriptionReply":
        recipes = orjson.loads(kept.input_mapper or "{}")
        return cls(**kept._replace(input_mapper=recipes)._asdict())


class SubscriptionsReply(Reply):
    event_subscriptions: list[SubscriptionReply]


class SubscriptionsParams(Params):
    drainer_id: str = ""


class RemovedReply(Reply):
    """`deleted` is false if there was none."""

    deleted: bool


@routes.add("GET", "/api/event-subscriptions", role=Role.READ, reply=SubscriptionsReply)
async def list_event_subscriptions(
    door: TheDoor, params: Annotated[SubscriptionsParams, Query()]
) -> SubscriptionsReply:
    """List the subscriptions of one drainer, or of all, by id."""
    found = await door.operations.ledger.list_event_subscriptions(params.drainer_id)
    return SubscriptionsReply(event_subscriptions=[SubscriptionReply.of(each) for each in found])


@routes.add(
    "PUT", "/api/event-subscriptions/{subscription_id}", role=Role.WRITE, reply=SubscriptionReply
)
async def put_event_subscription(
    door: TheDoor, subscription_id: PathText, body: SubscriptionBody
) -> SubscriptionReply:
    """Add a subscription. If it exists, update it."""
    recipes = orjson.dumps(body.input_mapper).decode() if body.input_mapper else ""
    said = dict(body) | {"input_mapper": recipes}
    new = NewEventSubscription(subscription_id=subscription_id, **said)
    return SubscriptionReply.of(await door.operations.ledger.put_event_subscription(new))


@routes.add(
    "DELETE", "/api/event-subscriptions/{subscription_id}", role=Role.WRITE, reply=RemovedReply
)
async def delete_event_subscription(door: TheDoor, subscription_id: PathText) -> RemovedReply:
    """Remove a subscription; its runs continue."""
    deleted = await door.operations.ledger.delete_event_subscription(subscription_id)
    return RemovedReply(deleted=deleted)
