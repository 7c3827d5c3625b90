"""Runs for `agent` reactions: a task of one is done when its run has been queued.

The run is named after the reaction and the source entry, so a task that is done twice still makes
one run. Because there is a task in between, the reaction's rate, debounce, retries and
dead letters hold for runs as they do for handlers.
"""

from dataclasses import replace

import orjson

from tape.errors import TapeError
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.entry import Trace
from tape.model.lease import BeginRun, NewRun, Taker
from tape.model.reaction import Reaction
from tape.model.run import RunName
from tape.model.task import Task, TaskOutcome
from tape.ports.store import Store
from tape.ports.tasks import Claim, Want
from tape.reactions.tasks import Tasks
from tape.reactions.work import handler_envelope
from tape.settings import KIB, Limits

LEASE_MS = 30_000
AT_ONCE = 200


class Agents:
    def __init__(
        self, store: Store, writer: Writer, ids: UlidFactory, tasks: Tasks, limits: Limits
    ) -> None:
        # The input is the entry in its envelope, which may be a little more than an entry may hold.
        self._limits = replace(
            limits, payload_bytes=limits.payload_bytes + 64 * KIB, json_depth=limits.json_depth + 2
        )
        self._store = store
        self._writer = writer
        self._ids = ids
        self._tasks = tasks

    async def begin_runs(self, owner: str, reaction_ids: list[str]) -> None:
        for start in range(0, len(reaction_ids), AT_ONCE):
            await self._begin_some(owner, reaction_ids[start : start + AT_ONCE])

    async def _begin_some(self, owner: str, reaction_ids: list[str]) -> None:
        wants = [Want(reaction_id, -1, AT_ONCE) for reaction_id in reaction_ids]
        while claimed := await self._tasks.claim_tasks(Claim(owner, LEASE_MS, wants)):
            book = await self._store.matching.read_reactions()
            apps = {reaction.reaction_id: reaction for reaction in book.reactions}
            outcomes = [await self._begin(task, apps.get(task.reaction_id)) for task in claimed]
            await self._tasks.settle_tasks(owner, outcomes)
            if any(outcome.verdict == "given_back" for outcome in outcomes):
                return  # they would come again at once

    async def _begin(self, task: Task, reaction: Reaction | None) -> TaskOutcome:
        if reaction is None or not reaction.agent_app:
            return TaskOutcome(task.task_id, "given_back", "its reaction no longer names an app")
        name = RunName(reaction.agent_app, "", "", f"{task.reaction_id}/{task.source_global_seq}")
        source = task.entry
        new = NewRun(
            name,
            orjson.dumps(handler_envelope(task)).decode(),
            reaction.pool,
            trace=Trace(source.trace_id, "", source.span_id or source.parent_span_id),
        )
        try:
            await self._writer.submit(BeginRun(new, Taker(), next(self._ids), self._limits))
        except TapeError as error:
            return TaskOutcome(task.task_id, "failed", str(error))
        return TaskOutcome(task.task_id)
