"""Tasks, and dead letters replayed or dropped."""

from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import Field

from tape.api.http.entry import EntryReply, entry_record, fitting, json_response
from tape.api.http.fields import PAGE, Body, PageSize, Params, Reply
from tape.api.http.routes import Routes, TheDoor
from tape.calls.role import Role
from tape.model.task import Task, TaskStatus

routes = Routes("tasks")

TaskStatusWord = Literal["pending", "claimed", "done", "failed", "dlq"]


class TaskReply(Reply):
    """`entry` made the task; `last_traceback` shows where its handler raised the last error."""

    task_id: str
    reaction_id: str
    shard: int
    source_global_seq: int
    status: TaskStatusWord
    attempts: int
    next_attempt_at_ms: int
    lease_owner: str
    lease_expires_at_ms: int
    claimed_at_ms: int
    last_error: str
    last_traceback: str
    created_at_ms: int
    completed_at_ms: int
    entry: EntryReply


class TasksReply(Reply):
    """`after` is the id to continue after; null at the end."""

    tasks: list[TaskReply]
    after: str | None


class TasksParams(Params):
    reaction_id: str = ""
    status: TaskStatusWord | None = None
    limit: PageSize = PAGE
    after: str = ""


class LettersBody(Body):
    """Without `task_ids`, all dead letters of the reaction."""

    reaction_id: Annotated[str, Field(min_length=1, examples=["route_orders"])]
    task_ids: list[str] = Field(default_factory=list)


class CountReply(Reply):
    count: int


@routes.add("GET", "/api/tasks", role=Role.READ, reply=TasksReply, refusals=(404,))
async def list_tasks(door: TheDoor, params: Annotated[TasksParams, Query()]) -> Response:
    """List tasks by reaction, shard and source; dead letters have the status `dlq`."""
    status = TaskStatus[params.status.upper()].value if params.status else 0
    found = await door.operations.tasks.list_tasks(
        params.reaction_id, status, params.limit, params.after
    )
    kept, more = fitting(found, _size)
    more = more or len(found) == params.limit
    after = kept[-1].task_id if more and kept else None
    return json_response({"tasks": [_record(task) for task in kept], "after": after})


@routes.add("POST", "/api/tasks/replay", role=Role.WRITE, reply=CountReply, refusals=(404,))
async def replay_dead_letters(door: TheDoor, body: LettersBody) -> CountReply:
    """Queue dead letters again."""
    count = await door.operations.tasks.replay_dead_letters(body.reaction_id, body.task_ids)
    return CountReply(count=count)


@routes.add("POST", "/api/tasks/drop", role=Role.ADMIN, reply=CountReply, refusals=(404,))
async def drop_dead_letters(door: TheDoor, body: LettersBody) -> CountReply:
    """Give dead letters up for good; they stay on record as failed."""
    count = await door.operations.tasks.drop_dead_letters(body.reaction_id, body.task_ids)
    return CountReply(count=count)


def _size(task: Task) -> int:
    return len(task.entry.payload_json) + len(task.last_traceback) + 1024


def _record(task: Task) -> dict[str, Any]:
    status = TaskStatus(task.status).name.lower()
    return task._asdict() | {"status": status, "entry": entry_record(task.entry)}
