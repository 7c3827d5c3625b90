"""Budgets: what was charged is counted once and kept to the last digit."""

from tape.model.budget import BUDGETS, BudgetRow, ChargeBudget, SetBudget
from tape.model.move import Need, save
from tests.conformance.playing import Look, OpenStore, SaveRows, play, read_all
from tests.conformance.running import drive


class BudgetsContract:
    async def test_a_row_comes_back_as_it_was_written(self, open_store: OpenStore) -> None:
        store = await open_store()
        row = BudgetRow("r/ä", 0.1 + 0.2, 2**62, 1e-300, 2**63 - 1, "c/ä")
        await play(store, SaveRows(save(BUDGETS, row)))
        assert await (await open_store()).runs.get_budget("r/ä") == row
        changed = BudgetRow("r/ä", 5.0, 0, 0.0, 0, "")
        await play(store, SaveRows(save(BUDGETS, changed)))
        (found,) = await play(store, Look(Need(BUDGETS, "r/ä")))
        assert found == changed
        assert [type(field) for field in found] == [str, float, int, float, int, str]
        assert await store.runs.get_budget("R/ä") is None

    async def test_charges_add_up_and_a_repeat_does_not_count(self, open_store: OpenStore) -> None:
        store = await open_store()
        driver = await drive(store)
        assert await store.runs.get_budget(driver.run_id) is None
        await driver.extend(SetBudget(1.5, 100), ChargeBudget(0.25, 7, "c1"))
        await driver.write(ChargeBudget(0.25, 7, "c1"))
        charged = await driver.write(ChargeBudget(0.5, 3, "c2"))
        assert charged == BudgetRow(driver.run_id, 1.5, 100, 0.75, 10, "c2")
        assert await (await open_store()).runs.get_budget(driver.run_id) == charged
        assert len(await read_all(store)) == 4
        assert charged.refusal(0.75, 90) == ""
        assert charged.refusal(0.76, 0)
        assert charged.refusal(0, 91)
