"""Budgets: caps, what was spent, and what is still admitted."""

import math

import pytest

from tape.errors import InvalidArgument, StaleLease, TooLarge
from tape.model.budget import BUDGETS, BudgetRow, ChargeBudget, SetBudget, check_amounts
from tape.model.move import Need
from tests.unit.model.run_world import LIMITS, RUN, World, driven, faulty, refused, unchanged


def budget(world: World) -> BudgetRow | None:
    row: BudgetRow | None = world.get(BUDGETS, RUN)
    return row


class TestCaps:
    def test_they_are_written_down(self) -> None:
        world = driven()
        assert world.drive(SetBudget(2.5, 100)) == BudgetRow(RUN, 2.5, 100) == budget(world)
        assert world.entries[-1].subject == f"/tape/budget/set/{RUN}"
        assert world.payload() == BudgetRow(RUN, 2.5, 100)._asdict()

    def test_they_may_be_changed_and_what_was_spent_stays(self) -> None:
        world = driven()
        world.drive(SetBudget(2.5, 100), ChargeBudget(1.0, 10, "c"))
        assert world.drive(SetBudget(9, 0)) == BudgetRow(RUN, 9, 0, 1.0, 10, "c")

    def test_the_same_again_writes_nothing(self) -> None:
        world = driven()
        for caps in (SetBudget(), SetBudget(2.5, 100)):
            before = world.drive(caps)
            with unchanged(world):
                assert world.drive(caps) == before

    def test_less_than_nothing_is_no_cap(self) -> None:
        assert driven().drive(SetBudget(-1.0, -5)) == BudgetRow(RUN, 0.0, 0)

    def test_only_the_driver_sets_them(self) -> None:
        world = driven()
        with refused(world, StaleLease):
            world.extend(2, SetBudget(1))


class TestCharges:
    def test_they_add_up(self) -> None:
        world = driven()
        world.drive(ChargeBudget(0.25, 3, "a"))
        assert world.drive(ChargeBudget(0.5, 4, "b")) == BudgetRow(RUN, 0, 0, 0.75, 7, "b")
        assert world.entries[-1].subject == f"/tape/budget/charged/{RUN}"
        assert world.payload() == {
            **BudgetRow(RUN, 0, 0, 0.75, 7, "b")._asdict(),
            "usd": 0.5,
            "tokens": 4,
        }

    def test_the_same_again_is_charged_once(self) -> None:
        world = driven()
        world.drive(ChargeBudget(0.5, 4, "a"))
        with unchanged(world):
            assert world.drive(ChargeBudget(0.5, 4, "a")).tokens_spent == 4

    def test_one_without_an_id_counts_each_time(self) -> None:
        world = driven()
        world.drive(ChargeBudget(0.5, 4))
        assert world.drive(ChargeBudget(0.5, 4)).tokens_spent == 8

    def test_what_is_spent_is_charged_though_it_is_too_much(self) -> None:
        world = driven()
        assert world.drive(SetBudget(1, 1), ChargeBudget(5, 5, "a")).usd_spent == 5

    def test_only_the_driver_charges(self) -> None:
        world = driven()
        with refused(world, StaleLease):
            world.extend(0, ChargeBudget(1))

    def test_a_sum_that_no_number_holds_is_refused(self) -> None:
        world = driven()
        world.drive(ChargeBudget(1.5e308, 2**63 - 1))
        with refused(world, InvalidArgument, "usd"):
            world.drive(ChargeBudget(1.5e308))
        with refused(world, InvalidArgument, "tokens"):
            world.drive(ChargeBudget(0, 1))


class TestAdmission:
    @pytest.mark.parametrize(
        ("usd", "tokens", "admitted"),
        [(0, 0, True), (6, 60, True), (6.5, 0, False), (0, 61, False), (7, 61, False)],
    )
    def test_what_is_left_is_admitted(self, usd: float, tokens: int, admitted: bool) -> None:
        assert (BudgetRow(RUN, 10, 100, 4, 40).refusal(usd, tokens) == "") is admitted

    def test_without_a_cap_everything_is(self) -> None:
        assert BudgetRow(RUN, 0, 0, 4, 40).refusal(1e9, 10**9) == ""
        assert BudgetRow(RUN, 0, 50, 4, 40).refusal(1e9, 10) == ""
        assert BudgetRow(RUN, 5, 0, 4, 40).refusal(1, 10**9) == ""

    def test_a_refusal_says_what_is_too_much(self) -> None:
        spent = BudgetRow(RUN, 10, 100, 4.5, 40)
        assert spent.refusal(7.25, 0) == "4.5 of 10 USD are spent, 7.25 more would exceed the cap"
        assert spent.refusal(0, 61) == "40 of 100 tokens are spent, 61 more would exceed the cap"


def test_what_they_look_at_and_weigh() -> None:
    for write in (SetBudget(1), ChargeBudget(1)):
        assert list(write.needs(RUN)) == [Need(BUDGETS, RUN)]
        assert write.size > 0


@pytest.mark.parametrize(
    ("write", "error", "field"),
    [
        (SetBudget(math.nan), InvalidArgument, "usd_cap"),
        (SetBudget(math.inf), InvalidArgument, "usd_cap"),
        (SetBudget(0, 2**63), InvalidArgument, "token_cap"),
        (SetBudget(0, -(2**63)), InvalidArgument, "token_cap"),
        (ChargeBudget(math.nan), InvalidArgument, "usd"),
        (ChargeBudget(-0.5), InvalidArgument, "usd"),
        (ChargeBudget(-math.inf), InvalidArgument, "usd"),
        (ChargeBudget(0, -1), InvalidArgument, "tokens"),
        (ChargeBudget(0, 2**63), InvalidArgument, "tokens"),
        (ChargeBudget(0, 0, "\0"), InvalidArgument, "charge_id"),
        (ChargeBudget(0, 0, "x" * 513), TooLarge, "charge_id"),
    ],
)
def test_bad_input_is_refused_with_its_field(
    write: SetBudget | ChargeBudget, error: type[InvalidArgument], field: str
) -> None:
    faulty(write, error, field)


def test_amounts_that_will_do() -> None:
    check_amounts(0, 0)
    check_amounts(1e300, 2**63 - 1)
    check_amounts(-1.0, -5, signed=True)
    assert ChargeBudget(0.5, 4, "a").checked(LIMITS) == ChargeBudget(0.5, 4, "a")
