"""The compare-and-set table of values, tombstones and repeats included."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from tape.errors import InvalidArgument, NotFound, StaleLease, TooLarge, VersionMismatch
from tape.model.entry import Entry, Trace
from tape.model.move import EntryPlace, Need, State
from tape.model.run import RUNS
from tape.model.value import (
    VALUES,
    Author,
    Deleted,
    DeleteValue,
    Value,
    ValueChange,
    ValueRow,
    WriteValue,
    change_of,
)
from tape.settings import Limits
from tests.conformance.playing import a_run

LIMITS = Limits()
IDS = map(str, itertools.count())
LIVE = ValueRow("ns", "k", '"old"', 3, 1, "me", False, "")
TOMB = ValueRow("ns", "k", "", 4, 1, "me", True, "")


def world(before: ValueRow | None, *runs: Any) -> State:
    state = State(50, 10)
    state.put_loaded(VALUES, [before] if before else [])
    state.put_loaded(RUNS, runs)
    return state


def write(text: str = '"new"', if_version: int = -1, author: Author | None = None) -> WriteValue:
    author = author or Author("me")
    return WriteValue("ns", "k", text, if_version, author=author, event_id=next(IDS), limits=LIMITS)


def delete(author: Author | None = None) -> DeleteValue:
    return DeleteValue("ns", "k", author or Author("me"), next(IDS), LIMITS)


def play(state: State, move: Any) -> Any:
    decision = move.decide(state)
    first = state.apply(decision)
    return decision.reply(EntryPlace(10 + first, 50))


@pytest.mark.parametrize(
    ("before", "if_version", "version"),
    [
        (None, -1, 1),
        (None, 0, 1),
        (LIVE, -1, 4),
        (LIVE, 3, 4),
        (TOMB, -1, 5),
        (TOMB, 0, 5),
        (None, -7, 1),
    ],
)
def test_writes_that_go_through(before: ValueRow | None, if_version: int, version: int) -> None:
    state = world(before)
    written = play(state, write(if_version=if_version))
    assert written == Value("ns", "k", '"new"', version, 50, "me", False)
    assert state.get(VALUES, ("ns", "k")) == (*written, "")
    (draft,) = state.entries
    assert (draft.kind, draft.subject) == ("value", "/tape/value/changed/ns/k")


@pytest.mark.parametrize(
    ("before", "if_version", "found"),
    [
        (None, 1, "no such value"),
        (None, 5, "no such value"),
        (LIVE, 0, "at version 3"),
        (LIVE, 2, "at version 3"),
        (LIVE, 4, "at version 3"),
        (TOMB, 4, "no such value"),
        (TOMB, 3, "no such value"),
    ],
)
def test_writes_that_do_not(before: ValueRow | None, if_version: int, found: str) -> None:
    state = world(before)
    with pytest.raises(VersionMismatch, match=f"ns/k: expected version {if_version}, .*{found}"):
        play(state, write(if_version=if_version))
    assert (state.entries, state.saves) == ([], {})


@pytest.mark.parametrize("first", [0, 3])
def test_a_repeat_is_answered_with_what_it_made(first: int) -> None:
    state = world(LIVE if first else None)
    made = play(state, write(if_version=first))
    assert play(state, write(if_version=first)) == made
    assert len(state.entries) == 1


@pytest.mark.parametrize(
    "other",
    [
        write('"else"', 3),
        write('"new"', 3, Author("you")),
        write('"new"', 2),
    ],
)
def test_what_only_looks_like_a_repeat_is_a_mismatch(other: WriteValue) -> None:
    state = world(LIVE)
    play(state, write('"new"', 3))
    with pytest.raises(VersionMismatch):
        play(state, other)


def test_an_unchecked_write_counts_each_time() -> None:
    state = world(LIVE)
    assert [play(state, write('"x"')).version for _ in range(3)] == [4, 5, 6]


def test_deleting_leaves_a_tombstone_whose_version_counts_on() -> None:
    state = world(LIVE)
    assert play(state, delete(Author("you"))) == Deleted(True, 4)
    assert state.get(VALUES, ("ns", "k")) == ValueRow("ns", "k", "", 4, 50, "you", True, "")
    (draft,) = state.entries
    assert draft.subject == "/tape/value/deleted/ns/k"


@pytest.mark.parametrize(("before", "version"), [(None, 0), (TOMB, 4)])
def test_deleting_nothing_writes_nothing(before: ValueRow | None, version: int) -> None:
    state = world(before)
    assert play(state, delete()) == Deleted(False, version)
    assert (state.entries, state.saves) == ([], {})


def test_the_entry_holds_the_change_with_what_was_before() -> None:
    state = world(LIVE)
    play(state, write('{"a": "ä"}'))
    play(state, delete())
    changes = []
    for draft in state.entries:
        fields = {**draft._asdict(), "global_seq": 1, "ts_ms": 1}
        changes.append(change_of(Entry(**fields)))
    written = Value("ns", "k", '{"a": "ä"}', 4, 50, "me", False)
    tomb = Value("ns", "k", "", 5, 50, "me", True)
    assert changes == [
        ValueChange(written, 3, '"old"'),
        ValueChange(tomb, 4, '{"a": "ä"}'),
    ]


def test_a_run_numbers_and_fences_its_changes() -> None:
    author = Author("me", "r", 2, Trace("a" * 32, "b" * 16, "c" * 16))
    state = world(None, a_run("r", fencing_token=2, seq_cursor=6))
    assert list(write(author=author).needs()) == [Need(VALUES, ("ns", "k")), Need(RUNS, "r")]
    play(state, write(author=author))
    play(state, delete(author))
    assert [(d.run_id, d.seq) for d in state.entries] == [("r", 7), ("r", 8)]
    assert state.entries[0][7:10] == author.trace
    run = state.get(RUNS, "r")
    assert run is not None
    assert run.seq_cursor == 8
    for move in (write(author=Author("me", "r", 1)), delete(Author("me", "r", 3))):
        with pytest.raises(StaleLease):
            play(state, move)
    with pytest.raises(NotFound):
        play(state, write(author=Author("me", "nobody", 1)))
    assert len(state.entries) == 2


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"namespace": ""}, "namespace"),
        ({"namespace": "a\0"}, "namespace"),
        ({"key": ""}, "key"),
        ({"key": "x" * 513}, "key"),
        ({"value_json": ""}, "value_json"),
        ({"value_json": "{"}, "value_json"),
        ({"author": Author("\0")}, "writer"),
        ({"author": Author("", "r\0", 1)}, "run_id"),
        ({"author": Author("", "\ud800", 1)}, "run_id"),
    ],
)
def test_bad_input_is_refused_with_its_field(fields: dict[str, Any], field: str) -> None:
    given = {"namespace": "ns", "key": "k", "value_json": "1", "author": Author()} | fields
    with pytest.raises(InvalidArgument) as refused:
        WriteValue(**given, if_version=-1, event_id="id", limits=LIMITS)
    assert refused.value.field == field


def test_a_value_has_the_size_of_a_payload_at_most() -> None:
    with pytest.raises(TooLarge):
        WriteValue(
            "ns", "k", '"xx"', -1,
            author=Author(), event_id="id", limits=replace(LIMITS, payload_bytes=3),
        )  # fmt: skip
