"""Leases: one holder at a time by the store's clock, each with a higher token than the last."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tape.errors import InvalidArgument, LeaseHeld, RunEnded, StaleLease, TapeError
from tape.model.budget import ChargeBudget, SetBudget
from tape.model.decision import RecordDecision
from tape.model.effect import BeginEffect, CompleteEffect, EffectStatus
from tape.model.gate import AwaitSignal, SendSignal
from tape.model.lease import Taker
from tape.model.obligation import RegisterCompensation
from tape.model.run import RunName, RunStatus
from tape.model.run_end import CancelRun, EndRun
from tape.model.run_write import RunWrite
from tape.model.timer import CancelTimer, SetTimer
from tape.ports.store import Store
from tests.conformance.playing import MANY, OpenStore, attempt, play, read_all
from tests.conformance.running import (
    LONG_MS,
    SHORT_MS,
    Driver,
    begin,
    beginning,
    drive,
    pass_beyond,
    race,
    resuming,
    take_over,
)

RACERS = 4
NAME = RunName("app", "u", "s", "1")
BY_DRIVER: list[RunWrite] = [
    RecordDecision(0, "m"),
    BeginEffect(0, "tool", 0),
    CompleteEffect("an effect", EffectStatus.CONFIRMED),
    RegisterCompensation("an effect", "undo"),
    AwaitSignal("a gate"),
    SetTimer("a timer", after_ms=5),
    CancelTimer("a timer"),
    SetBudget(1.0),
    ChargeBudget(1.0),
    EndRun(RunStatus.TERMINAL, parent_run_id=""),
]


async def grants(store: Store, run_id: str) -> list[dict[str, Any]]:
    """What a run's journal says of its leases."""
    entries = await store.read_run(run_id, 0, MANY)
    return [e.payload for e in entries if e.kind == "run" and e.payload.get("owner")]


class LeasesContract:
    async def test_a_lease_says_who_has_it_until_when(self, open_store: OpenStore) -> None:
        store = await open_store()
        begun = await begin(store, owner="me", ttl_ms=5_000)
        (entry,) = await read_all(store)
        run = begun.run
        assert (begun.resumed, begun.fencing_token) == (False, 1)
        assert (run.lease_owner, run.reactor_name, run.status) == ("me", "worker", 2)
        assert run.lease_expires_at_ms == entry.ts_ms + 5_000
        assert (entry.run_id, entry.seq) == (run.run_id, 1)
        assert await (await open_store()).runs.get_run(run.run_id) == run

    async def test_who_begins_a_run_twice_finds_it(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        first = await begin(store)
        seen = await begin(other, owner="b")
        assert (seen.run, seen.resumed, seen.fencing_token) == (first.run, True, 0)
        again = await begin(other)
        assert (again.resumed, again.fencing_token) == (True, 2)
        assert len(await read_all(store)) == 2

    async def test_a_living_lease_is_not_taken_over(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        driver = await drive(store)
        with pytest.raises(LeaseHeld, match="held by 'a'"):
            await take_over(other, driver.run_id, "b")
        await driver.write(RecordDecision(0, "m"))
        assert (await driver.run()).lease_owner == "a"

    async def test_a_taker_of_one_pool_resumes_no_run_of_another(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        run = (await begin(store, owner="", pool="blue")).run
        for owner in ("b", ""):
            with pytest.raises(InvalidArgument, match=r"in the pool 'blue', not in 'green'") as no:
                await play(store, resuming(run.run_id, Taker(owner, pool="green")))
            assert no.value.field == "pool"
        assert await store.runs.get_run(run.run_id) == run
        taken = await play(store, resuming(run.run_id, Taker("b", pool="blue")))
        assert (taken.lease_owner, taken.pool) == ("b", "blue")

    async def test_a_lease_that_ran_out_is_taken_over_with_the_next_token(
        self, open_store: OpenStore
    ) -> None:
        store, other = await open_store(), await open_store()
        first = await drive(store, ttl_ms=SHORT_MS)
        await pass_beyond(store, (await first.run()).lease_expires_at_ms)
        await first.write(RecordDecision(0, "m"))  # nobody has taken it over yet
        second = await take_over(other, first.run_id, "b")
        assert second.token == first.token + 1
        with pytest.raises(StaleLease):
            await first.write(RecordDecision(1, "m"))
        with pytest.raises(StaleLease):
            await first.heartbeat()
        with pytest.raises(StaleLease):
            await first.release()
        await second.write(RecordDecision(1, "m"))
        assert [grant["fencing_token"] for grant in await grants(store, first.run_id)] == [1, 2]

    async def test_a_renewed_lease_lives_on(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        driver = await drive(store, ttl_ms=SHORT_MS)
        ran_out = (await driver.run()).lease_expires_at_ms
        renewed = await driver.heartbeat()
        await pass_beyond(store, ran_out)
        with pytest.raises(LeaseHeld):
            await take_over(other, driver.run_id, "b")
        assert renewed.lease_expires_at_ms > ran_out
        assert await other.runs.get_run(driver.run_id) == renewed
        assert len(await read_all(store)) == 1

    async def test_who_let_go_has_no_lease(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver = await drive(store)
        released = await driver.release()
        assert (released.status, released.lease_owner) == (RunStatus.RUNNABLE, "")
        assert await driver.release() == released
        with pytest.raises(StaleLease, match="was released"):
            await driver.write(RecordDecision(0, "m"))
        assert (await take_over(store, driver.run_id, "b")).token == 2

    @pytest.mark.parametrize("write", BY_DRIVER, ids=lambda write: type(write).__name__)
    async def test_a_stale_token_changes_nothing(
        self, open_store: OpenStore, write: RunWrite
    ) -> None:
        store = await open_store()
        first = await drive(store, ttl_ms=SHORT_MS)
        await first.extend(BeginEffect(0, "t", 0, custom_key="an effect"), SetTimer("a timer"))
        await pass_beyond(store, (await first.run()).lease_expires_at_ms)
        await take_over(await open_store(), first.run_id, "b")
        before, entries = await first.run(), await read_all(store)
        with pytest.raises(StaleLease):
            await first.extend(AwaitSignal("another gate"), write)
        assert await first.run() == before
        assert await read_all(store) == entries

    async def test_one_of_many_takes_a_free_run(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(RACERS)]
        run = (await begin(stores[0], owner="")).run
        takers = [Taker(f"w{n}", "recovery", LONG_MS) for n in range(RACERS)]
        outcomes = await race(stores, [resuming(run.run_id, taker, 0) for taker in takers])
        assert sum(isinstance(outcome, LeaseHeld) for outcome in outcomes) == RACERS - 1
        (winner,) = [outcome for outcome in outcomes if not isinstance(outcome, TapeError)]
        assert winner.fencing_token == 1
        assert [g["owner"] for g in await grants(stores[0], run.run_id)] == [winner.lease_owner]

    async def test_who_begins_at_once_begins_one_run(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(RACERS)]
        takers = [Taker(f"w{n}", "recovery", LONG_MS) for n in range(RACERS)]
        outcomes = await race(stores, [beginning(NAME, taker) for taker in takers])
        assert sorted(begun.fencing_token for begun in outcomes) == [0] * (RACERS - 1) + [1]
        assert [begun.resumed for begun in outcomes].count(False) == 1
        assert {begun.run.run_id for begun in outcomes} == {NAME.run_id}
        assert len(await read_all(stores[0])) == 1

    async def test_no_two_leases_of_a_run_overlap(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(RACERS)]
        run_id = (await begin(stores[0], owner="w0", ttl_ms=2 * SHORT_MS)).run.run_id

        async def keep_taking(store: Store, owner: str) -> None:
            for _ in range(6):
                run = await store.runs.get_run(run_id)
                assert run is not None
                await pass_beyond(store, run.lease_expires_at_ms - 1)
                taker = Taker(owner, "recovery", 2 * SHORT_MS)
                await attempt(store, resuming(run_id, taker, run.fencing_token))

        await asyncio.gather(*(keep_taking(store, f"w{n}") for n, store in enumerate(stores)))
        found = await read_all(stores[0])
        assert len(found) > RACERS
        assert [e.payload["fencing_token"] for e in found] == list(range(1, len(found) + 1))
        assert [e.seq for e in found] == list(range(1, len(found) + 1))
        for before, after in pairwise(found):
            free = after.ts_ms >= before.payload["lease_expires_at_ms"]
            assert free or after.payload["owner"] == before.payload["owner"]

    async def test_writes_that_race_for_a_run_have_one_order(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(RACERS)]
        driver = await drive(stores[0])

        async def keep_signalling(store: Store, name: str) -> None:
            for number in range(5):
                other = Driver(store, driver.run_id, driver.token)
                await other.tell(SendSignal(f"{name}{number}"))
                await other.write(AwaitSignal(f"{name}{number}"))

        await asyncio.gather(*(keep_signalling(s, f"{n}.") for n, s in enumerate(stores)))
        entries = await stores[0].read_run(driver.run_id, 0, MANY)
        assert [entry.seq for entry in entries] == list(range(1, 2 + RACERS * 10))
        assert (await driver.run()).seq_cursor == len(entries)

    async def test_an_end_may_be_said_again_and_is_the_end(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver = await drive(store)
        ended = await driver.end()
        assert await driver.end() == ended
        assert (ended.status, ended.lease_owner, ended.ended_at_ms > 0) == (4, "", True)
        with pytest.raises(RunEnded):
            await driver.write(RecordDecision(0, "m"))
        with pytest.raises(RunEnded):
            await take_over(store, driver.run_id, "b")
        assert len(await read_all(store)) == 2

    async def test_a_cancelled_run_ends_at_once_or_tells_its_driver(
        self, open_store: OpenStore
    ) -> None:
        store, other = await open_store(), await open_store()
        driven, left = await drive(store, "driven"), await drive(store, "left", ttl_ms=SHORT_MS)
        await pass_beyond(store, (await left.run()).lease_expires_at_ms)
        for driver in (driven, left):
            await Driver(other, *driver[1:]).tell(CancelRun("enough", ""))
        assert (await driven.heartbeat()).cancel_reason == "enough"
        assert (await left.run()).status == RunStatus.CANCELLED
        assert (await driven.end(RunStatus.CANCELLED)).status == RunStatus.CANCELLED

    async def test_the_end_of_a_child_opens_its_parents_gate(self, open_store: OpenStore) -> None:
        store = await open_store()
        parent = await drive(store, "parent")
        child = await drive(
            store, "child", parent_run_id=parent.run_id, parent_fencing_token=parent.token
        )
        await parent.write(AwaitSignal(f"run:{child.run_id}"))
        await parent.release(waiting_on=f"run:{child.run_id}")
        await child.end(RunStatus.TERMINAL, parent.run_id)
        assert (await parent.run()).status == RunStatus.RUNNABLE
        again = await take_over(await open_store(), parent.run_id, "b")
        gate = await again.write(AwaitSignal(f"run:{child.run_id}"))
        assert gate.released is True
