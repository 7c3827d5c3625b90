"""The queue of tasks in Postgres; see `ports.tasks`.

A claimer remembers, for each reaction and shard, the source up to which it has seen every task that
never had to wait, and begins there the next time. Without that it would step over every claimed and
completed row again that a foreign transaction keeps from being cleaned up. What it may have missed
(a claim that was rolled back) it finds by beginning anew every few seconds, more seldom
the longer that takes.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import orjson

from tape.model.task import Task, TaskKey, TaskStatus
from tape.ports.tasks import Claim, Settlement
from tape.stores.bell import Bell
from tape.stores.postgres.pool import PostgresPool
from tape.stores.postgres.turn import SQL
from tape.stores.task_rows import listings, merged, start_after, task_of

ANEW_EVERY_S = 2.0
ANEW_SHARE = 0.05
"""The part of the time that beginning anew may take."""


class PostgresTasks:
    def __init__(
        self, reads: PostgresPool, quick: PostgresPool, writes: PostgresPool, bell: Bell
    ) -> None:
        self._reads = reads
        self._quick = quick
        self._writes = writes
        self._bell = bell
        self._seen: dict[str, _SeenShards] = {}

    async def claim_tasks(self, claim: Claim) -> list[Task]:
        if not claim.wants:
            return []
        after: dict[str, int] = {}
        anew: list[_SeenShards] = []
        started = time.monotonic()
        for want in claim.wants:
            seen = self._seen.setdefault(want.reaction_id, _SeenShards())
            if seen.is_old(started):
                anew.append(seen)
                seen.upto.clear()
            after |= seen.upto
        reactions, shards, most = zip(*claim.wants, strict=True)
        rows = await self._quick.use(
            _fetching(
                "claim_tasks", claim.owner, claim.lease_ms, reactions, shards, most, claim.most,
                orjson.dumps(after).decode(),
            ),
            again=False,
        )  # fmt: skip
        for seen in anew:
            seen.began(started, time.monotonic() - started)
        fresh = sorted((task_of(row[1:]) for row in rows if not row[0]), key=_by_source)
        for task in fresh:
            self._seen[task.reaction_id].note(task)
        return [*(task_of(row[1:]) for row in rows if row[0]), *fresh]

    async def extend_tasks(
        self, owner: str, lease_ms: int, keys: Sequence[TaskKey]
    ) -> list[TaskKey]:
        if not keys:
            return []
        return await self._writes.rows(TaskKey, "extend_tasks", owner, lease_ms, *_in_order(keys))

    async def complete_tasks(self, owner: str, keys: Sequence[TaskKey]) -> Settlement:
        if not keys:
            return Settlement([], [])
        done = await self._writes.rows(TaskKey, "complete_tasks", owner, *_in_order(keys))
        return Settlement(done, sorted(set(keys).difference(done)))

    async def read_expired(self, limit: int) -> list[TaskKey]:
        return await self._reads.rows(TaskKey, "read_expired", limit)

    async def read_known_reactions(self, reaction_ids: Sequence[str]) -> list[str]:
        return await self._reads.rows(str, "read_known_reactions", list(reaction_ids))

    async def read_next_due_ms(self, reaction_ids: Sequence[str]) -> int | None:
        ((due_ms,),) = await self._reads.use(
            _fetching("read_next_due", list(reaction_ids)), again=True
        )
        return None if due_ms is None else max(0, due_ms)

    async def get_task(self, key: TaskKey) -> Task | None:
        rows = await self._reads.use(_fetching("get_task", *key), again=True)
        return task_of(rows[0]) if rows else None

    async def list_tasks(
        self, reaction_id: str, status: TaskStatus | None, after: TaskKey | None, limit: int
    ) -> list[Task]:
        found: list[Task] = []
        for name in listings(status):
            start = start_after(reaction_id, after)
            rows = await self._reads.use(
                _fetching(name, *start, reaction_id, int(status or 0), limit), again=True
            )
            found += map(task_of, rows)
        return merged(found, limit)

    @property
    def task_bell(self) -> int:
        return self._bell.count

    async def await_tasks(self, heard: int, timeout_s: float) -> int:
        return await self._bell.wait(heard, timeout_s)


class _SeenShards:
    """How far one reaction's shards have been seen, and when that was last looked at anew."""

    def __init__(self) -> None:
        self.upto: dict[str, int] = {}
        self._next = 0.0

    def is_old(self, now: float) -> bool:
        return now >= self._next

    def began(self, started: float, took: float) -> None:
        self._next = started + max(ANEW_EVERY_S, took / ANEW_SHARE)

    def note(self, task: Task) -> None:
        shard = f"{task.reaction_id}/{task.shard}"
        self.upto[shard] = max(self.upto.get(shard, 0), task.source_global_seq)


def _in_order(keys: Sequence[TaskKey]) -> "zip[tuple[Any, ...]]":
    """As columns, by key: whoever locks several tasks locks them in this order."""
    return zip(*sorted(keys), strict=True)


def _by_source(task: Task) -> int:
    return task.source_global_seq


def _fetching(name: str, *params: object) -> Callable[[asyncpg.Connection], Awaitable[list[Any]]]:
    return lambda connection: connection.fetch(SQL[name], *params)
