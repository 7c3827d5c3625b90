"""The calls on reactions and tasks: a message in, the operation, a message out."""

import asyncio
import logging
from collections.abc import Sequence

from tape.api.auth import Role, needs
from tape.api.fitting import ANSWER_BYTES
from tape.bus import Operations
from tape.errors import TapeError, TooLarge
from tape.model.task import Task, TaskOutcome, failed_task, no_such_task
from tape.ports.tasks import Claim
from tape.reactions.settings import named
from tape.reactions.tasks import WAIT_MOST_MS, settle_one
from tape.wire import mapping_reactions, mapping_tasks
from tape.wire.v1 import tape_pb2 as pb

log = logging.getLogger("tape.grpc")

SLICE_MS = 500
"""How long a claim waits before it looks whether the server closes."""


class ReactionCalls:
    def __init__(self, operations: Operations, answer_bytes: int) -> None:
        self._operations = operations
        self._answer_bytes = answer_bytes
        self._ending = False

    def end(self) -> None:
        """Whoever waits for tasks is answered, with none."""
        self._ending = True

    @needs(Role.WRITE)
    async def register_reaction(self, request: pb.Reaction) -> pb.Reaction:
        new = named(mapping_reactions.new_from_wire(request))
        return mapping_reactions.reaction_to_wire(
            await self._operations.reactions.register_reaction(new)
        )

    @needs(Role.WRITE)
    async def deregister_reaction(
        self, request: pb.DeregisterReactionRequest
    ) -> pb.DeregisterReactionResponse:
        known = await self._operations.reactions.deregister_reaction(request.reaction_id)
        return pb.DeregisterReactionResponse(deregistered=known)

    @needs(Role.READ)
    async def list_reactions(self, request: pb.ListReactionsRequest) -> pb.ListReactionsResponse:
        found = await self._operations.reactions.list_reactions(request.subject_pattern)
        answer = mapping_reactions.states_to_wire(found)
        if answer.ByteSize() > self._answer_bytes:
            raise TooLarge(
                f"the answer is over {self._answer_bytes} bytes: ask for one pattern",
                field="subject_pattern",
            )
        return answer

    @needs(Role.WRITE)
    async def claim_tasks(self, request: pb.ClaimTasksRequest) -> pb.ClaimTasksResponse:
        answer = pb.ClaimTasksResponse()
        if request.task_ids:
            answer.extended.extend(
                await self._operations.tasks.extend_tasks(
                    request.owner, request.lease_ms, request.task_ids
                )
            )
            return answer
        claim = mapping_tasks.claim_from_wire(request)
        found = await self._claimed(claim, min(request.wait_ms, WAIT_MOST_MS))
        kept = mapping_tasks.tasks_to_wire(answer, found, ANSWER_BYTES)
        await self._give_back(claim.owner, found[kept:])
        return answer

    @needs(Role.READ)
    async def listen_for_tasks(
        self, request: pb.ListenForTasksRequest
    ) -> pb.ListenForTasksResponse:
        wait_ms = 0 if self._ending else max(0, min(request.wait_ms, SLICE_MS))
        heard = await self._operations.tasks.listen_for_tasks(
            request.reaction_ids, request.heard, wait_ms
        )
        return pb.ListenForTasksResponse(heard=heard)

    @needs(Role.WRITE)
    async def complete_task(self, request: pb.CompleteTaskRequest) -> pb.CompleteTaskResponse:
        outcome = TaskOutcome(request.task_id)
        task = await settle_one(self._operations.tasks, request.owner, outcome)
        return pb.CompleteTaskResponse(task=mapping_tasks.task_to_wire(task))

    @needs(Role.WRITE)
    async def nack_task(self, request: pb.NackTaskRequest) -> pb.NackTaskResponse:
        outcome = failed_task(
            request.task_id,
            request.error,
            permanent=request.permanent,
            traceback=request.traceback,
        )
        task = await settle_one(self._operations.tasks, request.owner, outcome)
        return pb.NackTaskResponse(task=mapping_tasks.task_to_wire(task))

    @needs(Role.WRITE)
    async def settle_tasks(self, request: pb.SettleTasksRequest) -> pb.SettleTasksResponse:
        outcomes = mapping_tasks.outcomes_from_wire(request)
        results = await self._operations.tasks.settle_tasks(request.owner, outcomes)
        return mapping_tasks.settled_to_wire(results)

    @needs(Role.READ)
    async def list_tasks(self, request: pb.ListTasksRequest) -> pb.ListTasksResponse:
        """As many as fit; the rest is what the next call begins with."""
        answer = pb.ListTasksResponse()
        if request.task_id:
            task = await self._operations.tasks.get_task(request.task_id)
            if task is None:
                raise no_such_task(request.task_id)
            found = [task]
        else:
            found = await self._operations.tasks.list_tasks(
                request.reaction_id, request.status, request.limit, request.after_task_id
            )
        mapping_tasks.tasks_to_wire(answer, found, ANSWER_BYTES)
        return answer

    @needs(Role.WRITE)
    async def replay_dead_letters(
        self, request: pb.ReplayDeadLettersRequest
    ) -> pb.ReplayDeadLettersResponse:
        count = await self._operations.tasks.replay_dead_letters(
            request.reaction_id, request.task_ids
        )
        return pb.ReplayDeadLettersResponse(count=count)

    @needs(Role.ADMIN)
    async def drop_dead_letters(
        self, request: pb.DropDeadLettersRequest
    ) -> pb.DropDeadLettersResponse:
        count = await self._operations.tasks.drop_dead_letters(
            request.reaction_id, request.task_ids
        )
        return pb.DropDeadLettersResponse(count=count)

    async def _claimed(self, claim: Claim, wait_ms: int) -> list[Task]:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + wait_ms / 1000
        while True:
            left_ms = 0 if self._ending else round(1000 * (give_up - loop.time()))
            found = await self._claim_whole(claim, max(0, min(left_ms, SLICE_MS)))
            if found or left_ms <= SLICE_MS:
                return found

    async def _claim_whole(self, claim: Claim, wait_ms: int) -> list[Task]:
        """A caller that goes away does not break a claim off: what it was given is given back."""
        claiming = asyncio.ensure_future(self._operations.tasks.claim_tasks(claim, wait_ms))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            if not claiming.cancelled():
                await self._give_back(claim.owner, await claiming)
            raise

    async def _give_back(self, owner: str, tasks: Sequence[Task]) -> None:
        if not tasks:
            return
        try:
            await self._operations.tasks.settle_tasks(
                owner, [TaskOutcome(task.task_id, "given_back") for task in tasks]
            )
        except TapeError as error:
            log.warning(
                "%d tasks could not be released and stay claimed until their lease expires: %s",
                len(tasks),
                error,
            )
