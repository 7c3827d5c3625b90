"""Durable runs beside DBOS: runs of one step, and steps of long runs, alone and sixteen at once.

A step of ours is an effect, of two kinds. One that *acts* is pending on the journal before it is
done, and what it came to before the next: a commit for each. One that *looks* is on the journal
before anything can depend on it, with what comes after it. A step of DBOS is recorded once it is
done, with a commit for each.

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
from typing import Literal, get_args

import tape
from benchmarks.result import Result, compare
from benchmarks.runs_peers import COUNTS, DBOS_SETUPS, Measure, best_dbos, measure_dbos
from benchmarks.workload import PAYLOAD, on_loop, postgres
from tests.servers.tape_server import ServerProcess

TURNS = 3
WARM_UP = {"runs": 30, "steps": 60}
IN_PROCESS = 5.0
THROUGH_GRPC = 2.0
OURS = {"runs": 480, "steps": 1_600}
"""Ours are faster, so there are more of them for the same time."""

Fresh = Callable[[], str]
Kind = Literal["act", "look"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@tape.effect
async def measure_length(payload: str) -> dict[str, int]:
    return {"length": len(payload)}


@tape.effect(semantics="observe_only")
async def look_at_length(payload: str) -> dict[str, int]:
    return {"length": len(payload)}


STEPS = {"act": measure_length, "look": look_at_length}


@tape.app("bench-one")
async def run_of_one(_ctx: tape.Context, given: tuple[Kind, str]) -> dict[str, int]:
    kind, payload = given
    return await STEPS[kind](payload)


@tape.app("bench-many")
async def run_of_many(_ctx: tape.Context, given: tuple[Kind, int]) -> int:
    kind, steps = given
    total = 0
    for _ in range(steps):
        total += (await STEPS[kind](PAYLOAD))["length"]
    return total


def run() -> Iterator[Result]:
    for name, stores in (("Postgres", _postgres), ("SQLite", _sqlite)):
        with stores() as fresh:
            for measure, at_once in itertools.product(COUNTS, (1, 16)):
                yield from _beside_dbos(name, fresh, measure, at_once)


def _beside_dbos(store: str, fresh: Fresh, measure: Measure, at_once: int) -> Iterator[Result]:
    setup = best_dbos(measure, fresh, at_once) if at_once > 1 else DBOS_SETUPS[0]
    here: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    remote: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    theirs: list[float] = []
    for _ in range(TURNS):
        theirs.append(measure_dbos(measure, fresh(), at_once, setup).per_s)
        for kind in KINDS:
            here[kind].append(on_loop(_rate(fresh(), measure, kind, at_once)))
            with ServerProcess(fresh()) as server:
                remote[kind].append(on_loop(_rate(server.url, measure, kind, at_once)))
    n, unit = OURS[measure], f"{measure}/s"
    for kind in KINDS:
        what = f"runs of one {kind}" if measure == "runs" else f"steps that {kind}"
        name = f"{what}, {'alone' if at_once == 1 else f'{at_once} at once'}, {store}"
        yield compare(name, unit, here[kind], str(setup), theirs, n=n, at_least=IN_PROCESS)
        yield compare(
            f"{name}, through gRPC", unit, remote[kind], str(setup), theirs, n=n,
            at_least=THROUGH_GRPC,
        )  # fmt: skip


async def _rate(url: str, measure: Measure, kind: Kind, at_once: int) -> float:
    async with tape.connect_async(url) as client:
        await _share(client, measure, kind, WARM_UP[measure])
        count = OURS[measure] // at_once
        gc.collect()
        gc.freeze()
        started = time.perf_counter()
        lengths = await asyncio.gather(
            *(_share(client, measure, kind, count) for _ in range(at_once))
        )
        elapsed = time.perf_counter() - started
        gc.unfreeze()
    if sum(lengths) != count * at_once * len(PAYLOAD):
        raise AssertionError(f"{count * at_once} were to be done, and these came back: {lengths}")
    return count * at_once / elapsed


async def _share(client: tape.AsyncTapeClient, measure: Measure, kind: Kind, count: int) -> int:
    if measure == "steps":
        total: int = await client.run(run_of_many, (kind, count))
        return total
    lengths = [(await client.run(run_of_one, (kind, PAYLOAD)))["length"] for _ in range(count)]
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
