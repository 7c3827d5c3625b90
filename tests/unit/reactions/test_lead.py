"""The leader: who gets to match, when, and what becomes of it when something goes wrong."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from tape.errors import StoreUnavailable
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.task import TaskStatus
from tape.ports.matching import MatchStep, StepResult
from tape.ports.store import Store
from tape.reactions.lead import BeginRuns, Leader
from tape.settings import MatcherSettings, Settings
from tape.stores.sqlite.store import SqliteStore
from tape.telemetry import metrics
from tests.conformance.reacting import (
    HOUR_MS,
    claim,
    expect_sound,
    lead,
    record_some,
    register,
    sources_with,
    until,
)

TAKEN = """
UPDATE tape_matcher SET owner = 'other', fencing_token = 2, expires_at_ms = :now_ms + 3600000
"""
EXPIRED = "UPDATE tape_matcher SET expires_at_ms = 0 WHERE owner = 'other'"
QUICK = MatcherSettings(ttl_s=0.3, expiry_s=0.05)
KEPT_MS = 3_000
"""A lease that busy cores do not keep anybody from renewing in time."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "tape.db", Settings().sqlite)
    yield opened
    await expect_sound(opened)
    await opened.close()


async def no_runs(owner: str, reaction_ids: list[str]) -> None:
    pass


@asynccontextmanager
async def leading(
    store: Store, settings: MatcherSettings = QUICK, begin_runs: BeginRuns = no_runs
) -> AsyncIterator[asyncio.Task[None]]:
    writer = Writer(store, Settings().writer)
    leader = Leader(store, writer, UlidFactory(), settings, begin_runs)
    running = asyncio.create_task(leader.run())
    try:
        yield running
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await writer.close()


async def has_made(store: Store, count: int) -> None:
    async def ask() -> bool:
        return len(await sources_with(store, None)) == count

    await until(ask)


async def is_leading(wanted: int = 1) -> None:
    async def ask() -> bool:
        return metrics.MATCHER_LEADING.value == wanted

    await until(ask)


async def test_it_takes_over_when_the_last_one_has_not_been_heard_of(store: SqliteStore) -> None:
    await register(store)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await store.matching.acquire_matcher("dead", 500)
    await record_some(store, 3)
    async with leading(store):
        await has_made(store, 3)
        took = loop.time() - began
    assert 0.45 < took < 5


async def test_it_waits_for_as_long_as_another_leads(store: SqliteStore) -> None:
    await register(store)
    lease = await store.matching.acquire_matcher("other", HOUR_MS)
    assert lease is not None
    async with leading(store):
        asked = [0]
        real = store.matching.acquire_matcher

        async def counted(owner: str, ttl_ms: int) -> object:
            asked[0] += 1
            return await real(owner, ttl_ms)

        store.matching.acquire_matcher = counted  # type: ignore[method-assign, assignment]
        await record_some(store, 3)

        async def asked_often() -> bool:
            return asked[0] >= 3

        await until(asked_often)
        assert await sources_with(store, None) == []
        await store.matching.release_matcher(lease)
        await has_made(store, 3)


async def test_its_end_lets_another_begin_at_once(store: SqliteStore) -> None:
    patient = MatcherSettings(ttl_s=600)
    async with leading(store, patient):
        await is_leading()
        assert await store.matching.acquire_matcher("next", HOUR_MS) is None
    assert metrics.MATCHER_LEADING.value == 0
    assert await store.matching.acquire_matcher("next", HOUR_MS) is not None


async def test_an_end_before_it_led_takes_the_lease_from_nobody(store: SqliteStore) -> None:
    await store.matching.acquire_matcher("other", HOUR_MS)
    async with leading(store):
        pass
    assert await store.matching.acquire_matcher("next", HOUR_MS) is None


@pytest.mark.parametrize(
    "fault", [lambda: StoreUnavailable("for a moment"), lambda: ZeroDivisionError("a mistake")]
)
async def test_no_error_ends_it_for_good(
    store: SqliteStore, fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(store)
    faults, real = [fault(), fault()], store.matching.make_step

    async def make_step(step: MatchStep) -> StepResult:
        if step.tasks and faults:
            raise faults.pop()
        return await real(step)

    monkeypatch.setattr(store.matching, "make_step", make_step)
    async with leading(store) as running:
        await record_some(store, 3)
        await has_made(store, 3)
        assert not running.done()
    assert faults == []


async def test_an_error_in_beginning_runs_does_not_end_the_matching(store: SqliteStore) -> None:
    await register(store)
    await register(store, "agent", handler_kind=1, agent_app="app")
    calls: list[str] = []

    async def faulty(owner: str, reaction_ids: list[str]) -> None:
        calls.extend(reaction_ids)
        if len(calls) < 3:
            raise RuntimeError("a mistake")

    async with leading(store, begin_runs=faulty) as running:
        await record_some(store, 3)
        await has_made(store, 3)

        async def called() -> bool:
            return len(calls) >= 3

        await until(called)
        assert not running.done()
    assert set(calls) == {"agent"}


async def test_one_whose_lease_another_took_asks_again(store: SqliteStore, tmp_path: Path) -> None:
    await register(store)
    async with leading(store):
        await is_leading()
        # As after a pause of the process: the lease had run out and is another's.
        with closing(sqlite3.connect(tmp_path / "tape.db", isolation_level=None)) as other:
            other.execute(TAKEN, {"now_ms": time.time_ns() // 1_000_000})
            await is_leading(0)
            await record_some(store, 3)
            assert await sources_with(store, None) == []
            other.execute(EXPIRED)
        await has_made(store, 3)
    assert (await lead(store, "next")).fencing_token == 4


async def test_tasks_of_the_lost_are_taken_back(store: SqliteStore) -> None:
    await register(store, subject_pattern="/tape/event/**")
    await register(store, "once", subject_pattern="/tape/event/**", retry_max=0)
    async with leading(store):
        await record_some(store, 2)
        await has_made(store, 2)
        for name in ("r", "once"):
            assert len(await claim(store, name, owner="lost", lease_ms=50)) == 2

        async def ended() -> bool:
            letters = await sources_with(store, TaskStatus.DLQ, "once")
            return letters == [1, 2] and await sources_with(store, TaskStatus.PENDING) == [1, 2]

        await until(ended)
    again = await claim(store, owner="next")
    assert [(task.attempts, task.last_error) for task in again] == [
        (2, "the lease of lost ran out")
    ] * 2


async def test_leases_that_are_kept_are_not_taken_back(store: SqliteStore) -> None:
    await register(store)
    async with leading(store):
        await record_some(store, 1)
        await has_made(store, 1)
        (task,) = await claim(store, owner="slow", lease_ms=KEPT_MS)
        for _ in range(9):
            await asyncio.sleep(0.4)
            assert await store.tasks.extend_tasks("slow", KEPT_MS, [task.key]) == [task.key]
    assert await sources_with(store, TaskStatus.CLAIMED) == [1]
