"""What a client says about reactions and tasks: the half of its face that others do without."""

from collections.abc import Iterable, Sequence
from typing import Unpack

from tape.bus import Operations
from tape.errors import InvalidArgument, TapeError
from tape.model.reaction import NewReaction, Reaction, ReactionState
from tape.model.task import ANY_SHARD, Task, TaskOutcome, TaskStatus, failed_task
from tape.ports.tasks import Claim, Want
from tape.reactions.settings import Options, in_pool, new_reaction
from tape.reactions.tasks import DEFAULT_CLAIM, DEFAULT_LEASE_MS, settle_one
from tape.runs.declare import DECLARED_APPS

TASKS_PAGE = 1_000


class ReactionMethods:
    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def register_reaction(
        self, reaction: str | NewReaction, subject_pattern: str = "", **options: Unpack[Options]
    ) -> Reaction:
        """Register a reaction. If it exists, update its settings; its cursor does not move.

        `reaction` is its id, with the options of `tape.on`, or a NewReaction that has all of them.
        An empty id is derived from what the reaction does.
        """
        if isinstance(reaction, NewReaction):
            if subject_pattern or options:
                raise InvalidArgument("already has all settings: give no others", field="reaction")
            return await self._operations.reactions.register_reaction(reaction)
        if options.setdefault("reaction_id", reaction) != reaction:
            raise InvalidArgument("is already the first argument", field="reaction_id")
        new = in_pool(new_reaction(subject_pattern, **options), DECLARED_APPS.apps)
        return await self._operations.reactions.register_reaction(new)

    async def deregister_reaction(self, reaction_id: str) -> bool:
        """Stop a reaction. Returns False if it does not exist. Its tasks stay but cannot be
        claimed.
        """
        return await self._operations.reactions.deregister_reaction(reaction_id)

    async def list_reactions(self, subject_pattern: str = "") -> list[ReactionState]:
        """Return reactions with their state: all, those with this pattern, or those that match this
        subject.
        """
        return await self._operations.reactions.list_reactions(subject_pattern)

    async def claim_tasks(
        self,
        reaction_ids: str | Iterable[str],
        *,
        owner: str,
        most: int = DEFAULT_CLAIM,
        shard: int = ANY_SHARD,
        lease_ms: int = DEFAULT_LEASE_MS,
        wait_ms: int = 0,
    ) -> list[Task]:
        """Claim up to `most` tasks of each reaction; if there are none, wait for some."""
        named = [reaction_ids] if isinstance(reaction_ids, str) else list(reaction_ids)
        wants = [Want(reaction_id, shard, most) for reaction_id in named]
        return await self._operations.tasks.claim_tasks(Claim(owner, lease_ms, wants), wait_ms)

    async def extend_tasks(
        self, task_ids: Sequence[str], *, owner: str, lease_ms: int = DEFAULT_LEASE_MS
    ) -> list[str]:
        """Renew leases from now on. Returns the ids of the tasks that the owner still holds."""
        return await self._operations.tasks.extend_tasks(owner, lease_ms, task_ids)

    async def complete_task(self, task_id: str, *, owner: str) -> Task:
        """Mark a task as done and return it. A repeat changes nothing."""
        return await settle_one(self._operations.tasks, owner, TaskOutcome(task_id))

    async def nack_task(
        self,
        task_id: str,
        *,
        owner: str,
        error: str = "",
        permanent: bool = False,
        traceback: str = "",
    ) -> Task:
        """Report that a task failed, and return it. It is retried later unless `permanent`."""
        outcome = failed_task(task_id, error, permanent=permanent, traceback=traceback)
        return await settle_one(self._operations.tasks, owner, outcome)

    async def settle_tasks(
        self, outcomes: Iterable[TaskOutcome], *, owner: str
    ) -> list[TaskStatus | TapeError]:
        """Report many outcomes. Returns for each, in order, its new status or the refusal."""
        return await self._operations.tasks.settle_tasks(owner, list(outcomes))

    async def get_task(self, task_id: str) -> Task | None:
        """Return a task; None if it does not exist."""
        return await self._operations.tasks.get_task(task_id)

    async def list_tasks(
        self, reaction_id: str = "", *, status: TaskStatus | None = None, limit: int = TASKS_PAGE
    ) -> list[Task]:
        """Return at most `limit` tasks of any status, by reaction, shard and source."""
        found: list[Task] = []
        while len(found) < limit:
            after = found[-1].task_id if found else ""
            page = await self._operations.tasks.list_tasks(
                reaction_id, status or 0, min(limit - len(found), TASKS_PAGE), after
            )
            if not page:
                break
            found += page
        return found

    async def replay_dead_letters(self, reaction_id: str, task_ids: Sequence[str] = ()) -> int:
        """Queue dead letters again; without ids, all of the reaction. Returns how many."""
        return await self._operations.tasks.replay_dead_letters(reaction_id, task_ids)

    async def drop_dead_letters(self, reaction_id: str, task_ids: Sequence[str] = ()) -> int:
        """Give dead letters up for good. They stay on record as failed. Returns how many."""
        return await self._operations.tasks.drop_dead_letters(reaction_id, task_ids)
