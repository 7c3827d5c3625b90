"""Other task queues on Postgres, each as its own documentation has it at its fastest.

pgqueuer: asyncpg, a connection of its own for each queue manager, recommended autovacuum settings,
durable tables, jobs enqueued in batches. procrastinate: psycopg's asynchronous pool, jobs deferred
in batches, LISTEN/NOTIFY on. Both on the same loop as ours and as durable as they ship.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import asyncpg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode
from procrastinate import App, PsycopgConnector

from benchmarks.workload import PAYLOAD

ENTRYPOINT = "bench"
ENQUEUED_AT_ONCE = 5_000
DEFERRED_AT_ONCE = 1_000

Send = Callable[[bytes], Awaitable[object]]


class PgqueuerTuning(NamedTuple):
    batch: int
    managers: int = 1

    def __str__(self) -> str:
        return f"pgqueuer, batches of {self.batch}, {self.managers} x"


PGQUEUER_TUNINGS = (
    PgqueuerTuning(100),
    PgqueuerTuning(500),
    PgqueuerTuning(1000),
    PgqueuerTuning(100, managers=2),
    PgqueuerTuning(250, managers=2),
)
PROCRASTINATE_CONCURRENCIES = (10, 30)


async def pgqueuer_drain(url: str, count: int, tuning: PgqueuerTuning) -> float:
    """Jobs/s in drain mode, from a backlog of so many to none."""
    async with AsyncExitStack() as stack:
        producer = await _pgqueuer(url, stack)
        for start in range(0, count, ENQUEUED_AT_ONCE):
            some = min(ENQUEUED_AT_ONCE, count - start)
            await producer.enqueue([ENTRYPOINT] * some, [PAYLOAD.encode()] * some, [0] * some)

        async def handle(_job: Job) -> None:
            pass

        managers = [QueueManager(await _pgqueuer(url, stack)) for _ in range(tuning.managers)]
        for manager in managers:
            manager.entrypoint(ENTRYPOINT)(handle)
        started = time.perf_counter()
        await asyncio.gather(
            *(m.run(batch_size=tuning.batch, mode=QueueExecutionMode.drain) for m in managers)
        )
        return count / (time.perf_counter() - started)


@asynccontextmanager
async def pgqueuer_worker(
    url: str, heard: Callable[[bytes], None], batch: int
) -> AsyncIterator[Send]:
    """A worker that tells each job's payload as it starts; sends one job at a time."""
    async with AsyncExitStack() as stack:
        producer = await _pgqueuer(url, stack)
        manager = QueueManager(await _pgqueuer(url, stack))

        async def handle(job: Job) -> None:
            heard(job.payload or b"")

        manager.entrypoint(ENTRYPOINT)(handle)
        running = asyncio.create_task(manager.run(batch_size=batch))
        yield lambda payload: producer.enqueue(ENTRYPOINT, payload)
        manager.shutdown.set()
        await running


async def _pgqueuer(url: str, stack: AsyncExitStack) -> Queries:
    connection = await asyncpg.connect(url)
    stack.push_async_callback(connection.close)
    queries = Queries(AsyncpgDriver(connection))
    if not await queries.schema_is_installed():
        await queries.install()
        await queries.optimize_autovacuum()
    return queries


async def procrastinate_drain(url: str, count: int, concurrency: int) -> float:
    async with _procrastinate(url, concurrency) as app:

        @app.task(name=ENTRYPOINT)
        async def handle(payload: str) -> None:
            pass

        for start in range(0, count, DEFERRED_AT_ONCE):
            some: list[Any] = [{"payload": PAYLOAD}] * min(DEFERRED_AT_ONCE, count - start)
            await handle.batch_defer_async(*some)
        started = time.perf_counter()
        await app.run_worker_async(
            concurrency=concurrency, wait=False, install_signal_handlers=False
        )
        return count / (time.perf_counter() - started)


@asynccontextmanager
async def procrastinate_worker(
    url: str, heard: Callable[[bytes], None], concurrency: int
) -> AsyncIterator[Send]:
    async with _procrastinate(url, concurrency) as app:

        @app.task(name=ENTRYPOINT)
        async def handle(payload: str) -> None:
            heard(payload.encode())

        running = asyncio.create_task(
            app.run_worker_async(concurrency=concurrency, install_signal_handlers=False)
        )
        yield lambda payload: handle.defer_async(payload=payload.decode())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def _procrastinate(url: str, concurrency: int) -> AsyncIterator[App]:
    pool = PsycopgConnector(conninfo=url, min_size=4, max_size=concurrency + 4)
    app = App(connector=pool)
    async with app.open_async():
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()
        yield app
