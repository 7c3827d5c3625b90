"""The outbox: what waits in it, what was not taken, and leaving out a row that never will be."""

from typing import Annotated

from pydantic import Field

from tape.api.http.fields import OPERATOR, Body, PathPosition, Reply
from tape.api.http.routes import Routes, TheDoor
from tape.calls.role import Role

routes = Routes("outbox")


class FailingReply(Reply):
    """A row that the broker or the journal refused. It holds its subject."""

    id: int
    event_id: str
    subject: str
    created_at_ms: int
    global_seq: int
    attempts: int
    last_error: str


class RepeatReply(Reply):
    """A row that repeats an event: it makes no entry and is never published."""

    id: int
    event_id: str
    subject: str
    idempotency_key: str
    created_at_ms: int
    repeated_at_ms: int
    repeat_of: str
    repeat_of_seq: int


class TermReply(Reply):
    relay: str
    term: int
    owner: str
    elected_at_ms: int
    expires_at_ms: int


class OutboxReply(Reply):
    """`waiting`, `unpromoted` and `repeated` are counted up to a limit; `repeats` are the latest of
    the repeated rows.
    """

    waiting: int
    unpromoted: int
    oldest_ms: int
    failing: list[FailingReply]
    relays: list[TermReply]
    repeated: int
    repeats: list[RepeatReply]


class SkipRowBody(Body):
    reason: Annotated[str, Field(min_length=1, examples=["the order was cancelled by hand"])]


class PlaceReply(Reply):
    id: int
    event_id: str
    subject: str
    global_seq: int


@routes.add("GET", "/api/outbox", role=Role.READ, reply=OutboxReply)
async def get_outbox(door: TheDoor) -> OutboxReply:
    """Get how many rows wait and since when, which were refused and why, repeats, and leading
    relays.
    """
    status = await door.operations.outbox.outbox_status()
    return OutboxReply(
        waiting=status.waiting,
        unpromoted=status.unpromoted,
        oldest_ms=status.oldest_ms,
        failing=[FailingReply(**row._asdict()) for row in status.failing],
        relays=[TermReply(**term._asdict()) for term in status.terms],
        repeated=status.repeated,
        repeats=[RepeatReply(**row._asdict()) for row in status.repeats],
    )


@routes.add("POST", "/api/outbox/{row_id}/skip", role=Role.ADMIN, reply=PlaceReply, refusals=(404,))
async def skip_outbox_row(door: TheDoor, row_id: PathPosition, body: SkipRowBody) -> PlaceReply:
    """Skip a row that was refused, so that later rows of its subject are published."""
    place = await door.operations.outbox.skip_outbox_row(row_id, reason=body.reason, by=OPERATOR)
    return PlaceReply(**{name: getattr(place, name) for name in PlaceReply.model_fields})
