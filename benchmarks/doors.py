"""The same through a server process: `tape serve` on Postgres, spoken to over gRPC."""

from collections.abc import Iterator

from benchmarks import peers
from benchmarks.follow import BEATS, light_load, read_through
from benchmarks.result import Result, compare
from benchmarks.workload import REPETITIONS, batches, on_loop, postgres, record_all
from tape.bus import Operations
from tape.programs.connect import open_operations
from tape.settings import Settings
from tests.servers.tape_server import ServerProcess

BATCH = 100
EVENTS = 60_000
FOLLOWED = 150_000
IN_FLIGHT = 8
PAGE = 1_000


def run() -> Iterator[Result]:
    with postgres() as database:
        store = database.create_database("bench")
        with ServerProcess(store) as server:
            yield _appends(server.url, store)
            yield _follows(server.url, store)
            yield _latency(server.url)


def _appends(url: str, store: str) -> Result:
    ours, theirs = [], []
    for _ in range(REPETITIONS):
        on_loop(peers.make_raw_table(store))
        ours.append(on_loop(_record(url)))
        theirs.append(on_loop(peers.copy_batches(store, peers.journal_rows(EVENTS), 1_000)))
    return compare(
        "append batches of 100 through gRPC, Postgres", "events/s", ours, "asyncpg COPY of 1000",
        theirs, n=EVENTS, at_least=0.25,
    )  # fmt: skip


async def _record(url: str) -> float:
    bus = await _reach(url)
    try:
        return await record_all(bus, batches(EVENTS // BATCH, BATCH), IN_FLIGHT)
    finally:
        await bus.close()


def _follows(url: str, store: str) -> Result:
    ours, theirs = [], []
    for _ in range(REPETITIONS):
        ours.append(on_loop(_read(url)))
        theirs.append(on_loop(peers.read_raw(store, FOLLOWED, PAGE)))
    return compare(
        "follow through gRPC, Postgres", "entries/s", ours, "bare SELECT, asyncpg", theirs,
        n=FOLLOWED, at_least=50_000, absolute=True,
    )  # fmt: skip


async def _read(url: str) -> float:
    bus = await _reach(url)
    try:
        return await read_through(bus, FOLLOWED)
    finally:
        await bus.close()


def _latency(url: str) -> Result:
    ours, acks = [], []
    for _ in range(REPETITIONS):
        arrived, acknowledged = on_loop(_beats(url))
        ours.append(arrived)
        acks.append(acknowledged)
    return compare(
        "append to follower p50 through gRPC, Postgres", "ms", ours, "the append's own ack", acks,
        n=BEATS, at_most=8.0, absolute=True,
    )  # fmt: skip


async def _beats(url: str) -> tuple[float, float]:
    writer, reader = await _reach(url), await _reach(url)
    try:
        return await light_load(writer, reader)
    finally:
        await writer.close()
        await reader.close()


async def _reach(url: str) -> Operations:
    return await open_operations(url, "", Settings())
