"""Does draining stay fast: with millions of done tasks on record, and while a foreign transaction
keeps what was deleted from being cleaned up.

The done tasks are written by one INSERT; nothing is vacuumed or analysed by hand afterwards.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg

from benchmarks import tasks
from benchmarks.result import Result, compare
from benchmarks.tasks_drain import TASKS
from benchmarks.workload import on_loop, opened, postgres

TURNS = 3
DONE = 2_000_000
LARGE = 100_000
_WRITE_DONE = f"""
INSERT INTO tape_task_ended (
  reaction_id, shard, source_global_seq, status, attempts, lease_owner, last_error, created_at_ms,
  completed_at_ms)
SELECT '{tasks.REACTION}', 0, n - $1::bigint, 3, 1, 'bench', '', 0, 0
FROM generate_series(1, $1::bigint) AS n
"""  # sources below 1, so that they come before those of the tasks to drain


def run() -> Iterator[Result]:
    with postgres() as server:
        yield _after_many(server.create_database("young"), server.create_database("old"))
    with postgres() as server:
        names = (f"bench{number}" for number in itertools.count())
        alone, watched = [], []
        for _ in range(TURNS):
            alone.append(on_loop(tasks.drain(server.create_database(next(names)), LARGE)))
            watched.append(on_loop(_drain_watched(server.create_database(next(names)))))
    yield compare(
        f"drain {LARGE:,} tasks beside an open snapshot, Postgres", "tasks/s", watched,
        "the same without", alone, n=LARGE, at_least=0.8,
    )  # fmt: skip


def _after_many(young: str, old: str) -> Result:
    on_loop(_write_done(old))
    early, late = [], []
    for _ in range(TURNS):
        early.append(on_loop(tasks.drain(young, TASKS)))
        late.append(on_loop(tasks.drain(old, TASKS)))
    return compare(
        f"drain {TASKS:,} tasks after {DONE:,}, Postgres", "tasks/s", late,
        "the same on a new database", early, n=TASKS, at_least=0.8,
    )  # fmt: skip


async def _write_done(url: str) -> None:
    async with opened(url) as bus:
        await tasks.register(bus)
    connection = await asyncpg.connect(url)
    await connection.execute(_WRITE_DONE, DONE, timeout=300)
    await connection.execute("CHECKPOINT", timeout=300)
    await connection.close()


async def _drain_watched(url: str) -> float:
    async with opened(url) as bus:
        await tasks.register(bus)
    async with _open_snapshot(url):
        return await tasks.drain(url, LARGE)


@asynccontextmanager
async def _open_snapshot(url: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.fetchval("SELECT count(*) FROM tape_task_queue")
        yield
    finally:
        await asyncio.wait_for(connection.close(), 10)
