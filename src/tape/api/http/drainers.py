"""Drainers: drained, looked at, and helped on by an operator when they are halted."""

from typing import Annotated

from pydantic import Field

from tape.api.http.fields import OPERATOR, Body, BodyNumber, PathText, Reply
from tape.api.http.routes import Routes, TheDoor
from tape.calls.role import Role
from tape.errors import Closed
from tape.model.drainer import DrainerState
from tape.model.event_subscription import DEFAULT_DRAINER

routes = Routes("drainers")

MOST_AWAIT_S = 60.0


class DrainBody(Body):
    """One pass. `limit` 0 is the server's own limit; `await_s` is how long it waits for a run."""

    drainer_id: Annotated[str, Field(min_length=1)] = DEFAULT_DRAINER
    limit: Annotated[BodyNumber, Field(ge=0, le=10_000)] = 0
    await_s: Annotated[float, Field(ge=0, le=MOST_AWAIT_S)] | None = None


ONE_PASS = DrainBody()


class TriggeredReply(Reply):
    event_id: str
    global_seq: int
    subscription_id: str
    run_id: str


class DrainReply(Reply):
    """What one pass has done.

    `triggered` are the runs that it dispatched events to; only the pass that moved past an event
    lists its run. `halted_on_event_id` failed with `error` and is retried at `next_try_at_ms`.
    `waiting_on_run_id` has not ended in time, which is not a failure. `more`: there is more to
    drain at once.
    """

    drainer_id: str
    processed: int
    dispatched: int
    triggered: list[TriggeredReply]
    last_global_seq: int
    last_event_id: str
    halted_on_event_id: str
    error: str
    waiting_on_run_id: str
    skipped_due_to_lock: bool
    more: bool
    next_try_at_ms: int


class DrainerReply(Reply):
    """A drainer is halted while `halted_on_event_id` is not empty, since `halted_at_ms`.

    The event has failed `failed_attempts` times and is retried at `next_try_at_ms`. The drainer
    waits for the end of a run while `waiting_on_run_id` is not empty. `lag` is how many entries the
    journal is ahead.
    """

    drainer_id: str
    last_global_seq: int
    last_event_id: str
    last_drained_at_ms: int
    events_processed_total: int
    dispatched_total: int
    failed_total: int
    skipped_total: int
    halted_on_event_id: str
    halted_on_global_seq: int
    halted_at_ms: int
    last_error: str
    failed_attempts: int
    next_try_at_ms: int
    waiting_on_run_id: str
    waiting_on_app: str
    waiting_on_pool: str
    waiting_on_event_id: str
    waiting_on_global_seq: int
    waiting_since_ms: int
    subscriptions: int
    lag: int
    is_held: bool


class DrainersReply(Reply):
    drainers: list[DrainerReply]


class SkipBody(Body):
    """The event at which the drainer is halted or for whose run it waits, and why it is skipped."""

    event_id: Annotated[str, Field(min_length=1)]
    reason: Annotated[str, Field(min_length=1, examples=["the order was cancelled by hand"])]


class ResumeBody(Body):
    """No field is required."""


NOTHING = ResumeBody()


@routes.add("POST", "/api/events/drain", role=Role.WRITE, reply=DrainReply, refusals=(404,))
async def drain_events(door: TheDoor, body: DrainBody = ONE_PASS) -> DrainReply:
    """Make one pass of a drainer; `skipped_due_to_lock` if another instance is working."""
    draining = door.operations.ledger.drain(body.drainer_id, limit=body.limit, await_s=body.await_s)
    report = await door.until_ending(draining)  # it may wait for the end of a run
    if report is None:
        raise Closed("the server is shutting down")
    triggered = [TriggeredReply(**each._asdict()) for each in report.triggered]
    return DrainReply(**report._asdict() | {"triggered": triggered})


@routes.add("GET", "/api/drainers", role=Role.READ, reply=DrainersReply)
async def list_drainers(door: TheDoor) -> DrainersReply:
    """List all drainers, by id."""
    states = await door.operations.ledger.list_drainers()
    return DrainersReply(drainers=[_reply(state) for state in states])


@routes.add(
    "POST", "/api/drainers/{drainer_id}/skip", role=Role.ADMIN, reply=DrainerReply, refusals=(404,)
)
async def skip_event(door: TheDoor, drainer_id: PathText, body: SkipBody) -> DrainerReply:
    """Move a drainer past the event at which it is halted or for whose run it waits."""
    state = await door.operations.ledger.skip(
        drainer_id, body.event_id, reason=body.reason, by=OPERATOR
    )
    return _reply(state)


@routes.add(
    "POST", "/api/drainers/{drainer_id}/resume", role=Role.WRITE, reply=DrainerReply,
    refusals=(404,),
)  # fmt: skip
async def resume_drainer(
    door: TheDoor, drainer_id: PathText, _body: ResumeBody = NOTHING
) -> DrainerReply:
    """Let a halted drainer retry its event now."""
    return _reply(await door.operations.ledger.resume(drainer_id, by=OPERATOR))


def _reply(state: DrainerState) -> DrainerReply:
    counts = {"failed_attempts": state.failed_attempts}
    fields = state.drainer._asdict() | state._asdict() | counts
    return DrainerReply(**{name: fields[name] for name in DrainerReply.model_fields})
