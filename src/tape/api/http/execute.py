"""`/api/execute`: have a worker run an app, and, if wanted, wait a while for its end."""

import asyncio
from contextlib import aclosing
from typing import Annotated, Any

from pydantic import Field, ValidationError

from tape.api.http.door import Door
from tape.api.http.errors import ErrorDetail, detail_of, malformed_detail
from tape.api.http.fields import Body, Reply
from tape.api.http.routes import Routes, TheDoor
from tape.api.http.runs import RunStatusWord, outcome_of, status_word
from tape.calls.role import Role
from tape.errors import NotFound, TapeError
from tape.journal.ids import UlidFactory
from tape.model.json_text import to_json
from tape.model.lease import NewRun
from tape.model.run import Run, RunName, RunStatus

routes = Routes("execute")

MOST_ITEMS = 1_000
MOST_WAIT_S = 60.0
_IDS = UlidFactory()


class ExecuteBody(Body):
    """`workflow_type` is the name of an app. The same `invocation_id` returns the same run; without
    one, each call starts a new run.
    """

    workflow_type: Annotated[str, Field(min_length=1, examples=["route_order"])]
    input: Annotated[Any, Field(examples=[{"order": 7}])] = None
    user_id: str = ""
    session_id: str = ""
    invocation_id: str = ""
    pool: str = ""
    wait_s: Annotated[float, Field(ge=0, le=MOST_WAIT_S)] = 0.0


class ExecuteBatchBody(Body):
    """Each item is a body of `/api/execute`, checked by itself; a bad item affects no other."""

    items: Annotated[
        list[Any], Field(max_length=MOST_ITEMS, examples=[[{"workflow_type": "route_order"}]])
    ]


class ExecuteReply(Reply):
    """`resumed` is true if the run existed before; `output` or `error` is set if it has ended."""

    run_id: str
    status: RunStatusWord
    resumed: bool
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
    results = await asyncio.gather(*(_item(door, item) for item in body.items))
    return ExecuteBatchReply(results=results)


async def _item(door: Door, item: Any) -> ExecuteItemReply:
    try:
        return ExecuteItemReply(result=await _execute(door, ExecuteBody.model_validate(item)))
    except ValidationError as fault:
        first = malformed_detail(dict(fault.errors(include_input=False, include_url=False)[0]))
        return ExecuteItemReply(error=ErrorDetail(**first))
    except TapeError as error:
        return ExecuteItemReply(error=ErrorDetail(**detail_of(error)))


async def _execute(door: Door, body: ExecuteBody) -> ExecuteReply:
    invocation_id = body.invocation_id or next(_IDS)
    new = NewRun(
        RunName(body.workflow_type, body.user_id, body.session_id, invocation_id),
        to_json(body.input, door.limits, field="input"),
        body.pool,
    )
    begun = await door.operations.runs.begin_run(new)
    run = begun.run
    if body.wait_s and not _is_done(run):
        run = await door.until_ending(_end_of(door, run), body.wait_s) or await _found(door, run)
    output, error = outcome_of(run) if _is_done(run) else (None, None)
    return ExecuteReply(
        run_id=run.run_id,
        status=status_word(run.status),
        resumed=begun.resumed,
        output=output,
        error=error,
    )


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
