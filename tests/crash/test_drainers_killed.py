"""Every event is dispatched once to each subscription and in order, whoever is killed or stopped.

The processes that drain are killed with -9 at random while events come. The worker that does the
runs is another process, and counts what it does.
"""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple

import pytest

from tape.model.drainer import DrainReport
from tape.model.entry import Entry
from tape.model.event_subscription import DEFAULT_DRAINER
from tape.ports.store import ReadEntries
from tests.conformance.reacting import until
from tests.crash.draining_processes import LEASE_S, SETTINGS, drain_for_ever, drain_once
from tests.crash.forks import FORKS
from tests.crash.watching import stop_unlocked
from tests.unit.ledger.draining import Desk, a_desk

SEED = int(os.environ.get("TAPE_SEED", "20261116"))
RUNNABLE = "/tape/run/runnable/desk/event/"


class Size(NamedTuple):
    events: int
    kills: int
    processes: int
    rest_s: float


SHORT = Size(80, 4, 2, 300)
LONG = Size(3_000, 100, 3, 600)
SIZES = [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.long)]


class Pool:
    """Some processes that drain; whoever is killed is replaced."""

    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self._running = [self._started() for _ in range(count)]

    def _started(self) -> BaseProcess:
        process = FORKS.Process(target=drain_for_ever, args=(self._url,), daemon=True)
        process.start()
        return process

    def kill(self, owner: str) -> bool:
        """The one that has this lease; False if it is none of them."""
        for number, process in enumerate(self._running):
            if owner.startswith(f"drainer-{process.pid}-"):
                process.kill()
                process.join(30)
                self._running[number] = self._started()
                return True
        return False

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.join(30)


@contextmanager
def a_pool(url: str, count: int) -> Iterator[Pool]:
    pool = Pool(url, count)
    try:
        yield pool
    finally:
        pool.end()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", SIZES)
async def test_each_event_is_dispatched_once_and_in_order(store_url: str, size: Size) -> None:
    chance = random.Random(f"{SEED}/drainers")
    async with a_desk(store_url, SETTINGS) as desk:
        desk.pause_s = 0.005
        await desk.subscribe("a")
        await desk.subscribe("b", awaits_end=False)
        with a_pool(store_url, size.processes) as pool:
            share = size.events // (size.kills + 1)
            for start in range(1, size.events + 1, share):
                await desk.record(*range(start, min(start + share, size.events + 1)))
                if start + share > size.events:
                    break
                await kill_in_mid_pass(desk, pool, chance)

            await desk.until(lambda: len(desk.acts) >= 2 * size.events, size.rest_s)

            async def is_noted() -> bool:
                return (await desk.drainer(DEFAULT_DRAINER)).dispatched_total >= 2 * size.events

            await until(is_noted)
        await expect_once_and_in_order(desk, size)


async def kill_in_mid_pass(desk: Desk, pool: Pool, chance: random.Random) -> None:
    async def holder() -> str:
        found = await desk.bus._store.ledger.get_drainer(DEFAULT_DRAINER)
        return found.lease_owner if found is not None else ""

    killed = False
    while not killed:
        owner = await until(holder)
        await asyncio.sleep(chance.uniform(0, 0.05))
        killed = await holder() == owner and await asyncio.to_thread(pool.kill, owner)


async def expect_once_and_in_order(desk: Desk, size: Size) -> None:
    numbers = list(range(1, size.events + 1))
    assert desk.done_by("a") == numbers, f"seed {SEED}"
    assert sorted(desk.done_by("b")) == numbers
    begun = await entries(desk, RUNNABLE)
    assert len(begun) == 2 * size.events
    for who in ("a", "b"):
        inputs = [entry.payload["input"] for entry in begun]
        assert [given["n"] for given in inputs if given["who"] == who] == numbers
    assert not any("~" in entry.payload["invocation_id"] for entry in begun)
    drainer = await desk.drainer(DEFAULT_DRAINER)
    assert (drainer.failed_total, drainer.halted_on_event_id) == (0, "")
    assert (drainer.events_processed_total, drainer.dispatched_total) == (
        size.events, 2 * size.events,
    )  # fmt: skip
    print(f"{drainer.fencing_token} leases for {size.events} events")


async def entries(desk: Desk, prefix: str) -> list[Entry]:
    head = (await desk.bus.info()).head_global_seq
    query = ReadEntries(0, head, 1_000_000, 1 << 40, prefix)
    return (await desk.bus._store.read_entries(query)).entries


@asynccontextmanager
async def a_pass_elsewhere(
    desk: Desk, url: str, lease_s: float
) -> AsyncIterator[tuple[BaseProcess, Connection]]:
    """Another process is in the middle of a pass: it waits for the app."""
    desk.gate.clear()
    here, there = FORKS.Pipe()
    process = FORKS.Process(target=drain_once, args=(url, there, lease_s), daemon=True)
    process.start()
    try:
        async with asyncio.timeout(30):
            await desk.reached.wait()
        yield process, here
    finally:
        process.kill()
        process.join(30)


async def answered(connection: Connection) -> DrainReport:
    assert await asyncio.to_thread(connection.poll, 30)
    report = connection.recv()
    assert isinstance(report, DrainReport)
    return report


async def test_of_two_processes_one_is_locked_out(store_url: str) -> None:
    async with a_desk(store_url, SETTINGS) as desk:
        await desk.subscribe("a")
        await desk.record(1, 2)
        async with a_pass_elsewhere(desk, store_url, 30) as (_process, connection):
            report = await desk.bus.ledger.drain()
            assert (report.skipped_due_to_lock, report.processed) == (True, 0)
            desk.gate.set()
            other = await answered(connection)
            assert (other.skipped_due_to_lock, other.processed) == (False, 2)
        assert desk.acts == [("a", 1), ("a", 2)]


async def test_whoever_was_stopped_past_its_lease_does_no_harm(store_url: str) -> None:
    async with a_desk(store_url, SETTINGS) as desk:
        await desk.subscribe("a")
        await desk.record(*range(1, 6))
        async with a_pass_elsewhere(desk, store_url, LEASE_S) as (process, connection):
            assert process.pid is not None
            await asyncio.to_thread(stop_unlocked, store_url, process.pid)

            async def report_here() -> DrainReport | None:
                found = await desk.bus.ledger.drain(await_s=0)
                return None if found.skipped_due_to_lock else found

            taken = await until(report_here)
            assert taken.waiting_on_run_id  # the same run, begun by the one that is stopped
            desk.gate.set()
            assert (await desk.drain_all(DEFAULT_DRAINER)).processed == 5
            before = await desk.drainer(DEFAULT_DRAINER)
            os.kill(process.pid, signal.SIGCONT)
            late = await answered(connection)
            assert (late.skipped_due_to_lock, late.processed) == (True, 0)
            assert "fencing token" in late.error
        assert await desk.drainer(DEFAULT_DRAINER) == before
        assert desk.acts == [("a", n) for n in range(1, 6)]
        assert len(await entries(desk, RUNNABLE)) == 5
