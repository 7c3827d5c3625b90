"""The matcher's side of Postgres; see `ports.matching`."""

from collections.abc import Sequence
from typing import Any, cast

import asyncpg

from tape.model.reaction import Reaction, ReactionCursor, ReactionState
from tape.ports.matching import (
    CursorMove,
    CursorStep,
    MatcherLease,
    MatchStep,
    NewTask,
    Queued,
    QueueTasks,
    RegisteredReactions,
    StepResult,
)
from tape.stores.bell import Bell
from tape.stores.postgres.pool import PostgresPool
from tape.stores.postgres.turn import SQL
from tape.stores.retained import recallable, refuse_absent

_REACTION_FIELDS = len(Reaction._fields)


class PostgresMatching:
    def __init__(
        self, reads: PostgresPool, quick: PostgresPool, writes: PostgresPool, bell: Bell
    ) -> None:
        self._reads = reads
        self._quick = quick
        self._writes = writes
        self._bell = bell

    async def acquire_matcher(self, owner: str, ttl_ms: int) -> MatcherLease | None:
        return await self._quick.row(MatcherLease, "acquire_matcher", owner, ttl_ms)

    async def release_matcher(self, lease: MatcherLease) -> None:
        await self._quick.execute("release_matcher", lease.fencing_token)

    async def read_reactions(self) -> RegisteredReactions:
        async def read(connection: asyncpg.Connection) -> RegisteredReactions:
            version = await connection.fetchval(SQL["read_book"])
            return RegisteredReactions(
                version,
                [Reaction(*row) for row in await connection.fetch(SQL["read_reactions"])],
                [ReactionCursor(*row) for row in await connection.fetch(SQL["read_cursors"])],
            )

        return await self._reads.at_once(read)

    async def make_step(self, step: MatchStep) -> StepResult:
        cursors, tasks = _columns(step.cursors, CursorStep), _columns(step.tasks, NewTask)
        params: list[Any] = [
            step.lease.fencing_token, step.lease.position, step.position, step.ttl_ms, step.version,
            *cursors, *tasks,
        ]  # fmt: skip

        async def make(connection: asyncpg.Connection) -> StepResult:
            if not step.put_off:
                return cast("StepResult", await connection.fetchval(SQL["make_step"], *params))
            async with connection.transaction():
                result: StepResult = await connection.fetchval(SQL["make_step"], *params)
                if result == "made":
                    await connection.execute(SQL["put_off_reactions"], list(step.put_off))
            return result

        result = await self._quick.use(make, again=True)
        if step.tasks:
            self._bell.ring()
        return result

    async def queue_tasks(self, step: QueueTasks) -> Queued:
        # Made again it finds its tasks made and its cursors moved, and says so: never twice.
        return await self._writes.use(lambda connection: _queue_tasks(connection, step), again=True)

    async def list_reactions(self) -> list[ReactionState]:
        return await self._reads.rows(_state_of, "list_reactions")


async def _queue_tasks(connection: asyncpg.Connection, step: QueueTasks) -> Queued:
    params = [step.version, *_columns(step.moves, CursorMove), *_columns(step.tasks, NewTask)]
    async with connection.transaction():
        pruned_through = await connection.fetchval(SQL["hold_pruning"])
        if back := recallable(step.entries, pruned_through):
            await connection.execute(SQL["recall_entries"], *zip(*back, strict=True))
        row = await connection.fetchrow(SQL["queue_tasks"], *params)
        result, reaction_ids, counts = row or ("outdated", [], [])
        if result == "made":
            old = [t.source_global_seq for t in step.tasks if t.source_global_seq <= pruned_through]
            refuse_absent(await connection.fetchval(SQL["find_absent"], old) if old else None)
    made = dict(zip(reaction_ids or (), counts or (), strict=True))
    return Queued(cast("StepResult", result), made)


def _columns(rows: Sequence[tuple[Any, ...]], kind: Any) -> list[tuple[Any, ...]]:
    """Rows of a named tuple as one array for each field."""
    return list(zip(*rows, strict=True)) or [()] * len(kind._fields)


def _state_of(*row: Any) -> ReactionState:
    state = ReactionState(Reaction(*row[:_REACTION_FIELDS]), *row[_REACTION_FIELDS:])
    return state._replace(following=bool(state.following))
