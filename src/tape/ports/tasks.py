"""The queue of tasks, as dispatchers work it: `store.tasks`.

These changes make no entry, so they need no turn to write: dispatchers claim side by side. What
may end in the journal (a failure, a lease that ran out, a replay) is a move (`model.task`).

* A claim gives a task to one owner until its lease runs out, counts the attempt, and never lets the
  tasks in hand of a reaction exceed its `max_concurrency`, nor their starts its `rate_limit_per_s`,
  whatever number of processes ask. A claim that a crash of the database undoes was never made:
  the task is claimed again. All else that returns is durable.
* Tasks that wait for a time come in the order of that time, before those that never waited, which
  come in the order of their source entries.
* The cost of a claim depends on how many tasks it gives out; not on how many are done, nor on
  what another transaction in the same database keeps from being cleaned up.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tape.model.task import Task, TaskKey, TaskStatus


class Want(NamedTuple):
    """At most `most` tasks of a reaction; a negative shard is any.

    Once a reaction has fewer shards, tasks of a shard that is gone are given to who asks for the
    shard that has its number's remainder, and to who asks for that very shard.
    """

    reaction_id: str
    shard: int
    most: int


class Claim(NamedTuple):
    """`most` is over all wants; which of them come first changes from claim to claim."""

    owner: str
    lease_ms: int
    wants: Sequence[Want]
    most: int = 1_000


class Settlement(NamedTuple):
    """What a completion found: `done` now, and those that this owner could not complete."""

    done: list[TaskKey]
    others: list[TaskKey]


class TaskStore(Protocol):
    async def claim_tasks(self, claim: Claim) -> list[Task]:
        """Give tasks to the owner. Unknown and deregistered reactions have none."""

    async def extend_tasks(
        self, owner: str, lease_ms: int, keys: Sequence[TaskKey]
    ) -> list[TaskKey]:
        """Prolong leases; those the owner still holds."""

    async def complete_tasks(self, owner: str, keys: Sequence[TaskKey]) -> Settlement:
        """End tasks as done, durably: those last claimed by this owner, lease run out or not."""

    async def read_expired(self, limit: int) -> list[TaskKey]:
        """Claimed tasks whose lease has run out, longest first."""

    async def read_known_reactions(self, reaction_ids: Sequence[str]) -> list[str]:
        """Those of them that were ever registered."""

    async def read_next_due_ms(self, reaction_ids: Sequence[str]) -> int | None:
        """How long until one of these that waits is due, or a rate allows one; None if none."""

    async def get_task(self, key: TaskKey) -> Task | None: ...

    async def list_tasks(
        self, reaction_id: str, status: TaskStatus | None, after: TaskKey | None, limit: int
    ) -> list[Task]:
        """By reaction, shard and source, after a key; without a status, whatever they are at."""

    @property
    def task_bell(self) -> int:
        """Counts the times that there may have been new tasks, as far as this process heard."""

    async def await_tasks(self, heard: int, timeout_s: float) -> int:
        """Wait until the bell has rung since `heard`, or for so long; the bell."""
