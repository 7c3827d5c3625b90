"""The matcher's side of Postgres; see ports/matching.py."""

from typing import Any, cast

import asyncpg

from tape.model.reaction import Reaction, ReactionCursor, ReactionState
from tape.ports.matching import CursorStep, MatcherLease, NewTask, Reactions, Step, StepResult
from tape.stores.postgres.pool import Pool
from tape.stores.postgres.turn import SQL

_REACTION_FIELDS = len(Reaction._fields)


class PostgresMatching:
    def __init__(self, steps: Pool, reads: Pool) -> None:
        self._steps = steps
        self._reads = reads

    async def acquire(self, owner: str, ttl_ms: int) -> MatcherLease | None:
        row = await self._steps.use(
            lambda connection: connection.fetchrow(SQL["acquire_matcher"], owner, ttl_ms),
            again=True,
        )
        return MatcherLease(*row) if row else None

    async def release(self, lease: MatcherLease) -> None:
        await self._steps.use(
            lambda connection: connection.execute(SQL["release_matcher"], lease.fencing_token),
            again=True,
        )

    async def read_reactions(self) -> Reactions:
        async def read(connection: asyncpg.Connection) -> Reactions:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                version = await connection.fetchval(SQL["read_book"])
                reactions = await connection.fetch(SQL["read_reactions"])
                cursors = await connection.fetch(SQL["read_cursors"])
            return Reactions(
                version,
                [Reaction(*row) for row in reactions],
                [ReactionCursor(*row) for row in cursors],
            )

        return await self._reads.use(read, again=True)

    async def make_step(self, step: Step) -> StepResult:
        cursors = list(zip(*step.cursors, strict=True)) or [()] * len(CursorStep._fields)
        tasks = list(zip(*step.tasks, strict=True)) or [()] * len(NewTask._fields)
        params: list[Any] = [
            step.lease.fencing_token, step.lease.position, step.position, step.ttl_ms, step.version,
            *cursors, *tasks,
        ]  # fmt: skip
        result = await self._steps.use(
            lambda connection: connection.fetchval(SQL["make_step"], *params), again=True
        )
        return cast("StepResult", result)

    async def list_reactions(self) -> list[ReactionState]:
        rows = await self._reads.use(
            lambda connection: connection.fetch(SQL["list_reactions"]), again=True
        )
        return [_state(row) for row in rows]


def _state(row: Any) -> ReactionState:
    state = ReactionState(Reaction(*row[:_REACTION_FIELDS]), *row[_REACTION_FIELDS:])
    return state._replace(following=bool(state.following))
