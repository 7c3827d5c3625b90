"""`/api/execute`: have a worker run an app, and, if wanted, wait a while for its end."""

import asyncio
from contextlib import aclosing
from typing import Annotated, Any

from pydantic import Field, ValidationError

from tape.api.http.door import Door
from tape.api.http.errors import ErrorDetail, detail_of, malformed_detail
from tape.api.http.fields import Body, BodyNumber, Reply
from tape.api.http.routes import Routes, TheDoor
from tape.api.http.runs import RunStatusWord, outcome_of, status_word
from tape.calls.role import Role
from tape.errors import NotFound, Overloaded, StoreUnavailable, TapeError
from tape.journal.ids import UlidFactory
from tape.model.begin_once import MOST_WINDOW_MS, BegunOnce
from tape.model.json_text import to_json
from tape.model.lease import NewRun
from tape.model.names import check_name
from tape.model.run import Run, RunName, RunStatus
from tape.model.trace_context import NO_TEXTS, TraceTexts
from tape.telemetry import metrics
from tape.telemetry.metrics import ExecuteOutcome

routes = Routes("execute")

MOST_ITEMS = 1_000
MOST_WAIT_S = 60.0
_IDS = UlidFactory()


class TraceBody(Body):
    """W3C trace context, which the run joins; all of it is in its first entry, as `trace`."""

    traceparent: Annotated[str, Field(min_length=1, examples=[f"00-{'1' * 32}-{'2' * 16}-01"])]
    tracestate: str = ""
    baggage: str = ""


class DedupBody(Body):
    """A key that the app is run by once in a window, whatever else the request says."""

    key: Annotated[str, Field(min_length=1, examples=["order-7"])]
    window_secs: Annotated[BodyNumber, Field(ge=1, le=MOST_WINDOW_MS // 1000)]


class ExecuteBody(Body):
    """`workflow_type` is the name of an app. The same `invocation_id` returns the same run; without
    one, each call starts a new run, unless `dedup` finds one.
    """

    workflow_type: Annotated[str, Field(min_length=1, examples=["route_order"])]
    input: Annotated[Any, Field(examples=[{"order": 7}])] = None
    user_id: str = ""
    session_id: str = ""
    invocation_id: str = ""
    pool: str = ""
    trace: TraceBody | None = None
    dedup: DedupBody | None = None
    wait_s: Annotated[float, Field(ge=0, le=MOST_WAIT_S)] = 0.0


class ExecuteBatchBody(Body):
    """Each item is a body of `/api/execute`, checked by itself; a bad item affects no other."""

    items: Annotated[
        list[Any], Field(max_length=MOST_ITEMS, examples=[[{"workflow_type": "route_order"}]])
    ]


class ExecuteReply(Reply):
    """`resumed` is true if the run existed before, `duplicate` if it was found by the key of
    `dedup`; `output` or `error` is set if it has ended."""

    run_id: str
    status: RunStatusWord
    resumed: bool
    duplicate: bool
    output: Any = None
    error: Any = None


class ExecuteItemReply(Reply):
    """Either a result or an error."""

    result: ExecuteReply | None = None
    error: ErrorDetail | None = None


class ExecuteBatchReply(Reply):
    """In the order of the items."""

    results: list[ExecuteItemReply]


@routes.add("POST", "/api/execute", role=Role.WRITE, reply=ExecuteReply)
async def execute(door: TheDoor, body: ExecuteBody) -> ExecuteReply:
    """Start a run of an app, or find it."""
    return await _execute(door, body)


@routes.add("POST", "/api/execute/batch", role=Role.WRITE, reply=ExecuteBatchReply)
async def execute_batch(door: TheDoor, body: ExecuteBatchBody) -> ExecuteBatchReply:
    """Start many runs; each item has its own result or error."""
    metrics.EXECUTE_BATCH_SIZE.observe(len(body.items))
    results = await asyncio.gather(*(_item(door, item) for item in body.items))
    return ExecuteBatchReply(results=results)


async def _item(door: Door, item: Any) -> ExecuteItemReply:
    try:
        return ExecuteItemReply(result=await _execute(door, ExecuteBody.model_validate(item)))
    except ValidationError as fault:
        _count(ExecuteOutcome.REFUSED)
        first = malformed_detail(dict(fault.errors(include_input=False, include_url=False)[0]))
        return ExecuteItemReply(error=ErrorDetail(**first))
    except TapeError as error:
        return ExecuteItemReply(error=ErrorDetail(**detail_of(error)))


async def _execute(door: Door, body: ExecuteBody) -> ExecuteReply:
    begun = await _counted(door, body)
    run = begun.run
    if body.wait_s and not _is_done(run):
        run = await door.until_ending(_end_of(door, run), body.wait_s) or await _found(door, run)
    output, error = outcome_of(run) if _is_done(run) else (None, None)
    return ExecuteReply(
        run_id=run.run_id,
        status=status_word(run.status),
        resumed=begun.resumed,
        duplicate=begun.duplicate,
        output=output,
        error=error,
    )


async def _counted(door: Door, body: ExecuteBody) -> BegunOnce:
    """Begin or find the run, and count what became of the request."""
    try:
        begun = await _begun(door, body)
    except TapeError as error:
        is_away = isinstance(error, StoreUnavailable | Overloaded)
        _count(ExecuteOutcome.UNAVAILABLE if is_away else ExecuteOutcome.REFUSED)
        raise
    if begun.duplicate:
        _count(ExecuteOutcome.DUPLICATE)
    else:
        _count(ExecuteOutcome.RESUMED if begun.resumed else ExecuteOutcome.STARTED)
    return begun


def _count(outcome: ExecuteOutcome) -> None:
    metrics.EXECUTE_OUTCOMES.labels(outcome).inc()


async def _begun(door: Door, body: ExecuteBody) -> BegunOnce:
    invocation_id = body.invocation_id or next(_IDS)
    new = NewRun(
        RunName(body.workflow_type, body.user_id, body.session_id, invocation_id),
        to_json(body.input, door.limits, field="input"),
        body.pool,
        context=TraceTexts(**dict(body.trace)) if body.trace is not None else NO_TEXTS,
    )
    runs, dedup = door.operations.runs, body.dedup
    if dedup is None:
        begun = await runs.begin_run(new)
        return BegunOnce(begun.run, begun.resumed, duplicate=False)
    check_name(dedup.key, door.limits, field="dedup.key")
    return await runs.begin_run_once(new, dedup.key, dedup.window_secs * 1000)


def _is_done(run: Run) -> bool:
    """Whether it has ended, or goes no further unless somebody sees to it."""
    return bool(run.ended_at_ms) or run.status == RunStatus.STUCK


async def _end_of(door: Door, run: Run) -> Run:
    async with aclosing(door.operations.runs.follow_run(run.run_id, run.seq_cursor)) as pages:
        async for _ in pages:
            run = await _found(door, run)
            if _is_done(run):
                break
    return run


async def _found(door: Door, run: Run) -> Run:
    found = await door.operations.runs.get_run(run.run_id)
    if found is None:
        raise NotFound(f"no run has the id {run.run_id!r}")
    return found
