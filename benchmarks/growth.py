"""Does it stay fast: the cost of appending and of resuming at 10^4 and at 10^6 entries."""

import time
from collections.abc import Iterator

from benchmarks.result import Result, compare
from benchmarks.workload import (
    batches,
    on_loop,
    opened,
    postgres,
    record_all,
    sqlite_file,
)
from tape.bus import FollowQuery

SMALL = 10_000
LARGE = 1_000_000
PROBE = 20_000
PROBES = 5
RESUMES = 200


def run() -> Iterator[Result]:
    with sqlite_file() as path:
        yield from _grow("SQLite", f"sqlite:{path}")
    with postgres() as server:
        yield from _grow("Postgres", server.create_database("bench"))


def _grow(store: str, url: str) -> Iterator[Result]:
    on_loop(_fill(url, SMALL))
    early_append, early_resume = _probe(url)
    on_loop(_fill(url, LARGE))
    late_append, late_resume = _probe(url)
    yield compare(
        f"cost of an append at 10^6 entries, {store}", "us/entry", late_append,
        "the same at 10^4", early_append, n=PROBE, at_most=1.3,
    )  # fmt: skip
    yield compare(
        f"cost of resuming at the end of 10^6, {store}", "us", late_resume,
        "the same at 10^4", early_resume, n=RESUMES, at_most=1.5,
    )  # fmt: skip


async def _fill(url: str, upto: int) -> None:
    async with opened(url) as bus:
        head = (await bus.info()).head_global_seq
        while head < upto:
            count = min(50_000, upto - head)
            await record_all(bus, batches(count // 1000, 1000), 2)
            head += count


def _probe(url: str) -> tuple[list[float], list[float]]:
    """µs per entry appended in batches of 1000, and per cursor resumed 10 entries from the end."""
    appends = [1e6 / on_loop(_append(url)) for _ in range(PROBES)]
    resumes = [on_loop(_resume(url)) for _ in range(PROBES)]
    return appends, resumes


async def _append(url: str) -> float:
    work = batches(PROBE // 1000 // PROBES, 1000)
    async with opened(url) as bus:
        await record_all(bus, work[:1], 1)
        return await record_all(bus, work, 1)


async def _resume(url: str) -> float:
    async with opened(url) as bus:
        head = (await bus.info()).head_global_seq
        started = time.perf_counter()
        for _ in range(RESUMES):
            async for page in bus.follow(FollowQuery("/tape/**", after=head - 10)):
                assert len(page.entries) == 10
                break
        return (time.perf_counter() - started) / RESUMES * 1e6
