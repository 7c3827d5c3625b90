"""`POST /api/events/record`: one event, or several of which all are recorded or none."""

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from tape.api.http.fields import MOST_POSITION, Body, BodyNumber, Reply
from tape.api.http.routes import Routes, TheDoor
from tape.calls.role import Role
from tape.errors import InvalidArgument
from tape.model.event import NewEvent, Recorded
from tape.model.json_text import to_json
from tape.settings import Limits

routes = Routes("events")


class NewEventBody(Body):
    """An event as its producer records it. Only `event_type` is required."""

    event_type: Annotated[str, Field(min_length=1, examples=["order.placed"])]
    payload: Annotated[Any, Field(examples=[{"order": 7}])] = None
    entity_type: Annotated[str, Field(examples=["order"])] = ""
    entity_id: Annotated[str, Field(examples=["7"])] = ""
    idempotency_key: Annotated[
        str, Field(description="a second event with this key is not recorded")
    ] = ""
    caused_by: Annotated[str, Field(description="the event_id of the cause, or other text")] = ""
    source: str = ""
    occurred_at_ms: Annotated[BodyNumber, Field(ge=0, le=MOST_POSITION)] = 0
    schema_version: Annotated[BodyNumber, Field(ge=1, le=32_767)] = 1
    run_id: Annotated[str, Field(description="only for a run's driver, with its fencing_token")] = (
        ""
    )
    fencing_token: Annotated[BodyNumber, Field(ge=0, le=MOST_POSITION)] = 0
    trace_id: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")] = ""
    span_id: Annotated[str, Field(pattern=r"^([0-9a-f]{16})?$")] = ""
    parent_span_id: Annotated[str, Field(pattern=r"^([0-9a-f]{16})?$")] = ""


class NewEventsBody(Body):
    """Several events. If one is refused, all are; the error names its index."""

    events: list[NewEventBody]


class RecordedReply(Reply):
    """With `duplicate`, the key was used before: these are the first event's ids."""

    event_id: str
    global_seq: int
    seq: int
    duplicate: bool


class RecordedAllReply(Reply):
    """In the order of the events."""

    results: list[RecordedReply]


def _form(body: Any) -> str:
    return "many" if isinstance(body, dict) and "events" in body else "one"


RecordBody = Annotated[
    Annotated[NewEventBody, Tag("one")] | Annotated[NewEventsBody, Tag("many")],
    Discriminator(_form),
]


@routes.add(
    "POST", "/api/events/record", role=Role.WRITE, reply=RecordedReply | RecordedAllReply,
    refusals=(404,),
)  # fmt: skip
async def record_events(door: TheDoor, body: RecordBody) -> RecordedReply | RecordedAllReply:
    """Record one event, or several at once; answers once they are durable."""
    if isinstance(body, NewEventBody):
        (recorded,) = await door.operations.record_events([_new_event(body, door.limits)])
        return _reply(recorded)
    events = [_named(index, event, door.limits) for index, event in enumerate(body.events)]
    return RecordedAllReply(
        results=[_reply(r) for r in await door.operations.record_events(events)]
    )


def _named(index: int, body: NewEventBody, limits: Limits) -> NewEvent:
    try:
        return _new_event(body, limits)
    except InvalidArgument as fault:
        fault.args = (f"events[{index}].{fault}",)
        raise


def _new_event(body: NewEventBody, limits: Limits) -> NewEvent:
    fields = dict(body)
    return NewEvent(payload_json=to_json(fields.pop("payload"), limits, field="payload"), **fields)


def _reply(recorded: Recorded) -> RecordedReply:
    return RecordedReply(**recorded._asdict())
