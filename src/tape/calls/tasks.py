"""The calls on tasks. Tasks themselves are a hot path, mapped in `wire/mapping_tasks.py`."""

from collections.abc import Sequence
from typing import Any, Final

from tape.calls.call import ByFunction, Call, Noun, Rpc
from tape.calls.fitting import ANSWER_BYTES
from tape.calls.replies import Field, HandMapped, Names
from tape.calls.role import Role
from tape.model.task import Task, TaskOutcome, failed_task, no_such_task
from tape.reactions.tasks import TaskOperations, settle_one
from tape.settings import Limits
from tape.wire import mapping_tasks
from tape.wire.v1 import tape_pb2 as pb


def _claimed_to_wire(tasks: list[Task]) -> pb.ClaimTasksResponse:
    reply = pb.ClaimTasksResponse()
    mapping_tasks.tasks_to_wire(reply, tasks, ANSWER_BYTES)
    return reply


def _listed_to_wire(tasks: list[Task]) -> pb.ListTasksResponse:
    """As many as fit; the next call begins with the rest."""
    reply = pb.ListTasksResponse()
    mapping_tasks.tasks_to_wire(reply, tasks, ANSWER_BYTES)
    return reply


def _tasks_from_wire(reply: pb.ClaimTasksResponse | pb.ListTasksResponse) -> list[Task]:
    return mapping_tasks.tasks_from_wire(reply.tasks)


def _one_to_wire(task: Task | None) -> pb.ListTasksResponse:
    return _listed_to_wire([] if task is None else [task])


def _one_from_wire(reply: pb.ListTasksResponse) -> Task | None:
    return next(map(mapping_tasks.task_from_wire, reply.tasks), None)


def _claim_from_wire(request: pb.ClaimTasksRequest) -> tuple[list[Any], dict[str, Any]]:
    return [mapping_tasks.claim_from_wire(request), request.wait_ms], {}


def _names_none(owner: str, lease_ms: int, task_ids: Sequence[str]) -> bool:
    """Without ids the request would be a claim."""
    del owner, lease_ms
    return not task_ids


async def _list_tasks(
    tasks: TaskOperations, request: pb.ListTasksRequest, _limits: Limits
) -> pb.ListTasksResponse:
    if not request.task_id:
        return _listed_to_wire(
            await tasks.list_tasks(
                request.reaction_id, request.status, request.limit, request.after_task_id
            )
        )
    task = await tasks.get_task(request.task_id)
    if task is None:
        raise no_such_task(request.task_id)
    return _one_to_wire(task)


async def _complete_task(
    tasks: TaskOperations, request: pb.CompleteTaskRequest, _limits: Limits
) -> pb.CompleteTaskResponse:
    task = await settle_one(tasks, request.owner, TaskOutcome(request.task_id))
    return pb.CompleteTaskResponse(task=mapping_tasks.task_to_wire(task))


async def _nack_task(
    tasks: TaskOperations, request: pb.NackTaskRequest, _limits: Limits
) -> pb.NackTaskResponse:
    outcome = failed_task(
        request.task_id, request.error, permanent=request.permanent, traceback=request.traceback
    )
    task = await settle_one(tasks, request.owner, outcome)
    return pb.NackTaskResponse(task=mapping_tasks.task_to_wire(task))


async def _settle_tasks(
    tasks: TaskOperations, request: pb.SettleTasksRequest, _limits: Limits
) -> pb.SettleTasksResponse:
    outcomes = mapping_tasks.outcomes_from_wire(request)
    return mapping_tasks.settled_to_wire(await tasks.settle_tasks(request.owner, outcomes))


# A claim or an outcome that was cut off is not sent again: the lease of its tasks runs out.
SETTLE_TASKS: Final = Call(
    "SettleTasks", Role.WRITE, TaskOperations.settle_tasks, answer=_settle_tasks
)

TASKS: Final[Noun[TaskOperations]] = Noun(
    lambda operations: operations.tasks,
    Call(
        "ClaimTasks",
        Role.WRITE,
        TaskOperations.claim_tasks,
        HandMapped(_claimed_to_wire, _tasks_from_wire),
        request=ByFunction(mapping_tasks.claim_to_wire, _claim_from_wire),
    ),
    Call(
        "ClaimTasks",
        Role.WRITE,
        TaskOperations.extend_tasks,
        Names("extended"),
        empty_if=_names_none,
    ),
    Call("ListenForTasks", Role.READ, TaskOperations.listen_for_tasks, Field("heard", int)),
    Rpc("CompleteTask", Role.WRITE, answer=_complete_task),
    Rpc("NackTask", Role.WRITE, answer=_nack_task),
    SETTLE_TASKS,
    Call(
        "ListTasks",
        Role.READ,
        TaskOperations.list_tasks,
        HandMapped(_listed_to_wire, _tasks_from_wire),
        answer=_list_tasks,
    ),
    Call(
        "ListTasks",
        Role.READ,
        TaskOperations.get_task,
        HandMapped(_one_to_wire, _one_from_wire),
        none_if_missing=True,
    ),
    Call("ReplayDeadLetters", Role.WRITE, TaskOperations.replay_dead_letters, Field("count", int)),
    Call("DropDeadLetters", Role.ADMIN, TaskOperations.drop_dead_letters, Field("count", int)),
)
