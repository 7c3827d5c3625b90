"""A file goes by the clock it is given; a database by its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tape.errors import InvalidArgument, LeaseHeld
from tape.model.event import NewEvent
from tape.model.timer import SetTimer
from tape.ports.runs import RecoverQuery
from tape.ports.store import Store
from tape.settings import Settings, SqliteSettings
from tape.stores.by_url import open_store
from tests.conformance.playing import MANY, read_all, record
from tests.conformance.reacting import (
    HOUR_MS,
    claim,
    fail,
    keys_of,
    queue,
    register,
    sources_of,
)
from tests.conformance.running import LONG_MS, clock_of, drive, take_over

NOON = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOON

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    settings = Settings(sqlite=SqliteSettings(poll_s=3600))
    store = await open_store(f"sqlite:{tmp_path / 'tape.db'}", settings, clock=clock)
    yield store
    await store.close()


async def test_entries_and_leases_go_by_it(store: Store, clock: Clock) -> None:
    await record(store, NewEvent("e"))
    driver = await drive(store, ttl_ms=LONG_MS)
    assert {entry.ts_ms for entry in await read_all(store)} == {NOON}
    assert await clock_of(store) == NOON
    clock.now_ms += LONG_MS - 1
    assert await store.runs.list_runs_to_recover(RecoverQuery()) == []
    with pytest.raises(LeaseHeld, match="for another 1 ms"):
        await take_over(store, driver.run_id, "b")
    clock.now_ms += 1
    assert await store.runs.list_runs_to_recover(RecoverQuery()) == [await driver.run()]
    await take_over(store, driver.run_id, "b")


async def test_timers_go_by_it(store: Store, clock: Clock) -> None:
    driver = await drive(store)
    timer = await driver.write(SetTimer("t", after_ms=50))
    assert await store.runs.next_timer_in_ms() == 50
    clock.now_ms += 49
    assert await store.runs.next_timer_in_ms() == 1
    assert await store.runs.list_due_timers(MANY) == []
    clock.now_ms += 1
    assert await store.runs.next_timer_in_ms() == 0
    assert await store.runs.list_due_timers(MANY) == [timer]


async def test_tasks_go_by_it(store: Store, clock: Clock) -> None:
    await register(store, retry_backoff_ms=60, rate_limit_per_s=1)
    await queue(store, [1, 2])
    (first,) = await claim(store, lease_ms=1_000)
    assert (first.claimed_at_ms, first.lease_expires_at_ms) == (NOON, NOON + 1_000)
    assert await claim(store) == []  # one start in a second
    assert await store.tasks.read_next_due_ms(["r"]) == 900  # a tenth may be caught up
    clock.now_ms += 1_000
    assert await store.tasks.read_expired(MANY) == [first.key]
    await fail(store, "a", keys_of([first]))
    clock.now_ms += 59
    assert sources_of(await claim(store)) == [2]
    clock.now_ms += 1_001
    assert sources_of(await claim(store)) == [1]


async def test_the_matcher_goes_by_it(store: Store, clock: Clock) -> None:
    assert await store.matching.acquire_matcher("a", HOUR_MS) is not None
    clock.now_ms += HOUR_MS - 1
    assert await store.matching.acquire_matcher("b", HOUR_MS) is None
    clock.now_ms += 1
    assert await store.matching.acquire_matcher("b", HOUR_MS) is not None


async def test_a_database_goes_by_its_own(postgres_url: str, clock: Clock) -> None:
    with pytest.raises(InvalidArgument, match="clock: Postgres has its own clock"):
        await open_store(postgres_url, Settings(), clock=clock)
