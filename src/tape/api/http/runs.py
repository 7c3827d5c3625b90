"""Runs: looked at, cancelled, signalled, put back."""

from typing import Annotated, Any, Literal

import orjson
from fastapi import Query
from pydantic import Field

from tape.api.http.entry import fitting
from tape.api.http.fields import PAGE, Body, PageSize, Params, PathText, Position, Reply
from tape.api.http.routes import Routes, TheDoor
from tape.calls.role import Role
from tape.errors import NotFound
from tape.model.gate import SendSignal, Signalled
from tape.model.json_text import to_json
from tape.model.names import check_name
from tape.model.run import STATUS_WORDS, Run, RunStatus
from tape.model.run_end import CancelRun
from tape.model.subscription import MESSAGE_USER
from tape.ports.runs import RunQuery
from tape.runs.operations import WAITING_MS

routes = Routes("runs")

RunStatusWord = Literal[
    "runnable", "running", "waiting", "terminal", "failed", "compensating", "stuck", "cancelled"
]


class RunReply(Reply):
    """`output` is the result of a run that succeeded, `error` is why another run did not."""

    run_id: str
    app_name: str
    user_id: str
    session_id: str
    invocation_id: str
    pool: str
    status: RunStatusWord
    seq_cursor: int
    lease_owner: str
    reactor_name: str
    lease_expires_at_ms: int
    started_at_ms: int
    ended_at_ms: int
    app_version: str
    parent_run_id: str
    waiting_on: str
    cancel_reason: str
    output: Any
    error: Any


class RunsReply(Reply):
    """The newest run comes first. `after` is the id to continue after; null at the end."""

    runs: list[RunReply]
    after: str | None


class RunsParams(Params):
    status: RunStatusWord | None = None
    app_name: str = ""
    pool: str = ""
    subscription: str = ""
    limit: PageSize = PAGE
    after: str = ""


class WaitingParams(Params):
    older_than_ms: Position = WAITING_MS


class WaitingRunsReply(Reply):
    """`waiting` runs of this app and pool wait for a worker; workers drive `running` runs. Both are
    counted up to 10,000. `run_id` has waited longest: nothing has happened in it since `since_ms`.
    """

    pool: str
    app_name: str
    waiting: int
    running: int
    run_id: str
    since_ms: int


class WaitingReply(Reply):
    waiting: list[WaitingRunsReply]


class CancelBody(Body):
    reason: str = ""


class ResumeBody(Body):
    """No field is required."""


NO_REASON, NOTHING = CancelBody(), ResumeBody()


class SignalBody(Body):
    gate_name: Annotated[str, Field(min_length=1, examples=["approval"])]
    resolution: Annotated[Any, Field(examples=[{"approved": True}])] = None


class SignalledReply(Reply):
    """`accepted` is false if the run has ended or the gate was released before."""

    accepted: bool
    run_id: str
    run_status: RunStatusWord


@routes.add("GET", "/api/runs", role=Role.READ, reply=RunsReply, refusals=(404,))
async def list_runs(door: TheDoor, params: Annotated[RunsParams, Query()]) -> RunsReply:
    """List runs, the newest first; of a subscription those of its messages, and their children."""
    status = RunStatus[params.status.upper()].value if params.status else 0
    check_name(params.subscription, door.limits, field="subscription")
    session = (MESSAGE_USER, params.subscription) if params.subscription else None
    query = RunQuery(
        status, params.app_name, params.pool, params.limit, params.after, session=session
    )
    found = await door.operations.runs.list_runs(query)
    kept, more = fitting(found, lambda run: len(run.outcome_json) + 512)
    more = more or len(found) == params.limit
    return RunsReply(
        runs=[run_reply(run) for run in kept], after=kept[-1].run_id if more and kept else None
    )


@routes.add("GET", "/api/runs/waiting", role=Role.READ, reply=WaitingReply)
async def list_waiting_runs(
    door: TheDoor, params: Annotated[WaitingParams, Query()]
) -> WaitingReply:
    """List runs that no worker has taken, by app and pool, the longest wait first."""
    found = await door.operations.runs.list_waiting_runs(params.older_than_ms)
    return WaitingReply(waiting=[WaitingRunsReply(**group._asdict()) for group in found])


@routes.add("GET", "/api/runs/{run_id}", role=Role.READ, reply=RunReply, refusals=(404,))
async def get_run(door: TheDoor, run_id: PathText) -> RunReply:
    """Get one run."""
    run = await door.operations.runs.get_run(run_id)
    if run is None:
        raise NotFound(f"no run has the id {run_id!r}")
    return run_reply(run)


@routes.add("POST", "/api/runs/{run_id}/cancel", role=Role.WRITE, reply=RunReply, refusals=(404,))
async def cancel_run(door: TheDoor, run_id: PathText, body: CancelBody = NO_REASON) -> RunReply:
    """Request the cancellation of a run; its effects are compensated first."""
    check_name(run_id, door.limits, field="run_id")
    run: Run = await door.operations.runs.change_run(run_id, CancelRun(body.reason))
    return run_reply(run)


@routes.add(
    "POST", "/api/runs/{run_id}/signal", role=Role.WRITE, reply=SignalledReply, refusals=(404,)
)
async def send_signal(door: TheDoor, run_id: PathText, body: SignalBody) -> SignalledReply:
    """Open a gate of a run with a resolution; the first signal counts."""
    check_name(run_id, door.limits, field="run_id")
    word = to_json(body.resolution, door.limits, field="resolution")
    write = SendSignal(body.gate_name, word)
    sent: Signalled = await door.operations.runs.change_run(run_id, write)
    return SignalledReply(
        accepted=sent.accepted, run_id=run_id, run_status=status_word(sent.run.status)
    )


@routes.add("POST", "/api/runs/{run_id}/resume", role=Role.WRITE, reply=RunReply, refusals=(404,))
async def resume_run(door: TheDoor, run_id: PathText, _body: ResumeBody = NOTHING) -> RunReply:
    """Make a run that is stuck or waits available to workers again."""
    check_name(run_id, door.limits, field="run_id")
    return run_reply(await door.operations.runs.resume_run(run_id))


def status_word(status: int) -> RunStatusWord:
    word: RunStatusWord = STATUS_WORDS[status]  # type: ignore[assignment]  # the same names
    return word


def run_reply(run: Run) -> RunReply:
    fields = {name: value for name, value in run._asdict().items() if name in RunReply.model_fields}
    output, error = outcome_of(run)
    return RunReply(
        **fields | {"status": status_word(run.status), "output": output, "error": error}
    )


def outcome_of(run: Run) -> tuple[Any, Any]:
    """What it returned, and its error; at most one of them is not null."""
    outcome = orjson.loads(run.outcome_json or "null")
    return (outcome, None) if run.status == RunStatus.TERMINAL else (None, outcome)
