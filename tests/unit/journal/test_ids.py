"""Entry ids: valid ULIDs, unique, and increasing whatever the clock does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.journal.ids import UlidFactory

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def milliseconds(ulid: str) -> int:
    number = 0
    for character in ulid[:10]:
        number = number * 32 + ALPHABET.index(character)
    return number


def take(factory: UlidFactory, count: int) -> list[str]:
    return [next(factory) for _ in range(count)]


def test_an_id_is_a_ulid_of_its_time() -> None:
    ids = take(UlidFactory(lambda: 1_700_000_000_123), 100)
    for one in ids:
        assert len(one) == 26
        assert set(one) <= set(ALPHABET)
        assert milliseconds(one) == 1_700_000_000_123


def test_the_largest_time_still_fits() -> None:
    (one,) = take(UlidFactory(lambda: 2**48 - 1), 1)
    assert one[0] == "7"


@given(st.lists(st.integers(0, 3), min_size=1, max_size=200))
def test_ids_increase_though_the_clock_stands_still_or_steps_back(times: list[int]) -> None:
    clock = iter(times)
    ids = take(UlidFactory(lambda: next(clock)), len(times))
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("now", [0, 1_700_000_000_000])
def test_ids_increase_past_the_end_of_a_millisecond(now: int) -> None:
    factory = UlidFactory(lambda: now)
    first = next(factory)
    factory._count = (1 << 20) - 3
    ids = take(factory, 6)
    assert [first, *ids] == sorted({first, *ids})
    assert milliseconds(ids[-1]) == now + 1


def test_ids_of_several_makers_differ() -> None:
    makers = [UlidFactory(lambda: 5) for _ in range(20)]
    ids = [one for maker in makers for one in take(maker, 100)]
    assert len(set(ids)) == len(ids)


@given(st.lists(st.integers(0, 5), max_size=20))
def test_ids_taken_together_are_like_ids_taken_one_by_one(counts: list[int]) -> None:
    factory = UlidFactory(lambda: 5)
    factory._count = (1 << 20) - 20
    ids = [one for count in counts for one in factory.take(count)]
    assert len(ids) == sum(counts)
    assert ids == sorted(set(ids))


def test_more_than_a_millisecond_holds() -> None:
    ids = UlidFactory(lambda: 5).take((1 << 20) + 5)
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids)
