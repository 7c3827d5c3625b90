"""Following in process: how fast through history, how soon after an append."""

import asyncio
import time
from collections.abc import Iterator
from statistics import median

from benchmarks import peers
from benchmarks.result import Result, compare
from benchmarks.workload import (
    REPETITIONS,
    batches,
    on_loop,
    opened,
    postgres,
    record_all,
    sqlite_file,
)
from tape.bus import FollowQuery, Operations
from tape.model.event import NewEvent

EVENTS = 200_000
PAGE = 1_000
BEATS = 200
BEAT_S = 0.005
PATTERN = "/tape/event/recorded/price.changed/**"


def run() -> Iterator[Result]:
    with sqlite_file() as path:
        url = f"sqlite:{path}"
        on_loop(_fill(url))
        theirs = [peers.read_raw_sqlite(path, EVENTS, PAGE) for _ in range(REPETITIONS)]
        yield _through_history("SQLite", url, "bare SELECT, sqlite3", theirs)
        yield _after_append("SQLite", url)
    with postgres() as server:
        url = server.create_database("bench")
        on_loop(_fill(url))
        theirs = [on_loop(peers.read_raw(url, EVENTS, PAGE)) for _ in range(REPETITIONS)]
        yield _through_history("Postgres", url, "bare SELECT, asyncpg", theirs)
        yield _after_append("Postgres", url)


async def _fill(url: str) -> None:
    async with opened(url) as bus:
        await record_all(bus, batches(EVENTS // 1000, 1000), 2)


def _through_history(store: str, url: str, against: str, theirs: list[float]) -> Result:
    ours = [on_loop(_read(url)) for _ in range(REPETITIONS)]
    return compare(
        f"follow, in process, {store}", "entries/s", ours, against, theirs,
        n=EVENTS, at_least=100_000, absolute=True,
    )  # fmt: skip


async def _read(url: str) -> float:
    async with opened(url) as bus:
        return await read_through(bus, EVENTS)


async def read_through(bus: Operations, count: int) -> float:
    """Entries/s from the beginning, matched by pattern."""
    seen = 0
    started = time.perf_counter()
    async for page in bus.follow(FollowQuery(PATTERN, max_batch=PAGE)):
        seen += len(page.entries)
        if seen >= count:
            break
    return seen / (time.perf_counter() - started)


def _after_append(store: str, url: str) -> Result:
    ours, writes = [], []
    for _ in range(REPETITIONS):
        arrived, acknowledged = on_loop(_latencies(url))
        ours.append(arrived)
        writes.append(acknowledged)
    return compare(
        f"append to follower p50, one process, {store}", "ms", ours, "the append's own ack", writes,
        n=BEATS, at_most=3.0, absolute=True,
    )  # fmt: skip


async def _latencies(url: str) -> tuple[float, float]:
    async with opened(url) as bus:
        return await light_load(bus, bus)


async def light_load(writer: Operations, reader: Operations) -> tuple[float, float]:
    """p50 in ms from before an append to its arrival, and to its acknowledgement."""
    head = (await writer.info()).head_global_seq
    arrivals: list[float] = []
    acks: list[float] = []

    async def read() -> None:
        async for page in reader.follow(FollowQuery("/tape/event/recorded/beat/**", after=head)):
            now = time.perf_counter()
            arrivals.extend(now - entry.payload for entry in page.entries)
            if len(arrivals) >= BEATS:
                return

    reading = asyncio.create_task(read())
    for _ in range(BEATS):
        await asyncio.sleep(BEAT_S)
        started = time.perf_counter()
        await writer.record_events([NewEvent("beat", repr(started))])
        acks.append(time.perf_counter() - started)
    await reading
    return median(arrivals) * 1000, median(acks) * 1000
