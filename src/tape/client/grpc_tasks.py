"""The operations on tasks over gRPC."""

from collections.abc import Sequence

from tape.client.representable import representable
from tape.client.server import Server
from tape.errors import NotFound, TapeError
from tape.model.task import Task, TaskOutcome, TaskStatus
from tape.ports.tasks import Claim
from tape.wire import mapping_tasks
from tape.wire.v1 import tape_pb2 as pb


class GrpcTasks:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._rpc = server.rpc

    async def claim_tasks(self, claim: Claim, wait_ms: int = 0) -> list[Task]:
        """It may hold fewer than there are: no more than one message does."""
        with representable():
            request = mapping_tasks.claim_to_wire(claim, wait_ms)
        answer = await self._server.call(self._rpc.ClaimTasks, request, writes=True)
        return mapping_tasks.tasks_from_wire(answer.tasks)

    async def listen_for_tasks(self, reaction_ids: Sequence[str], heard: int, wait_ms: int) -> int:
        with representable():
            request = pb.ListenForTasksRequest(
                reaction_ids=reaction_ids, heard=heard, wait_ms=wait_ms
            )
        return (await self._server.call(self._rpc.ListenForTasks, request)).heard

    async def extend_tasks(self, owner: str, lease_ms: int, task_ids: Sequence[str]) -> list[str]:
        if not task_ids:
            return []  # without ids it would be a claim
        with representable():
            request = pb.ClaimTasksRequest(owner=owner, lease_ms=lease_ms, task_ids=task_ids)
        answer = await self._server.call(self._rpc.ClaimTasks, request, writes=True)
        return list(answer.extended)

    async def settle_tasks(
        self, owner: str, outcomes: Sequence[TaskOutcome]
    ) -> list[TaskStatus | TapeError]:
        with representable():
            requests = mapping_tasks.outcomes_to_wire(owner, outcomes)
        results: list[TaskStatus | TapeError] = []
        for request in requests:
            answer = await self._server.call(self._rpc.SettleTasks, request, writes=True)
            results += mapping_tasks.settled_from_wire(answer)
        return results

    async def get_task(self, task_id: str) -> Task | None:
        with representable():
            request = pb.ListTasksRequest(task_id=task_id)
        try:
            answer = await self._server.call(self._rpc.ListTasks, request)
        except NotFound:
            return None
        return next(map(mapping_tasks.task_from_wire, answer.tasks), None)

    async def list_tasks(
        self, reaction_id: str, status: int = 0, limit: int = 0, after_task_id: str = ""
    ) -> list[Task]:
        """It may hold fewer than `limit` although there are more; none is the end."""
        with representable():
            request = pb.ListTasksRequest(
                reaction_id=reaction_id, limit=limit, after_task_id=after_task_id
            )
            # Stubs know enums by their own type, the model by their number.
            request.status = status  # type: ignore[assignment]
        answer = await self._server.call(self._rpc.ListTasks, request)
        return mapping_tasks.tasks_from_wire(answer.tasks)

    async def replay_dead_letters(self, reaction_id: str, task_ids: Sequence[str] = ()) -> int:
        with representable():
            request = pb.ReplayDeadLettersRequest(reaction_id=reaction_id, task_ids=task_ids)
        return (await self._server.call(self._rpc.ReplayDeadLetters, request, writes=True)).count

    async def drop_dead_letters(self, reaction_id: str, task_ids: Sequence[str] = ()) -> int:
        with representable():
            request = pb.DropDeadLettersRequest(reaction_id=reaction_id, task_ids=task_ids)
        return (await self._server.call(self._rpc.DropDeadLetters, request, writes=True)).count
