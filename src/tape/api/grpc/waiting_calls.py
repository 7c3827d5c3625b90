"""The calls that wait for tasks, or for the end of a run. A server that stops ends their wait."""

import asyncio
import logging
from collections.abc import Sequence

from tape.api.ending import unless_ending
from tape.api.grpc.handlers import Unary
from tape.bus import Operations
from tape.calls.fitting import ANSWER_BYTES
from tape.errors import Closed, TapeError
from tape.model.event_subscription import DEFAULT_DRAINER
from tape.model.task import Task, TaskOutcome
from tape.ports.tasks import Claim
from tape.reactions.tasks import WAIT_MOST_MS
from tape.wire import mapping_tasks
from tape.wire.records import DRAIN_REPORT
from tape.wire.v1 import tape_pb2 as pb

log = logging.getLogger("tape.grpc")

SLICE_MS = 500
"""How long a claim waits before it looks whether the server closes."""


class WaitingCalls:
    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._ending = asyncio.Event()

    def methods(self) -> dict[str, Unary]:
        return {
            "ClaimTasks": self.claim_tasks,
            "ListenForTasks": self.listen_for_tasks,
            "DrainEvents": self.drain_events,
        }

    def end(self) -> None:
        """Answer whoever waits for tasks, with none; send away whoever waits for a pass."""
        self._ending.set()

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

    async def listen_for_tasks(
        self, request: pb.ListenForTasksRequest
    ) -> pb.ListenForTasksResponse:
        wait_ms = 0 if self._ending.is_set() else max(0, min(request.wait_ms, SLICE_MS))
        heard = await self._operations.tasks.listen_for_tasks(
            request.reaction_ids, request.heard, wait_ms
        )
        return pb.ListenForTasksResponse(heard=heard)

    async def drain_events(self, request: pb.DrainEventsRequest) -> pb.DrainEventsResponse:
        draining = self._operations.ledger.drain(
            request.drainer_id or DEFAULT_DRAINER,
            limit=request.limit,
            await_s=request.await_s if request.HasField("await_s") else None,
        )
        report = await unless_ending(self._ending, draining)  # it may wait for the end of a run
        if report is None:
            raise Closed("the server is shutting down")
        return DRAIN_REPORT.to_wire(report)

    async def _claimed(self, claim: Claim, wait_ms: int) -> list[Task]:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + wait_ms / 1000
        while True:
            left_ms = 0 if self._ending.is_set() else round(1000 * (give_up - loop.time()))
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
