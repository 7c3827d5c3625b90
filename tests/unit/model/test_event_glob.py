"""Globs over event types: what they match, what is refused, and what Tape keeps for itself."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.errors import InvalidArgument, TooLarge
from tape.model.event_glob import OWN_PREFIX, parse_glob
from tape.settings import Limits

LIMITS = Limits()

MATCHES = [
    ("price.*", "price.changed", True),
    ("price.*", "price.changed.late", True),
    ("price.*", "price.", True),
    ("price.*", "price", False),
    ("price.*", "prices.changed", False),
    ("*.changed", "price.changed", True),
    ("*.changed", "price.unchanged", False),
    ("price.*.eu", "price.changed.eu", True),
    ("price.*.eu", "price.eu", False),
    ("a*a", "a", False),
    ("a*a", "aa", True),
    ("*b*b*", "ab", False),
    ("*b*b*", "abb", True),
    ("*", "anything at all", True),
    ("*", "", True),
    ("exact", "exact", True),
    ("exact", "exactly", False),
    ("Price.*", "price.x", False),
    ("ä.*", "ä.ö", True),
    ("a.c", "abc", False),
]


@pytest.mark.parametrize(("glob", "event_type", "expected"), MATCHES)
def test_a_glob_matches(glob: str, event_type: str, *, expected: bool) -> None:
    assert parse_glob(glob, LIMITS).matches(event_type) is expected


@pytest.mark.parametrize(
    ("glob", "expected"),
    [("*", False), ("*failed", False), ("w*", False), ("workflow*", False), ("workflow.*", True),
     ("workflow.dispatch_failed", True), ("workflow.dispatch*", True)],
)  # fmt: skip
def test_tapes_own_events_are_asked_for_by_name(glob: str, *, expected: bool) -> None:
    assert parse_glob(glob, LIMITS).matches("workflow.dispatch_failed") is expected


@pytest.mark.parametrize(
    ("glob", "position", "reason"),
    [
        ("price.?", 6, "only * is a wildcard"),
        ("[ab].c", 0, "only * is a wildcard"),
        ("a\\*", 1, "only * is a wildcard"),
        ("price.**", 7, "one * is enough"),
        ("a\0b", 1, "NUL"),
    ],
)
def test_what_is_no_glob_is_refused_at_its_place(glob: str, position: int, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(reason)) as fault:
        parse_glob(glob, LIMITS)
    assert (fault.value.field, fault.value.position) == ("event_type_glob", position)


def test_an_empty_or_endless_glob_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="must not be empty"):
        parse_glob("", LIMITS)
    with pytest.raises(TooLarge):
        parse_glob("a" * 513, LIMITS)


@given(
    st.lists(st.text("ab.", max_size=3), min_size=1, max_size=5).map("*".join),
    st.text("ab.", max_size=12),
)
def test_it_is_what_a_regular_expression_says(glob: str, event_type: str) -> None:
    if "**" in glob or not glob:
        return
    expected = re.fullmatch(".*".join(map(re.escape, glob.split("*"))), event_type)
    assert parse_glob(glob, LIMITS).matches(event_type) is bool(expected)


def test_no_glob_is_slow() -> None:
    """What would take a backtracking matcher for ever."""
    glob = parse_glob("*a" * 200 + "b", LIMITS)
    assert not glob.matches("a" * 500)
    assert OWN_PREFIX == "workflow."


def test_who_only_looks_sees_tapes_own_types() -> None:
    glob = parse_glob("*failed", Limits())
    assert glob.fits("workflow.dispatch_failed")
    assert not glob.matches("workflow.dispatch_failed")
    assert not glob.fits("workflow.dispatched")
