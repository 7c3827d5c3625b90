"""Gates: the first word counts, whether it comes before the run does or after."""

from tape.model.gate import GATES, AwaitSignal, Gate, SendSignal
from tape.model.move import Need, save
from tape.model.run import RunStatus
from tests.conformance.playing import Look, OpenStore, SaveRows, play, read_all
from tests.conformance.running import Driver, changing, drive, race, take_over


class GatesContract:
    async def test_a_row_comes_back_as_it_was_written(self, open_store: OpenStore) -> None:
        store = await open_store()
        rows = [
            Gate("r/ä", f"{awaited}{released}", awaited, released, "[1]", '"ä"')
            for awaited in (True, False)
            for released in (True, False)
        ]
        await play(store, SaveRows(*(save(GATES, row) for row in rows)))
        needs = [Need(GATES, ("r/ä", row.gate_name)) for row in rows]
        found = await play(await open_store(), Look(*needs))
        assert found == rows
        assert [type(gate.awaited) for gate in found] == [bool] * 4
        changed = rows[-1]._replace(awaited=True, released=True, resolution_json="[2]")
        await play(store, SaveRows(save(GATES, changed)))
        assert await play(store, Look(needs[-1])) == [changed]

    async def test_a_word_that_came_early_is_kept(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        driver = await drive(store)
        assert (await Driver(other, *driver[1:]).tell(SendSignal("g", '"yes"'))).accepted
        gate = await driver.write(AwaitSignal("g", '"please"'))
        assert gate == Gate(driver.run_id, "g", True, True, '"please"', '"yes"')
        assert await driver.write(AwaitSignal("g")) == gate

    async def test_a_word_wakes_a_run_that_waits(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        driver = await drive(store)
        assert not (await driver.write(AwaitSignal("g"))).released
        await driver.release(waiting_on="g")
        signalled = await Driver(other, *driver[1:]).tell(SendSignal("g", '"yes"'))
        assert signalled.accepted
        assert (await driver.run()).status == RunStatus.RUNNABLE
        again = await take_over(other, driver.run_id, "b")
        assert (await again.write(AwaitSignal("g"))).resolution_json == '"yes"'

    async def test_the_first_of_many_words_counts(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        driver = await drive(stores[0])
        words = [SendSignal("g", str(n)) for n in range(len(stores))]
        outcomes = await race(stores, [changing(driver.run_id, word) for word in words])
        accepted = [extended.replies[0].accepted for extended in outcomes]
        assert accepted.count(True) == 1
        gate = await driver.write(AwaitSignal("g"))
        assert gate.resolution_json == str(accepted.index(True))
        assert len(await read_all(stores[0])) == 3
