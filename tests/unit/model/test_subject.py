"""The subject grammar: one spelling for any dimension, and refusals that say where."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.errors import InvalidArgument, TooLarge
from tape.model import subjects
from tape.model.subject import (
    build_subject,
    check_length,
    encode_segment,
    parse_pattern,
    parse_subject,
)
from tape.settings import Limits

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# Shorter alphabets find clashes such as "" against "_" against "%5F" sooner.
TRICKY = st.text(st.sampled_from("_%5F/*a A.~-é\0"), max_size=4)
DIMENSION = TEXT | TRICKY


def decode(segment: str) -> str:
    return "" if segment == "_" else unquote(segment, errors="strict")


@given(st.lists(DIMENSION, max_size=6))
def test_dimensions_survive_the_subject(dimensions: list[str]) -> None:
    kind, verb, *segments = parse_subject(build_subject("value", "changed", *dimensions))
    assert (kind, verb) == ("value", "changed")
    assert [decode(segment) for segment in segments] == dimensions


@given(st.lists(DIMENSION, max_size=4), st.lists(DIMENSION, max_size=4))
def test_two_lists_of_dimensions_never_share_a_subject(one: list[str], two: list[str]) -> None:
    same = build_subject("value", "changed", *one) == build_subject("value", "changed", *two)
    assert same == (one == two)


@given(DIMENSION)
def test_a_segment_holds_nothing_that_means_something(text: str) -> None:
    segment = encode_segment(text)
    assert segment.isascii()
    assert segment
    assert not set(segment) & set("/* \0")
    assert parse_pattern(build_subject("value", "changed", text)).exact


@pytest.mark.parametrize(
    ("text", "segment"),
    [
        ("", "_"),
        ("_", "%5F"),
        ("__", "__"),
        ("_a", "_a"),
        ("a_", "a_"),
        ("%5F", "%255F"),
        ("a/b", "a%2Fb"),
        ("*", "%2A"),
        ("**", "%2A%2A"),
        ("a b", "a%20b"),
        ("Ä", "%C3%84"),
        ("A.b-c~d", "A.b-c~d"),
        (".", "."),
        ("..", ".."),
        ("\0", "%00"),
        ("😀", "%F0%9F%98%80"),
    ],
)
def test_spellings(text: str, segment: str) -> None:
    assert encode_segment(text) == segment


CANONICAL = [
    (subjects.run_status("running", "a", "u", "s", "r"), "/tape/run/running/a/u/s/r"),
    (subjects.decision("recorded", "r", 0), "/tape/decision/recorded/r/0"),
    (subjects.decision("drawn", "r", 1), "/tape/decision/drawn/r/1"),
    (subjects.effect("pending", "t", "r"), "/tape/effect/pending/t/r"),
    (subjects.effect("confirmed", "execute_sweep", "r"), "/tape/effect/confirmed/execute_sweep/r"),
    (subjects.effect("failed", "t", "r"), "/tape/effect/failed/t/r"),
    (subjects.effect("unknown", "t", "r"), "/tape/effect/unknown/t/r"),
    (subjects.effect("reconciled", "t", "r"), "/tape/effect/reconciled/t/r"),
    (subjects.obligation("registered", "k", "r"), "/tape/obligation/registered/k/r"),
    (subjects.obligation("compensated", "k", "r"), "/tape/obligation/compensated/k/r"),
    (subjects.gate_waiting("g", "r"), "/tape/gate/waiting/g/r"),
    (subjects.gate_released("g", "r"), "/tape/gate/released/g/r"),
    (subjects.value_changed("treasury", "eur/usd"), "/tape/value/changed/treasury/eur%2Fusd"),
    (subjects.value_deleted("n", "k"), "/tape/value/deleted/n/k"),
    (subjects.session_event_appended("a", "u", "s"), "/tape/event/appended/a/u/s"),
    (subjects.session("created", "a", "u", "s"), "/tape/session/created/a/u/s"),
    (subjects.event_recorded("order.paid", "", "7"), "/tape/event/recorded/order.paid/_/7"),
    (subjects.task_subject("dead_lettered", "rx", "t"), "/tape/task/dead_lettered/rx/t"),
    (subjects.drainer_halted("d"), "/tape/drainer/halted/d"),
    (subjects.drainer_resumed("d"), "/tape/drainer/resumed/d"),
    (subjects.subscription("circuit_opened", "n"), "/tape/subscription/circuit_opened/n"),
    (subjects.timer("fired", "redrive", "r"), "/tape/timer/fired/redrive/r"),
    (subjects.budget("charged", "r"), "/tape/budget/charged/r"),
]


@pytest.mark.parametrize(("made", "expected"), CANONICAL)
def test_canonical_subjects(made: str, expected: str) -> None:
    assert made == expected
    parse_subject(made)


BAD_ANYWHERE = [
    ("", 0, "must start with"),
    ("tape/value/changed", 0, "must start with"),
    ("/Tape/value/changed", 1, "must start with"),
    ("/tapeworm/value", 5, "must start with"),
    ("/tape", 5, "must start with"),
    ("/tape/", 6, "empty segment"),
    ("/tape//changed", 6, "empty segment"),
    ("/tape/value//k", 12, "empty segment"),
    ("/tape/value/changed/", 20, "empty segment"),
    ("/tape/value/changed//k", 20, "empty segment"),
    ("/tape/Value/changed/k", 6, "kind"),
    ("/tape/value/Changed/k", 12, "verb"),
    ("/tape/9/changed", 6, "kind"),
    ("/tape/value/ch-anged", 12, "verb"),
    ("/tape/v%61lue/changed", 6, "kind"),
    ("/tape/value/changed/a*b", 21, "stands alone"),
    ("/tape/value/changed/***", 20, "stands alone"),
    ("/tape/value/changed/ab%", 22, "hexadecimal"),
    ("/tape/value/changed/%2", 20, "hexadecimal"),
    ("/tape/value/changed/%2f", 20, "hexadecimal"),
    ("/tape/value/changed/%zz", 20, "hexadecimal"),
    ("/tape/value/changed/%2F%2f", 23, "hexadecimal"),
    ("/tape/value/changed/a b", 21, "%20"),
    ("/tape/value/changed/é", 20, "%C3%A9"),
    ("/tape/value/changed/a\0", 21, "%00"),
    ("/tape/value/changed/a\n", 21, "%0A"),
    ("/tape/value/changed/a\ud800", 21, "surrogate"),
    ("/tape/value/changed/k?x", 21, "%3F"),
]


@pytest.mark.parametrize(("text", "position", "advice"), BAD_ANYWHERE)
def test_a_bad_subject_is_refused_where_the_fault_is(text: str, position: int, advice: str) -> None:
    with pytest.raises(InvalidArgument, match=advice) as refused:
        parse_subject(text)
    assert (refused.value.position, refused.value.field) == (position, "subject")
    assert f"at position {position}" in str(refused.value)


@pytest.mark.parametrize(("text", "position", "advice"), BAD_ANYWHERE)
def test_a_bad_pattern_is_refused_where_the_fault_is(text: str, position: int, advice: str) -> None:
    with pytest.raises(InvalidArgument, match=advice) as refused:
        parse_pattern(text)
    assert (refused.value.position, refused.value.field) == (position, "subject_pattern")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("/tape/**/changed", 6),
        ("/tape/value/**/k", 12),
        ("/tape/value/changed/**/**", 20),
        ("/tape/**/**", 6),
    ],
)
def test_a_deep_star_stands_at_the_end(text: str, position: int) -> None:
    with pytest.raises(InvalidArgument, match="only be the last") as refused:
        parse_pattern(text)
    assert refused.value.position == position


@pytest.mark.parametrize("text", ["/**/x", "/*", "/*/value", "**", "*", "/tape*", "/"])
def test_patterns_start_at_the_root(text: str) -> None:
    with pytest.raises(InvalidArgument, match="must start with"):
        parse_pattern(text)


@pytest.mark.parametrize(
    ("text", "position"), [("/tape/value/*/k", 12), ("/tape/*/changed", 6), ("/tape/a/b/**", 10)]
)
def test_stars_are_for_patterns(text: str, position: int) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_subject(text)
    assert refused.value.position == position


def test_a_subject_has_a_kind_and_a_verb() -> None:
    with pytest.raises(InvalidArgument, match="a kind and a verb") as refused:
        parse_subject("/tape/value")
    assert refused.value.position == len("/tape/value")


@pytest.mark.parametrize(
    ("kind", "verb"), [("Value", "a"), ("", "a"), ("a", ""), ("a/b", "c"), ("a", "b c"), ("a", "*")]
)
def test_kind_and_verb_are_words(kind: str, verb: str) -> None:
    with pytest.raises(InvalidArgument, match="lower-case words"):
        build_subject(kind, verb)


def test_two_kibibytes_are_the_limit() -> None:
    limits = Limits()
    room = limits.subject_bytes - len("/tape/value/changed/")
    longest = build_subject("value", "changed", "x" * room)
    assert len(check_length(longest, limits)) == 2048
    parse_subject(longest)
    parse_pattern(longest)
    with pytest.raises(TooLarge, match="2049"):
        check_length(longest + "x", limits)
    for parse in (parse_subject, parse_pattern):
        with pytest.raises(TooLarge):
            parse(longest + "x", limits=limits)
        parse(longest + "x")  # what is stored was within the limits of its time
        with pytest.raises(TooLarge, match="100"):
            parse(longest, limits=Limits(subject_bytes=100))


@pytest.mark.parametrize(
    ("segment", "advice"),
    [("%61", "is written 'a'"), ("a%2Db", "is written 'a-b'"), ("%FF", "is not UTF-8")],
)
def test_a_spelling_that_could_match_nothing_is_refused(segment: str, advice: str) -> None:
    with pytest.raises(InvalidArgument, match=advice) as refused:
        parse_pattern(f"/tape/value/changed/{segment}/*")
    assert refused.value.position == len("/tape/value/changed/")
