"""Each message becomes one run, whenever a listener is killed with -9.

Two processes stand by; the one that holds the subscription is killed at a random moment while it
works, and replaced.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.crash.audited import check_audit
from tests.crash.listening.far_ends import NewEnd
from tests.crash.listening.field import Field, a_field
from tests.crash.listening.truth import check_passed, counts
from tests.crash.test_accepting_killed import SEED

LONGEST_S = 0.1
WHOLE: Final[dict[str, Any]] = {
    "runtime": {"batch": 100, "timeout_ms": 1_000},
    "dispatch": {"playbook": "desk"},
}


class Size(NamedTuple):
    """After every `looks`-th kill the source is asked what it will not deliver again."""

    messages: int
    kills: int
    looks: int = 1


MIDDLE = pytest.param(Size(20_000, 25), id="25", marks=pytest.mark.middle)
LONG = pytest.param(Size(100_000, 200, 20), id="200", marks=pytest.mark.long)
PUBSUB_SHORTER = pytest.param(Size(1_000, 5), id="5", marks=pytest.mark.long)
PUBSUB_LONG = pytest.param(Size(20_000, 25), id="25", marks=pytest.mark.long)


class Crew:
    """Two processes that listen; whoever is killed is replaced."""

    def __init__(self, field: Field) -> None:
        self._field = field
        self._running: dict[str, BaseProcess] = {}
        self._ends = AsyncExitStack()

    async def add(self) -> None:
        process = await self._ends.enter_async_context(self._field.running(self._field.given()))
        self._running[f"listener-{process.pid}"] = process

    async def kill_holder(self, at_least: int, chance: random.Random) -> None:
        """Whoever holds it while so many are accepted, a little later."""
        while True:
            told = await asyncio.to_thread(counts, self._field.url)
            if told.accepted >= at_least and told.lease_owner in self._running:
                break
            await asyncio.sleep(0.005)
        await asyncio.sleep(chance.uniform(0, LONGEST_S))
        process = self._running.pop(told.lease_owner)
        process.kill()
        await asyncio.to_thread(process.join, 30)
        await self.add()

    async def end(self) -> None:
        await self._ends.aclose()


@asynccontextmanager
async def a_crew(field: Field) -> AsyncIterator[Crew]:
    crew = Crew(field)
    try:
        for _ in range(2):
            await crew.add()
        yield crew
    finally:
        await crew.end()


async def kill_now_and_then(field: Field, size: Size) -> None:
    chance = random.Random(f"{SEED}/{field}")
    print(f"seed {SEED}")
    await field.send(size.messages)
    share = size.messages // (size.kills + 1)
    async with a_crew(field) as crew:
        for kill in range(size.kills):
            await crew.kill_holder(kill * share + chance.randrange(share), chance)
            if kill % size.looks == 0:
                passed = await field.end.passed()
                check_passed(field.url, passed, of=f"{field}, kill {kill}, seed {SEED}")
    await field.judged(size.kills)
    await asyncio.to_thread(check_audit, field.url)


async def on_each_store(new_end: NewEnd, stores: list[str], folder: Path, size: Size) -> None:
    async def on(url: str) -> None:
        async with a_field(url, new_end(), folder, **WHOLE) as field:
            await kill_now_and_then(field, size)

    async with asyncio.TaskGroup() as group:
        for url in stores:
            group.create_task(on(url))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", [MIDDLE, LONG])
async def test_on_nats(nats: NewEnd, stores: list[str], tmp_path: Path, size: Size) -> None:
    await on_each_store(nats, stores, tmp_path, size)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", [MIDDLE, LONG])
async def test_on_kafka(kafka: NewEnd, stores: list[str], tmp_path: Path, size: Size) -> None:
    await on_each_store(kafka, stores, tmp_path, size)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", [PUBSUB_SHORTER, PUBSUB_LONG])
async def test_on_pubsub(pubsub: NewEnd, stores: list[str], tmp_path: Path, size: Size) -> None:
    """What a listener that was killed had in hand comes again after ten seconds at the soonest."""
    await on_each_store(pubsub, stores, tmp_path, size)
