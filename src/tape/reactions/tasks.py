"""The operations on tasks, for every door: claim and wait, settle, dead letters."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from tape.errors import InvalidArgument, NotFound, TapeError, TooLarge
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.move import Move
from tape.model.names import check_name
from tape.model.task import (
    DropDeadLetters,
    FailTasks,
    ReplayDeadLetters,
    Task,
    TaskFailure,
    TaskKey,
    TaskOutcome,
    TaskStatus,
    no_such_task,
    not_held,
    parse_task_id,
)
from tape.ports.store import Store
from tape.ports.tasks import Claim
from tape.settings import Limits

DEFAULT_LEASE_MS = 60_000
DEFAULT_CLAIM = 16
LEASE_MOST_MS = 86_400_000
WAIT_MOST_MS = 60_000
POLL_S = 0.25
"""How long a claim that waits trusts the bell: another dispatcher's completion does not ring it."""

LETTERS_AT_ONCE = 500


class TaskOperations(Protocol):
    async def claim_tasks(self, claim: Claim, wait_ms: int = 0) -> list[Task]:
        """Take tasks on lease; where there are none, wait so long for some."""

    async def listen_for_tasks(self, reaction_ids: Sequence[str], heard: int, wait_ms: int) -> int:
        """Wait until there may be tasks of these, at most so long. A hint, so it may be given up.

        `heard` is what the last call returned, 0 at first.
        """

    async def extend_tasks(self, owner: str, lease_ms: int, task_ids: Sequence[str]) -> list[str]:
        """Prolong leases; the ids of those the owner still holds."""

    async def settle_tasks(
        self, owner: str, outcomes: Sequence[TaskOutcome]
    ) -> list[TaskStatus | TapeError]:
        """What became of tasks the owner claimed; for each in order its status now, or why not."""

    async def get_task(self, task_id: str) -> Task | None: ...

    async def list_tasks(
        self, reaction_id: str, status: int = 0, limit: int = 0, after_task_id: str = ""
    ) -> list[Task]:
        """By reaction (empty is all), shard and source. Status 0 is any."""

    async def replay_dead_letters(self, reaction_id: str, task_ids: Sequence[str] = ()) -> int:
        """Queue dead letters again; without ids all of the reaction's. How many there were."""

    async def drop_dead_letters(self, reaction_id: str, task_ids: Sequence[str] = ()) -> int:
        """Give dead letters up for good; they stay on record as failed."""


class Tasks:
    def __init__(self, store: Store, writer: Writer, ids: UlidFactory, limits: Limits) -> None:
        self._store = store
        self._writer = writer
        self._ids = ids
        self._limits = limits
        self._known: set[str] = set()
        """Reactions that were seen in the store; what was registered once stays known."""

    async def claim_tasks(self, claim: Claim, wait_ms: int = 0) -> list[Task]:
        claim = self._checked(claim)
        await self._refuse_unknown([want.reaction_id for want in claim.wants])
        loop = asyncio.get_running_loop()
        give_up = loop.time() + min(wait_ms, WAIT_MOST_MS) / 1000
        while True:
            heard = self._store.tasks.task_bell
            found = await self._store.tasks.claim_tasks(claim)
            left = give_up - loop.time()
            if found or left <= 0:
                return found
            await self._listen([want.reaction_id for want in claim.wants], heard, left)

    async def listen_for_tasks(self, reaction_ids: Sequence[str], heard: int, wait_ms: int) -> int:
        for reaction_id in reaction_ids:
            check_name(reaction_id, self._limits, field="reaction_ids", required=True)
        await self._refuse_unknown(reaction_ids)
        return await self._listen(reaction_ids, heard, min(wait_ms, WAIT_MOST_MS) / 1000)

    async def _listen(self, reaction_ids: Sequence[str], heard: int, most_s: float) -> int:
        if heard == self._store.tasks.task_bell:
            pause = min(most_s, POLL_S)
            # Whoever waits may be cancelled at any time. A question that was asked is answered all
            # the same, for breaking it off would cost the store a session.
            asking = asyncio.ensure_future(self._store.tasks.read_next_due_ms(reaction_ids))
            asking.add_done_callback(_retrieve_error)
            due_ms = await asyncio.shield(asking)
            if due_ms is not None:
                pause = min(pause, max(due_ms, 1) / 1000)
            await self._store.tasks.await_tasks(heard, pause)
        return self._store.tasks.task_bell

    async def _refuse_unknown(self, reaction_ids: Sequence[str]) -> None:
        """A reaction that was deregistered is known: it may be registered again."""
        asked = [name for name in dict.fromkeys(reaction_ids) if name not in self._known]
        if asked:
            self._known.update(await self._store.tasks.read_known_reactions(asked))
            for reaction_id in asked:
                if reaction_id not in self._known:
                    raise NotFound(f"no reaction has the id {reaction_id!r}")

    def _checked(self, claim: Claim) -> Claim:
        check_name(claim.owner, self._limits, field="owner", required=True)
        most = self._limits.claim_tasks
        if not 0 < len(claim.wants) <= most:
            raise InvalidArgument(f"name 1..{most} reactions", field="reaction_id")
        for want in claim.wants:
            check_name(want.reaction_id, self._limits, field="reaction_id", required=True)
        wants = [
            want._replace(most=min(want.most, most) if want.most > 0 else DEFAULT_CLAIM)
            for want in claim.wants
        ]
        return claim._replace(
            lease_ms=_lease(claim.lease_ms), wants=wants, most=min(claim.most, most)
        )

    async def extend_tasks(self, owner: str, lease_ms: int, task_ids: Sequence[str]) -> list[str]:
        check_name(owner, self._limits, field="owner", required=True)
        keys = self._keys(task_ids)
        held = await self._store.tasks.extend_tasks(owner, _lease(lease_ms), keys) if keys else []
        return [key.task_id for key in held]

    async def settle_tasks(
        self, owner: str, outcomes: Sequence[TaskOutcome]
    ) -> list[TaskStatus | TapeError]:
        check_name(owner, self._limits, field="owner", required=True)
        keys = self._keys([outcome.task_id for outcome in outcomes])
        done = {k: None for k, o in zip(keys, outcomes, strict=True) if o.verdict == "done"}
        failures = [
            TaskFailure(
                key,
                outcome.error,
                outcome.verdict == "refused",
                outcome.verdict == "given_back",
                outcome.traceback,
            )
            for key, outcome in zip(keys, outcomes, strict=True)
            if outcome.verdict != "done"
        ]
        results: dict[TaskKey, TaskStatus | TapeError] = {}
        if done:
            results |= await self._complete(owner, list(done))
        if failures:
            ids = list(self._ids.take(len(failures)))
            statuses = await self._writer.submit(FailTasks(owner, failures, ids, self._limits))
            results |= zip((failure.key for failure in failures), statuses, strict=True)
        return [results[key] for key in keys]

    async def _complete(
        self, owner: str, keys: Sequence[TaskKey]
    ) -> dict[TaskKey, TaskStatus | TapeError]:
        settlement = await self._store.tasks.complete_tasks(owner, keys)
        results: dict[TaskKey, TaskStatus | TapeError]
        results = dict.fromkeys(settlement.done, TaskStatus.DONE)
        for key in settlement.others:
            task = await self._store.tasks.get_task(key)
            if task is None:
                results[key] = no_such_task(key.task_id)
            elif task.status in (TaskStatus.PENDING, TaskStatus.CLAIMED):
                results[key] = not_held(key.task_id, owner)
            else:
                results[key] = TaskStatus(task.status)
        return results

    async def get_task(self, task_id: str) -> Task | None:
        try:
            key = parse_task_id(task_id)
        except NotFound:
            return None
        return await self._store.tasks.get_task(key)

    async def list_tasks(
        self, reaction_id: str, status: int = 0, limit: int = 0, after_task_id: str = ""
    ) -> list[Task]:
        check_name(reaction_id, self._limits, field="reaction_id")
        if status and status not in tuple(TaskStatus):
            known = ", ".join(f"{each.value} ({each.name.lower()})" for each in TaskStatus)
            raise InvalidArgument(f"{status} is not one of {known}", field="status")
        after = parse_task_id(after_task_id, field="after_task_id") if after_task_id else None
        if reaction_id:
            await self._refuse_unknown([reaction_id])
        wanted = TaskStatus(status) if status else None
        most = min(limit, self._limits.claim_tasks) if limit > 0 else self._limits.claim_tasks
        return await self._store.tasks.list_tasks(reaction_id, wanted, after, most)

    async def replay_dead_letters(self, reaction_id: str, task_ids: Sequence[str] = ()) -> int:
        return await self._each_letter(ReplayDeadLetters, reaction_id, task_ids)

    async def drop_dead_letters(self, reaction_id: str, task_ids: Sequence[str] = ()) -> int:
        return await self._each_letter(DropDeadLetters, reaction_id, task_ids)

    async def _each_letter(
        self,
        move: Callable[[Sequence[TaskKey], Sequence[str]], Move[int]],
        reaction_id: str,
        task_ids: Sequence[str],
    ) -> int:
        check_name(reaction_id, self._limits, field="reaction_id", required=True)
        keys = self._keys(task_ids)
        for key in keys:
            if key.reaction_id != reaction_id:
                raise InvalidArgument(
                    f"{key.task_id!r} is not a task of {reaction_id!r}", field="task_ids"
                )
        await self._refuse_unknown([reaction_id])
        if task_ids:
            return await self._writer.submit(move(keys, list(self._ids.take(len(keys)))))
        total, after = 0, None
        while letters := await self._store.tasks.list_tasks(
            reaction_id, TaskStatus.DLQ, after, LETTERS_AT_ONCE
        ):
            keys = [letter.key for letter in letters]
            after = keys[-1]
            total += await self._writer.submit(move(keys, list(self._ids.take(len(keys)))))
        return total

    def _keys(self, task_ids: Sequence[str]) -> list[TaskKey]:
        if len(task_ids) > self._limits.request_events:
            raise TooLarge(f"{len(task_ids)} tasks, the limit is {self._limits.request_events}")
        return [parse_task_id(task_id) for task_id in task_ids]


def _retrieve_error(asked: "asyncio.Future[int | None]") -> None:
    """Its error is told to whoever waits; if nobody does any more, to nobody."""
    if not asked.cancelled():
        asked.exception()


def _lease(lease_ms: int) -> int:
    if lease_ms > LEASE_MOST_MS:
        raise InvalidArgument(f"{lease_ms} is more than a day", field="lease_ms")
    return lease_ms if lease_ms > 0 else DEFAULT_LEASE_MS


async def settle_one(tasks: TaskOperations, owner: str, outcome: TaskOutcome) -> Task:
    """What became of one task; as it is now."""
    (result,) = await tasks.settle_tasks(owner, [outcome])
    if isinstance(result, TapeError):
        raise result
    task = await tasks.get_task(outcome.task_id)
    if task is None:
        raise no_such_task(outcome.task_id)
    return task
