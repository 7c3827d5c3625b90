"""Appending in process: batches and single durable appends, on both stores."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks import peers
from benchmarks.result import Result, compare
from benchmarks.workload import (
    REPETITIONS,
    batches,
    event,
    on_loop,
    opened,
    postgres,
    record_all,
    sqlite_file,
)

BATCH = 1_000
EVENTS = 100_000
SHORT = 50_000
SQLITE_TURNS = 15
SINGLES = 32_000


def run() -> Iterator[Result]:
    with sqlite_file() as path:
        yield _sqlite_batches(path)
    with postgres() as server:
        url = server.create_database("bench")
        yield from _postgres_batches(url)
        yield _postgres_singles(url)


async def _ours(url: str, *, size: int, events: int, in_flight: int) -> float:
    work = batches(events // size, size) if size > 1 else [[event(i)] for i in range(events)]
    async with opened(url) as bus:
        await bus.record_events([event(0)])
        return await record_all(bus, work, in_flight)


def _sqlite_batches(path: Path) -> Result:
    """In many short turns: ours syncs the disk once per batch, the other side once in all, so the
    noise of a shared disk falls on one side only."""
    ours, theirs = [], []
    for turn in range(SQLITE_TURNS):
        ours.append(on_loop(_ours(f"sqlite:{path}", size=BATCH, events=SHORT, in_flight=1)))
        theirs.append(peers.executemany(path, peers.journal_rows(SHORT, (turn + 1) * 10**9)))
    return compare(
        "append batches of 1000, SQLite", "events/s", ours, "executemany, one transaction", theirs,
        n=SHORT, at_least=0.6,
    )  # fmt: skip


def _postgres_batches(url: str) -> Iterator[Result]:
    ours, copies, plain, functions = [], [], [], []
    on_loop(_ours(url, size=BATCH, events=BATCH, in_flight=1))
    library = peers.EventSourcing(url, functions=False)
    faster = peers.EventSourcing(url, functions=True)
    for _ in range(REPETITIONS):
        on_loop(peers.make_raw_table(url))
        ours.append(on_loop(_ours(url, size=BATCH, events=EVENTS, in_flight=2)))
        copies.append(on_loop(peers.copy_batches(url, peers.journal_rows(EVENTS), BATCH)))
        plain.append(library.append(EVENTS // 2, BATCH))
        functions.append(faster.append(EVENTS // 2, BATCH))
    library.close()
    faster.close()
    yield compare(
        "append batches of 1000, Postgres", "events/s", ours, "asyncpg COPY", copies,
        n=EVENTS, at_least=0.5,
    )  # fmt: skip
    best = max(plain, functions, key=lambda rates: sorted(rates)[len(rates) // 2])
    yield compare(
        "append batches of 1000, Postgres", "events/s", ours, "eventsourcing insert_events", best,
        n=EVENTS, at_least=1.5,
    )  # fmt: skip


def _postgres_singles(url: str) -> Result:
    ours, theirs = [], []
    for _ in range(REPETITIONS):
        on_loop(peers.make_raw_table(url))
        ours.append(on_loop(_ours(url, size=1, events=SINGLES, in_flight=64)))
        theirs.append(on_loop(peers.commit_singly(url, peers.journal_rows(SINGLES), 16)))
    return compare(
        "single appends, 64 at once, Postgres", "events/s", ours, "16 connections, no lock", theirs,
        n=SINGLES, at_least=1.5,
    )  # fmt: skip
