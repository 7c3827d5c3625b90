"""One measurement of DBOS, printed as one JSON line; started by `runs_peers`, a process for each.

    python -m benchmarks.runs_dbos runs postgresql://… 16 400 threads 20

Sixteen at once are sixteen threads, or sixteen coroutines, that each do their share in turn.
"""

import asyncio
import gc
import sqlite3
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import orjson
import uvloop
from dbos import DBOS, DBOSConfig

from benchmarks.workload import PAYLOAD

WARM_UP = {"runs": 10, "steps": 25}
SQLITE = "sqlite:///"

Result = dict[str, int]


@DBOS.step()
def step(payload: str) -> Result:
    return {"length": len(payload)}


@DBOS.step()
async def step_async(payload: str) -> Result:
    return {"length": len(payload)}


@DBOS.workflow()
def run_of_one(payload: str) -> Result:
    return step(payload)


@DBOS.workflow()
async def run_of_one_async(payload: str) -> Result:
    return await step_async(payload)


@DBOS.workflow()
def run_of_many(payload: str, steps: int) -> int:
    return sum(step(payload)["length"] for _ in range(steps))


@DBOS.workflow()
async def run_of_many_async(payload: str, steps: int) -> int:
    total = 0
    for _ in range(steps):
        total += (await step_async(payload))["length"]
    return total


def share(measure: str, count: int) -> int:
    """What one of the threads does; the lengths it was told, so that nothing is left out."""
    if measure == "steps":
        return run_of_many(PAYLOAD, count)
    return sum(run_of_one(PAYLOAD)["length"] for _ in range(count))


async def share_async(measure: str, count: int) -> int:
    if measure == "steps":
        return await run_of_many_async(PAYLOAD, count)
    total = 0
    for _ in range(count):
        total += (await run_of_one_async(PAYLOAD))["length"]
    return total


def on_threads(measure: str, at_once: int) -> Callable[[int], list[int]]:
    if at_once == 1:
        return lambda count: [share(measure, count)]
    threads = ThreadPoolExecutor(at_once)
    return lambda count: list(threads.map(lambda _: share(measure, count), range(at_once)))


def on_loop(measure: str, at_once: int) -> Callable[[int], list[int]]:
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    async def shares(count: int) -> list[int]:
        return await asyncio.gather(*(share_async(measure, count) for _ in range(at_once)))

    return lambda count: runner.run(shares(count))


def per_second(work: Callable[[int], list[int]], warm_up: int, at_once: int, count: int) -> float:
    work(warm_up)
    gc.collect()
    gc.freeze()
    started = time.perf_counter()
    lengths = work(count // at_once)
    elapsed = time.perf_counter() - started
    if sum(lengths) != count * len(PAYLOAD):
        raise AssertionError(f"{count} were to be done, and these came back: {lengths}")
    return count / elapsed


def launch(url: str, pool: int) -> None:
    if url.startswith(SQLITE):
        # The file keeps the mode. DBOS leaves `synchronous` at FULL, as it is with us.
        with closing(sqlite3.connect(url.removeprefix(SQLITE))) as db:
            db.execute("PRAGMA journal_mode = WAL")
    config: DBOSConfig = {
        "name": "tape-bench",
        "application_version": "1",
        "system_database_url": url,
        "sys_db_pool_size": pool,
        "db_engine_kwargs": {"pool_pre_ping": False},
        "enable_otlp": False,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()


def main(measure: str, url: str, at_once: int, count: int, style: str, pool: int) -> None:
    launch(url, pool)
    work = (on_threads if style == "threads" else on_loop)(measure, at_once)
    rate = per_second(work, WARM_UP[measure], at_once, count)
    print(orjson.dumps({"per_s": rate}).decode(), flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    main(
        measure=sys.argv[1],
        url=sys.argv[2],
        at_once=int(sys.argv[3]),
        count=int(sys.argv[4]),
        style=sys.argv[5],
        pool=int(sys.argv[6]),
    )
