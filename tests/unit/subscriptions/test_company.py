"""A subscription takes long turns alone, and short ones beside another that accepts a few."""

from tape.subscriptions.company import (
    COMPANY_S,
    FEW,
    MOST_BESIDE_OTHERS,
    MOST_TOGETHER,
    Company,
)


class Moment:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_alone_its_turns_are_long() -> None:
    company = Company(Moment())
    for count in (MOST_TOGETHER, 1, FEW):
        company.note("firehose", count)
        assert company.most_together("firehose") == MOST_TOGETHER


def test_beside_another_they_are_short_for_as_long_as_that_accepts_a_few() -> None:
    now = Moment()
    company = Company(now)
    company.note("firehose", MOST_TOGETHER)
    company.note("steady", 1)
    for _ in range(3):
        now.now += COMPANY_S / 3
        company.note("firehose", MOST_TOGETHER)
        assert company.most_together("firehose") == MOST_BESIDE_OTHERS
    now.now += 0.001
    assert company.most_together("firehose") == MOST_TOGETHER


def test_two_that_have_much_to_accept_do_not_make_each_other_slow() -> None:
    company = Company(Moment())
    for name in ("a", "b"):
        company.note(name, FEW)
    assert [company.most_together(name) for name in ("a", "b")] == [MOST_TOGETHER] * 2


def test_who_comes_third_is_company_of_both() -> None:
    now = Moment()
    company = Company(now)
    for name in ("a", "b", "c"):
        company.note(name, 1)
        now.now += 1
    assert [company.most_together(name) for name in ("a", "b", "c")] == [MOST_BESIDE_OTHERS] * 3
    now.now += COMPANY_S - 1
    assert company.most_together("b") == MOST_BESIDE_OTHERS  # "c" was the last
    now.now += 0.001
    assert company.most_together("b") == MOST_TOGETHER
