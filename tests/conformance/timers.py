"""Timers: due by the store's clock, fired once, by whoever is first."""

from tape.model.gate import AwaitSignal
from tape.model.move import Need, save
from tape.model.run import RunStatus
from tape.model.timer import GATE_TIMEOUT, TIMERS, CancelTimer, FireTimer, SetTimer, Timer
from tape.ports.store import Store
from tests.conformance.playing import (
    MANY,
    Look,
    OpenStore,
    SaveRows,
    play,
)
from tests.conformance.running import LONG_MS, changing, clock_of, drive, pass_beyond, race


async def due(store: Store, limit: int = MANY) -> list[str]:
    return [timer.timer_id for timer in await store.runs.list_due_timers(limit)]


class TimersContract:
    async def test_a_row_comes_back_as_it_was_written(self, open_store: OpenStore) -> None:
        store = await open_store()
        row = Timer("r/ä", "t/ä", 2**61, "kind", "[1]", True, True, 2)
        await play(store, SaveRows(save(TIMERS, row)))
        (found,) = await (await open_store()).runs.list_timers("r/ä")
        assert found == row
        assert (type(found.fired), type(found.cancelled)) == (bool, bool)
        changed = row._replace(fired=False, cancelled=False)
        await play(store, SaveRows(save(TIMERS, changed)))
        assert await play(store, Look(Need(TIMERS, ("r/ä", "t/ä")))) == [changed]
        assert await store.runs.list_timers("R/ä") == []

    async def test_a_timer_is_set_once(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver = await drive(store)
        timer = await driver.write(SetTimer("t", after_ms=LONG_MS))
        assert timer.fire_at_ms == timer.created_at_ms + LONG_MS
        assert await driver.write(SetTimer("t", fire_at_ms=5)) == timer
        assert await store.runs.list_timers(driver.run_id) == [timer]

    async def test_a_runs_timers_come_in_the_order_of_their_time(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        driver, other = await drive(store), await drive(store, "2")
        await driver.extend(*(SetTimer(f"t{n}", fire_at_ms=n) for n in (3, 1, 2)))
        await driver.write(CancelTimer("t1"))
        await other.write(SetTimer("other", fire_at_ms=1))
        found = await store.runs.list_timers(driver.run_id)
        assert [timer.timer_id for timer in found] == ["t1", "t2", "t3"]
        assert [timer.cancelled for timer in found] == [True, False, False]

    async def test_due_are_those_whose_time_has_come(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver, other = await drive(store), await drive(store, "2")
        now = await clock_of(store)
        await driver.extend(SetTimer("past", fire_at_ms=5), SetTimer("later", after_ms=LONG_MS))
        await other.extend(
            SetTimer("soon", fire_at_ms=now + 1),
            SetTimer("cancelled", fire_at_ms=1),
            SetTimer("earliest", fire_at_ms=2),
            CancelTimer("cancelled"),
        )
        await pass_beyond(store, now)
        assert await due(store) == ["earliest", "past", "soon"]
        assert await due(store, 2) == ["earliest", "past"]
        for timer in await store.runs.list_due_timers(MANY):
            fired = await (other if timer.run_id == other.run_id else driver).tell(FireTimer(timer))
            assert fired == timer._replace(fired=True)
        assert await due(await open_store()) == []

    async def test_how_long_until_the_next(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert await store.runs.next_timer_in_ms() is None
        driver = await drive(store)
        late = await driver.write(SetTimer("late", after_ms=LONG_MS))
        wait_ms = await store.runs.next_timer_in_ms()
        assert wait_ms is not None
        assert 0 < wait_ms <= late.fire_at_ms - await clock_of(store) + LONG_MS
        assert wait_ms <= LONG_MS
        now = await driver.write(SetTimer("now", fire_at_ms=7))
        assert await store.runs.next_timer_in_ms() == 0
        await driver.tell(FireTimer(now))
        assert (await store.runs.next_timer_in_ms() or 0) > 0
        await driver.write(CancelTimer("late"))
        assert await store.runs.next_timer_in_ms() is None

    async def test_a_timer_fires_once(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        driver = await drive(stores[0])
        timer = await driver.write(SetTimer("t", fire_at_ms=5))
        early = await driver.write(SetTimer("early", after_ms=LONG_MS))
        await driver.release(waiting_on="t")
        assert await driver.tell(FireTimer(early)) is None
        outcomes = await race(stores, [changing(driver.run_id, FireTimer(timer)) for _ in stores])
        fired = [extended.replies[0] for extended in outcomes]
        assert fired.count(None) == len(stores) - 1
        assert (await driver.run()).status == RunStatus.RUNNABLE

    async def test_a_gate_opens_when_its_time_is_over(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver = await drive(store)
        await driver.extend(
            AwaitSignal("g"), SetTimer("t", 5, GATE_TIMEOUT, payload_json='{"gate":"g"}')
        )
        (timer,) = await store.runs.list_due_timers(MANY)
        await driver.tell(FireTimer(timer))
        gate = await driver.write(AwaitSignal("g"))
        assert (gate.released, gate.resolution_json) == (True, '{"timed_out":true}')
