"""Expressions of callers: what is long is checked apart, and once."""

from collections.abc import Callable

import pytest

from tape.errors import InvalidArgument, TooLarge
from tape.predicates import Checker, Predicate, PredicateLimits, predicate
from tape.predicates.checker import REMEMBERED, SHORT_CHARACTERS

SHORT = "kind == 'value'"
LONG = " || ".join(f"payload.n == {number}" for number in range(100))


class Apart:
    """Where calls that may take long are made; counts them."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, function: Callable[[], Predicate]) -> Predicate:
        self.calls += 1
        return function()


@pytest.fixture
def apart() -> Apart:
    return Apart()


@pytest.fixture
def checker(apart: Apart) -> Checker:
    return Checker(PredicateLimits(length=4096), apart)


async def test_what_is_short_is_checked_at_once(checker: Checker, apart: Apart) -> None:
    found = checker.at_once(SHORT)
    assert found is not None
    assert await checker.checked(SHORT) is found
    assert apart.calls == 0


@pytest.mark.parametrize("expression", [LONG, "kind.matches('a{0,900}')"])
async def test_what_may_take_long_is_checked_apart_and_remembered(
    checker: Checker, apart: Apart, expression: str
) -> None:
    assert checker.at_once(expression) is None
    found = await checker.checked(expression)
    assert found.expression == expression
    assert apart.calls == 1
    assert checker.at_once(expression) is found
    assert await checker.checked(expression) is found
    assert apart.calls == 1


async def test_whoever_waited_while_another_asked_the_same_gets_that() -> None:
    found: list[Predicate] = []

    async def after_another(function: Callable[[], Predicate]) -> Predicate:
        if not found:
            found.append(function())
            found.append(await asked.checked(LONG))
        return function()

    asked = Checker(PredicateLimits(), after_another)
    assert await asked.checked(LONG) is found[1]


async def test_it_is_translated_where_it_is_checked_and_never_again(
    checker: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await checker.checked(LONG + " || kind == 'a'")
    assert (await checker.checked(SHORT)).sql_prefilter("sqlite") is not None

    def translated(*_arguments: object) -> None:
        raise AssertionError("it was translated again")

    monkeypatch.setattr(predicate, "prefilter", translated)
    assert (await checker.checked(SHORT)).sql_prefilter("sqlite") is not None
    for dialect in ("sqlite", "postgres"):
        assert found.sql_prefilter(dialect) is None


async def test_a_refusal_names_the_field_each_time(checker: Checker, apart: Apart) -> None:
    for field in ("where", "filter_expr"):
        with pytest.raises(InvalidArgument, match=field):
            checker.at_once("payload +", field=field)
        with pytest.raises(InvalidArgument, match=field):
            await checker.checked(LONG + " +", field=field)
    with pytest.raises(TooLarge):
        await checker.checked("x" * 4097)
    assert apart.calls == 3


async def test_what_was_asked_for_longest_ago_is_forgotten(checker: Checker, apart: Apart) -> None:
    await checker.checked(LONG)
    for number in range(REMEMBERED - 1):
        await checker.checked(f"seq == {number}")
    await checker.checked(LONG)
    assert apart.calls == 1
    for number in range(REMEMBERED):
        await checker.checked(f"seq == {number}")
    await checker.checked(LONG)
    assert apart.calls == 2


def test_the_longest_of_the_short_is_short(checker: Checker) -> None:
    exact = SHORT.ljust(SHORT_CHARACTERS)
    assert checker.at_once(exact) is not None
    assert checker.at_once(exact + " ") is None
