"""Pruning a large range slows neither those who write nor those who follow."""

import asyncio
import statistics
import time
from collections.abc import Callable

import pytest

from tape.bus import Bus, FollowQuery
from tape.model.event import NewEvent
from tape.programs.connect import open_bus
from tests.pipeline.lake.processes import start, told
from tests.pipeline.lake.world import fill

COUNT = 200_000
BEFORE_S = 5.0


@pytest.fixture
def postgres_url(migrated_postgres_url: str) -> str:
    return migrated_postgres_url


async def appends(bus: Bus, go_on: Callable[[], bool]) -> list[float]:
    """How long each of many single appends took until a follower had it."""
    took = []
    pages = bus.follow(FollowQuery(after=(await bus.info()).head_global_seq))
    while go_on():
        started = time.perf_counter()
        await bus.record_events([NewEvent("a")])
        await anext(pages)
        took.append(time.perf_counter() - started)
    await pages.aclose()
    return took


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_appends_go_on_while_a_prune_goes_on(store_url: str) -> None:
    await asyncio.to_thread(fill, store_url, COUNT)
    bus = await open_bus(store_url)
    over = time.monotonic() + BEFORE_S
    before = await appends(bus, lambda: time.monotonic() < over)
    process = start("empty", store_url, str(COUNT))
    assert await asyncio.to_thread(told, process) == "ready"
    started = time.monotonic()
    removed = asyncio.create_task(asyncio.to_thread(told, process))
    during = await appends(bus, lambda: not removed.done())
    seconds = time.monotonic() - started
    await bus.close()
    assert int(await removed) == COUNT
    process.communicate()
    middle = [statistics.median(took) * 1e3 for took in (before, during)]
    worst = [sorted(took)[int(0.99 * len(took))] * 1e3 for took in (before, during)]
    print(
        f"{COUNT} entries in {seconds:.1f} s; append and follow, ms: median {middle[0]:.2f} "
        f"before, {middle[1]:.2f} during; 99 % within {worst[0]:.1f} before, {worst[1]:.1f} during"
    )
    assert middle[1] < 2 * middle[0]
    assert worst[1] < 250
