"""Durable runs beside DBOS: runs of one step, and steps of long runs, alone and sixteen at once.

A step of ours is an effect: pending on the journal before the act, its outcome before the next.
Each turn is in a store that nothing else is in. Ours is measured in process, and as a client of
`tape serve` on the same kind of store.
"""

import asyncio
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import tape
from benchmarks.result import Result, compare
from benchmarks.runs_peers import COUNTS, DBOS_SETUPS, Measure, best_dbos, measure_dbos
from benchmarks.workload import PAYLOAD, on_loop, postgres
from tape.testing.server import ServerProcess

TURNS = 5
WARM_UP = {"runs": 30, "steps": 60}
IN_PROCESS = 5.0
THROUGH_GRPC = 2.0
OURS = {"runs": 1_200, "steps": 2_400}
"""Ours are faster, so there are more of them for the same time."""

Fresh = Callable[[], str]


@tape.effect
async def measure_length(payload: str) -> dict[str, int]:
    return {"length": len(payload)}


@tape.app("bench-one")
async def run_of_one(_ctx: tape.Context, payload: str) -> dict[str, int]:
    return await measure_length(payload)


@tape.app("bench-many")
async def run_of_many(_ctx: tape.Context, steps: int) -> int:
    total = 0
    for _ in range(steps):
        total += (await measure_length(PAYLOAD))["length"]
    return total


def run() -> Iterator[Result]:
    for name, stores in (("Postgres", _postgres), ("SQLite", _sqlite)):
        with stores() as fresh:
            for measure, at_once in itertools.product(COUNTS, (1, 16)):
                yield from _beside_dbos(name, fresh, measure, at_once)


def _beside_dbos(store: str, fresh: Fresh, measure: Measure, at_once: int) -> Iterator[Result]:
    setup = best_dbos(measure, fresh, at_once) if at_once > 1 else DBOS_SETUPS[0]
    here: list[float] = []
    remote: list[float] = []
    theirs: list[float] = []
    for _ in range(TURNS):
        theirs.append(measure_dbos(measure, fresh(), at_once, setup).per_s)
        here.append(on_loop(_rate(fresh(), measure, at_once)))
        with ServerProcess(fresh()) as server:
            remote.append(on_loop(_rate(server.url, measure, at_once)))
    what = "runs of one step" if measure == "runs" else "durable steps"
    name = f"{what}, {'alone' if at_once == 1 else f'{at_once} at once'}, {store}"
    n, unit = OURS[measure], f"{measure}/s"
    yield compare(name, unit, here, str(setup), theirs, n=n, at_least=IN_PROCESS)
    yield compare(
        f"{name}, through gRPC", unit, remote, str(setup), theirs, n=n, at_least=THROUGH_GRPC
    )


async def _rate(url: str, measure: Measure, at_once: int) -> float:
    async with tape.connect_async(url) as client:
        await _share(client, measure, WARM_UP[measure])
        count = OURS[measure] // at_once
        gc.collect()
        gc.freeze()
        started = time.perf_counter()
        lengths = await asyncio.gather(*(_share(client, measure, count) for _ in range(at_once)))
        elapsed = time.perf_counter() - started
        gc.unfreeze()
    if sum(lengths) != count * at_once * len(PAYLOAD):
        raise AssertionError(f"{count * at_once} were to be done, and these came back: {lengths}")
    return count * at_once / elapsed


async def _share(client: tape.AsyncTapeClient, measure: Measure, count: int) -> int:
    if measure == "steps":
        total: int = await client.run(run_of_many, count)
        return total
    lengths = [(await client.run(run_of_one, PAYLOAD))["length"] for _ in range(count)]
    return sum(lengths)


@contextmanager
def _postgres() -> Iterator[Fresh]:
    numbers = itertools.count()
    with postgres() as server:
        yield lambda: server.create_database(f"bench{next(numbers)}")


@contextmanager
def _sqlite() -> Iterator[Fresh]:
    with ExitStack() as folders:

        def fresh() -> str:
            folder = folders.enter_context(TemporaryDirectory(prefix="tape-bench-"))
            return f"sqlite:{Path(folder) / 'tape.db'}"

        yield fresh
