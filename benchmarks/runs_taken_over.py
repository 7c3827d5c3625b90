"""What a crash costs: the time until another worker goes on, and replaying a long run.

The bar on the first is the lease: a run is taken over when its lease is over, and not much later.
The bar on the second is that the cost of a step does not grow with the run.
"""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import tape
from benchmarks.result import Result, compare
from benchmarks.runs import measure_length
from benchmarks.workload import PAYLOAD, on_loop, postgres
from tape.model.gate import SendSignal
from tape.model.lease import NewRun, Taker
from tape.model.run import RunName, RunStatus
from tape.programs.connect import open_bus
from tape.reactions.threads import HandlerThreads
from tape.runs.driving.drive import RunDriver
from tape.runs.driving.lease_keeper import LeaseKeeper
from tape.settings import Settings
from tests.servers.tape_worker import WorkerProcess

TTL_S = 2.0
KILLS = 5
SETTINGS = f"tape: {{reactors: {{recovery: {{lease_ttl_s: {TTL_S}}}}}}}\n"
STEPS = (1_000, 10_000)
TURNS = 3
DRIVER = Taker("bench")


@tape.app("bench-endless")
async def endless(_ctx: tape.Context) -> None:
    while True:
        await measure_length(PAYLOAD)


@tape.app("bench-waits-at-end")
async def waits_at_end(ctx: tape.Context, steps: int) -> int:
    total = 0
    for _ in range(steps):
        total += (await measure_length(PAYLOAD))["length"]
    await ctx.gate("end")
    return total


def run() -> Iterator[Result]:
    with postgres() as server:
        yield _taken_over(server.create_database("takeover"))
        yield from _replayed(server.create_database("replay"))


def _taken_over(url: str) -> Result:
    waits = [_killed(url, number) for number in range(KILLS)]
    return compare(
        "kill to resumption, Postgres", "s", waits, f"the lease of {TTL_S:g} s", [TTL_S],
        n=KILLS, at_most=1.5,
    )  # fmt: skip


def _killed(url: str, number: int) -> float:
    """From kill -9 of the driver to the next lease, by the journal's own time."""
    with TemporaryDirectory(prefix="tape-bench-") as folder:
        config = Path(folder) / "tape.yaml"
        config.write_text(SETTINGS)
        first, second = (_worker(url, config, Path(folder) / name) for name in ("one", "two"))
        with first, second, tape.connect(url) as client:
            while not (first.has_begun and second.has_begun):
                time.sleep(0.05)
            begun = client.start_run(endless, invocation_id=str(number))
            entries = client.follow_run(begun.run_id)
            grant = next(e for e in entries if "owner" in e.payload)
            mine = first if str(first.pid) in grant.payload["owner"] else second
            for _ in itertools.islice(entries, 100):
                pass
            mine.kill()
            killed_ms = time.time_ns() / 1e6
            grant = next(e for e in entries if "owner" in e.payload)
            client.cancel_run(begun.run_id, "measured")
            return (grant.ts_ms - killed_ms) / 1000


def _worker(url: str, config: Path, log: Path) -> WorkerProcess:
    target = ("--url", url, "--config", str(config))
    return WorkerProcess(
        "-m", "tape.cli", "worker", "-m", "benchmarks.runs_taken_over", *target, log=log
    )


def _replayed(url: str) -> Iterator[Result]:
    costs = {
        steps: [on_loop(_replay(url, steps, turn)) for turn in range(TURNS)] for steps in STEPS
    }
    short, long = ([1e6 * cost / steps for cost in costs[steps]] for steps in STEPS)
    few, many = STEPS
    yield compare(
        f"replay one step of {many:,}, Postgres", "us", long, f"one of {few:,}", short,
        n=many, at_most=1.5,
    )  # fmt: skip
    yield compare(
        f"replay a run of {many:,} steps, Postgres", "s", costs[many], "five seconds", [5.0],
        n=many, at_most=1.0,
    )  # fmt: skip


async def _replay(url: str, steps: int, turn: int) -> float:
    """A run that waits after its last step is driven on: what it takes to come to its end."""
    bus = await open_bus(url)
    keeper = LeaseKeeper(bus.runs, Settings().reactors.recovery)
    driver = RunDriver(bus, keeper, HandlerThreads(1))
    new = NewRun(RunName(waits_at_end.name, "", "", f"{steps}/{turn}"), str(steps))
    try:
        begun = await bus.runs.begin_run(new, DRIVER)
        await driver.drive(begun.run, waits_at_end)
        await bus.runs.change_run(begun.run.run_id, SendSignal("end"))
        again = await bus.runs.resume_run(begun.run.run_id, DRIVER)
        started = time.perf_counter()
        ended = await driver.drive(again, waits_at_end)
        elapsed = time.perf_counter() - started
        if ended is None or ended.status != RunStatus.TERMINAL:
            raise AssertionError(f"the run did not come to its end: {ended}")
        return elapsed
    finally:
        await keeper.close()
        await bus.close()
