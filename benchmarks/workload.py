"""What is written and how it is timed: 300-byte payloads, as a market feed would send them."""

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import uvloop

from tape.bus import Bus, Operations
from tape.model.event import NewEvent
from tape.programs.connect import open_bus
from tests.servers.postgres import PostgresServer

T = TypeVar("T")

REPETITIONS = 5
PAYLOAD = '{"symbol":"BTCUSDT","price":101.5,"volume":17.25,"note":"' + "x" * 240 + '"}'


def event(number: int) -> NewEvent:
    return NewEvent("price.changed", PAYLOAD, "asset", str(number), source="bench")


def batches(count: int, size: int) -> list[list[NewEvent]]:
    return [[event(k * size + i) for i in range(size)] for k in range(count)]


async def record_all(bus: Operations, work: Sequence[list[NewEvent]], in_flight: int) -> float:
    """Events per second, with so many requests under way at once."""

    async def produce(part: Sequence[list[NewEvent]]) -> None:
        for batch in part:
            await bus.record_events(batch)

    # The prepared events are the benchmark's own: the collector need not look through them while
    # the clock runs. What is measured allocates and is collected as ever.
    gc.collect()
    gc.freeze()
    started = time.perf_counter()
    await asyncio.gather(*(produce(work[k::in_flight]) for k in range(in_flight)))
    elapsed = time.perf_counter() - started
    gc.unfreeze()
    return sum(map(len, work)) / elapsed


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Bus]:
    bus = await open_bus(url)
    try:
        yield bus
    finally:
        await bus.close()


@contextlib.contextmanager
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@contextlib.contextmanager
def sqlite_file() -> Iterator[Path]:
    with TemporaryDirectory(prefix="tape-bench-") as folder:
        yield Path(folder) / "tape.db"


def on_loop(work: Coroutine[object, object, T]) -> T:
    """Run to the end on the loop that `tape serve` uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
