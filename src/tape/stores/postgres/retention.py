"""Removing old entries from Postgres; see `ports.retention`."""

import asyncpg

from tape.ports.retention import Extent, PruneStep, Retention, RetentionHold, StepDone
from tape.stores.postgres.pool import PostgresPool
from tape.stores.postgres.turn import SQL
from tape.stores.recent import Recent
from tape.stores.retained import count_kept, refuse_gap, step_limit


class PostgresRetention:
    def __init__(self, reads: PostgresPool, quick: PostgresPool, recent: Recent) -> None:
        self._reads = reads
        self._quick = quick
        self._recent = recent

    async def read_pruned_through(self) -> int:
        return await self._reads.use(_read_pruned_through, again=True)

    async def read_retention(self) -> Retention:
        async def read(connection: asyncpg.Connection) -> Retention:
            first = await connection.fetchval(SQL["read_tail"])
            head = await connection.fetchval(SQL["read_head"])
            pruned = await _read_pruned_through(connection)
            return Retention(pruned, first, head, await _read_holds(connection))

        return await self._reads.at_once(read)

    async def prune(self, step: PruneStep) -> StepDone:
        # What a lost connection leaves in the dark the next step sees: it may be made twice.
        done = await self._quick.use(lambda connection: _prune(connection, step), again=True)
        self._recent.forget(done.through)
        return done

    async def measure(self, after: int, upto: int) -> Extent:
        (extent,) = await self._reads.rows(Extent, "measure_range", after, upto)
        return extent


async def _prune(connection: asyncpg.Connection, step: PruneStep) -> StepDone:
    async with connection.transaction():
        # Under this lock no reaction is registered. Each statement below sees what was committed
        # before it, so a cursor that has passed an entry shows the tasks that were made of it.
        pruned = await connection.fetchval(SQL["take_pruning"])
        refuse_gap(step, pruned)
        head = await connection.fetchval(SQL["read_head"])
        limit = step_limit(step, head, await _read_holds(connection))
        if limit <= step.after:
            return StepDone(step.after, 0, pruned, {})
        (found,) = await connection.fetch(SQL["find_prune_end"], step.after, limit, step.most)
        count, last = found
        through = last if count == step.most else limit
        kept = await connection.fetch(SQL["find_kept"], step.after, through)
        numbers = [seq for seq, _why in kept]
        done = await connection.execute(SQL["prune_entries"], step.after, through, numbers)
        await connection.execute(SQL["advance_pruned"], through)
    return StepDone(through, int(done.split()[-1]), max(pruned, through), count_kept(kept))


async def _read_pruned_through(connection: asyncpg.Connection) -> int:
    pruned: int = await connection.fetchval(SQL["read_pruned_through"])
    return pruned


async def _read_holds(connection: asyncpg.Connection) -> list[RetentionHold]:
    return [RetentionHold(*row) for row in await connection.fetch(SQL["read_holds"])]
