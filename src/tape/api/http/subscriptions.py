"""Declared subscriptions: registered, moved through their states, looked at, and helped."""

from typing import Annotated, Any, Final, Literal

from fastapi import Query, Request, Response
from pydantic import Field

from tape.api.http.door import Door
from tape.api.http.entry import fitting, json_response
from tape.api.http.event_subscriptions import RemovedReply
from tape.api.http.fields import PAGE, Body, PageSize, Params, PathText, Reply
from tape.api.http.openapi import DOCUMENT_SCHEMA
from tape.api.http.routes import JSON, OwnBody, Routes, TheDoor, kind_of
from tape.api.http.tasks import CountReply
from tape.calls.role import Role
from tape.errors import InvalidArgument
from tape.model.subscription import SubscriptionDeadLetter, SubscriptionVerb
from tape.settings.json_nodes import json_fault
from tape.subscriptions.document_reading import FIELD, RULES
from tape.subscriptions.operations import DROP, REPLAY, SubscriptionView
from tape.subscriptions.shown import letter_json, subscription_json

routes = Routes("subscriptions")

YAML: Final = "application/yaml"
_DOCUMENT: Final = OwnBody(
    {
        JSON: {"$ref": f"#/components/schemas/{DOCUMENT_SCHEMA}"},
        YAML: {"type": "string", "description": "the same, as YAML"},
    },
    RULES.most_bytes,
)
_STATES = Literal["registered", "active", "paused", "draining", "deactivated"]


class SubscriptionCountsReply(Reply):
    """Of all its listeners. `fetched` and `rejected` may lag by seconds."""

    fetched: int
    redelivered: int
    accepted: int
    deduplicated: int
    dead_lettered: int
    rejected: int
    spooled: int
    replayed: int


class CircuitReply(Reply):
    downstream: str
    state: Literal["closed", "open", "half_open"]
    since_ms: int


class SpoolReply(Reply):
    items: int
    bytes: int
    oldest_at_ms: int


class ListenerReply(Reply):
    """Who listens; `owner` is empty while nobody does."""

    owner: str
    expires_at_ms: int


class DeclaredSubscriptionReply(Reply):
    """`spec` is that of its newest revision, as it was registered. `in_flight` messages are fetched
    and not yet accepted; `backlog` wait at the source, null if it does not say."""

    name: str
    path: str
    source: str
    mode: str
    activation: str
    state: _STATES
    revision: int
    spec: dict[str, Any]
    counts: SubscriptionCountsReply
    in_flight: int
    backlog: int | None
    last_accepted_at_ms: int
    last_error: str
    circuits: list[CircuitReply]
    spool: SpoolReply
    runtime: ListenerReply


class DeclaredSubscriptionsReply(Reply):
    subscriptions: list[DeclaredSubscriptionReply]


class SubscriptionLetterReply(Reply):
    """`headers` are by their names in lower case, `body` is base64. `reason` says in a word why the
    message could not become a run, `detail` in a sentence."""

    id: str
    place: str
    message_id: str
    reason: str
    detail: str
    attempts: int
    at_ms: int
    headers: dict[str, str | list[str]]
    body: str


class SubscriptionLettersReply(Reply):
    """`after` is the id to continue after; null at the end."""

    dead_letters: list[SubscriptionLetterReply]
    after: str | None


class SubscriptionLettersParams(Params):
    limit: PageSize = PAGE
    after: str = ""


class SettleLettersBody(Body):
    """Without `ids`, all dead letters of the subscription."""

    ids: list[str] = Field(default_factory=list)


class MoveBody(Body):
    """No field is required."""


ALL_LETTERS, NOTHING = SettleLettersBody(), MoveBody()


@routes.add(
    "POST",
    "/api/subscriptions",
    role=Role.ADMIN,
    reply=DeclaredSubscriptionReply,
    responses={201: {"model": DeclaredSubscriptionReply, "description": "It is new."}},
    body=_DOCUMENT,
)
async def register_subscription(
    door: TheDoor, request: Request, response: Response
) -> DeclaredSubscriptionReply:
    """Register a document, or make a new revision of the subscription that has its path."""
    try:
        text = (await request.body()).decode()
    except UnicodeDecodeError:
        raise InvalidArgument("is not UTF-8", field=FIELD) from None
    fault = json_fault(text) if text and kind_of(request) == JSON else None
    if fault is not None:
        raise InvalidArgument(f"is not a JSON object: {fault.said}", field=FIELD, line=fault.line)
    registered = await door.operations.subscriptions.register_subscription(text)
    if registered.is_new:
        response.status_code = 201
    return _reply(registered.view)


@routes.add("GET", "/api/subscriptions", role=Role.READ, reply=DeclaredSubscriptionsReply)
async def list_subscriptions(door: TheDoor) -> DeclaredSubscriptionsReply:
    """List all subscriptions, by name."""
    views = await door.operations.subscriptions.list_subscriptions()
    return DeclaredSubscriptionsReply(subscriptions=[_reply(view) for view in views])


@routes.add(
    "GET",
    "/api/subscriptions/{name}",
    role=Role.READ,
    reply=DeclaredSubscriptionReply,
    refusals=(404,),
)
async def get_subscription(door: TheDoor, name: PathText) -> DeclaredSubscriptionReply:
    """Get one subscription."""
    return _reply(await door.operations.subscriptions.get_subscription(name))


def _add_move(verb: SubscriptionVerb, summary: str) -> None:
    async def move(
        door: TheDoor, name: PathText, _body: MoveBody = NOTHING
    ) -> DeclaredSubscriptionReply:
        return _reply(await door.operations.subscriptions.move_subscription(name, verb))

    move.__name__, move.__doc__ = f"{verb}_subscription", summary
    path = f"/api/subscriptions/{{name}}/{verb}"
    add = routes.add(
        "POST", path, role=Role.ADMIN, reply=DeclaredSubscriptionReply, refusals=(404,)
    )
    add(move)


for _verb, _summary in (
    (SubscriptionVerb.ACTIVATE, "Let listeners work for a new or deactivated subscription."),
    (SubscriptionVerb.PAUSE, "Fetch nothing more until it is resumed."),
    (SubscriptionVerb.RESUME, "Go on with a paused subscription."),
    (SubscriptionVerb.DRAIN, "Fetch nothing more, finish what is in hand, then deactivate it."),
    (SubscriptionVerb.DEACTIVATE, "Stop at once; what is in hand goes back to the source."),
):
    _add_move(_verb, _summary)


@routes.add("DELETE", "/api/subscriptions/{name}", role=Role.ADMIN, reply=RemovedReply)
async def delete_subscription(door: TheDoor, name: PathText) -> RemovedReply:
    """Remove a subscription that is deactivated, or was never activated; its runs continue."""
    deleted = await door.operations.subscriptions.delete_subscription(name)
    return RemovedReply(deleted=deleted)


@routes.add(
    "GET",
    "/api/subscriptions/{name}/dead-letters",
    role=Role.READ,
    reply=SubscriptionLettersReply,
    refusals=(404,),
)
async def list_subscription_dead_letters(
    door: TheDoor, name: PathText, params: Annotated[SubscriptionLettersParams, Query()]
) -> Response:
    """List messages that could not become runs, by id."""
    found = await door.operations.subscriptions.list_subscription_dead_letters(
        name, after=params.after, limit=params.limit
    )
    kept, more = fitting(found, lambda letter: _size(letter) + 1024)
    # The store ends a page where its bodies are as long as a page may be.
    more = more or len(found) == params.limit or sum(map(_size, found)) >= door.limits.page_bytes
    after = kept[-1].letter_id if more and kept else None
    return json_response({"dead_letters": [letter_json(one) for one in kept], "after": after})


@routes.add(
    "POST",
    "/api/subscriptions/{name}/dead-letters/replay",
    role=Role.WRITE,
    reply=CountReply,
    refusals=(404,),
)
async def replay_subscription_dead_letters(
    door: TheDoor, name: PathText, body: SettleLettersBody = ALL_LETTERS
) -> CountReply:
    """Accept dead letters by the newest revision; those that are refused again stay."""
    return await _settle(door, name, REPLAY, body)


@routes.add(
    "POST",
    "/api/subscriptions/{name}/dead-letters/drop",
    role=Role.WRITE,
    reply=CountReply,
    refusals=(404,),
)
async def drop_subscription_dead_letters(
    door: TheDoor, name: PathText, body: SettleLettersBody = ALL_LETTERS
) -> CountReply:
    """Remove dead letters for good."""
    return await _settle(door, name, DROP, body)


async def _settle(door: Door, name: str, verb: str, body: SettleLettersBody) -> CountReply:
    settle = door.operations.subscriptions.settle_subscription_dead_letters
    return CountReply(count=await settle(name, verb, body.ids))


def _reply(view: SubscriptionView) -> DeclaredSubscriptionReply:
    return DeclaredSubscriptionReply(**subscription_json(view))


def _size(letter: SubscriptionDeadLetter) -> int:
    return len(letter.headers_json) + len(letter.body)
