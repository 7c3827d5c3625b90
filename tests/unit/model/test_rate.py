"""A rate: starts as far apart as it says, and no more caught up than a moment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.model.rate import CATCH_UP_US, allowed_starts, free_after_idling

NOW = 10_000_000


def test_the_first_start_is_at_once_and_the_next_a_pause_later() -> None:
    starts = allowed_starts(2.0, 0, NOW)
    assert starts.most == 1
    free = starts.free_us_after(1)
    assert free == NOW - CATCH_UP_US + 500_000
    assert allowed_starts(2.0, free, free - 1).most == 0
    assert allowed_starts(2.0, free, free).most == 1


@pytest.mark.parametrize(("rate", "most"), [(1000.0, 101), (100.0, 11), (10.0, 2), (0.5, 1)])
def test_only_the_last_moment_is_caught_up(rate: float, most: int) -> None:
    assert allowed_starts(rate, 0, NOW).most == most


def test_what_is_far_ahead_allows_none() -> None:
    assert allowed_starts(10.0, NOW + 5_000_000, NOW).most == 0


@given(
    st.floats(0.1, 5_000),
    st.lists(st.tuples(st.integers(0, 300_000), st.integers(1, 500)), max_size=60),
)
def test_it_never_starts_more_than_the_rate_and_a_moment(
    rate: float, asked: list[tuple[int, int]]
) -> None:
    now, free, started = NOW, 0, 0
    for later, wanted in asked:
        now += later
        starts = allowed_starts(rate, free, now)
        taken = min(wanted, starts.most)
        if taken:
            free = starts.free_us_after(taken)
        started += taken
        # Each rounding of `free` is by half a microsecond at most.
        most = rate * (now - NOW + CATCH_UP_US + len(asked)) / 1_000_000 + 1
        assert started <= most + 1e-6


@pytest.mark.parametrize(
    ("rate", "caught_up_us"), [(2.0, 0), (10.0, 100_000), (15.0, 66_667), (100.0, 100_000)]
)
def test_after_idling_whole_starts_are_caught_up(rate: float, caught_up_us: int) -> None:
    assert free_after_idling(rate, 0, NOW) == NOW - caught_up_us


def test_what_is_free_only_later_stays_so() -> None:
    assert free_after_idling(2.0, NOW + 400_000, NOW) == NOW + 400_000
