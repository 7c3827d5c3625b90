"""A subscription takes long turns alone, and short ones beside another."""

from tape.subscriptions.company import COMPANY_S, MOST_BESIDE_OTHERS, MOST_TOGETHER, Company


class Moment:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_alone_its_turns_are_long() -> None:
    company = Company(Moment())
    assert {company.most_together("firehose") for _ in range(5)} == {MOST_TOGETHER}


def test_beside_another_they_are_short_for_as_long_as_that_accepts() -> None:
    now = Moment()
    company = Company(now)
    company.most_together("firehose")
    assert company.most_together("steady") == MOST_BESIDE_OTHERS
    for _ in range(3):
        now.now += COMPANY_S / 3
        assert company.most_together("firehose") == MOST_BESIDE_OTHERS
    now.now += 0.001
    assert company.most_together("firehose") == MOST_TOGETHER


def test_who_comes_third_is_company_of_both() -> None:
    now = Moment()
    company = Company(now)
    for name in ("a", "b", "c"):
        company.most_together(name)
        now.now += 1
    assert [company.most_together(name) for name in ("a", "b", "c")] == [MOST_BESIDE_OTHERS] * 3
    now.now += COMPANY_S
    assert company.most_together("b") == MOST_BESIDE_OTHERS  # "c" was the last
    now.now += 0.001
    assert company.most_together("b") == MOST_TOGETHER
