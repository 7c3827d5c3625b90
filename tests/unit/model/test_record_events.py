"""Recording events: all or nothing, numbered in their runs, keys answered with the first ids."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.errors import InvalidArgument, NotFound, StaleLease, TooLarge
from tape.model.event import NewEvent, Recorded, RecordEvents
from tape.model.move import KNOWN, EntryPlace, Need, State, UsedKey
from tape.model.run import RUNS
from tape.settings import Limits
from tests.conformance.playing import a_run

LIMITS = Limits()
FIRST = 100


def ids() -> Iterator[str]:
    return (f"id{n}" for n in itertools.count())


def move(*events: NewEvent, limits: Limits = LIMITS) -> RecordEvents:
    return RecordEvents(events, ids(), limits)


def world(*runs: Any, known: tuple[UsedKey, ...] = ()) -> State:
    state = State(5, FIRST)
    state.put_loaded(RUNS, runs)
    state.put_loaded(KNOWN, known)
    return state


def play(state: State, one: RecordEvents) -> list[Recorded]:
    decision = one.decide(state)
    first = state.apply(decision)
    return decision.reply(EntryPlace(FIRST + first, 5))


def test_events_become_entries_in_order() -> None:
    state = world()
    recorded = play(state, move(NewEvent("a", "1"), NewEvent("b", "2")))
    assert recorded == [Recorded("id0", 100, 0, False), Recorded("id1", 101, 0, False)]
    assert [(d.event_type, d.payload_json, d.kind) for d in state.entries] == [
        ("a", "1", "event"),
        ("b", "2", "event"),
    ]


def test_only_keys_and_runs_are_needed() -> None:
    assert list(move(NewEvent("a"), NewEvent("b")).needs()) == []
    keyed = NewEvent("a", idempotency_key="k", run_id="r", fencing_token=1)
    assert list(move(NewEvent("a"), keyed, keyed).needs()) == [
        Need(KNOWN, "k"),
        Need(KNOWN, "k"),
        Need(RUNS, "r"),
    ]


def test_a_key_twice_in_one_request_is_one_entry() -> None:
    keyed = NewEvent("a", idempotency_key="k")
    state = world()
    first, other, again, third = play(state, move(keyed, NewEvent("b"), keyed, keyed))
    assert first == Recorded("id0", 100, 0, False)
    assert other.global_seq == 101
    assert again == third == Recorded("id0", 100, 0, True)
    assert len(state.entries) == 2


def test_a_key_in_two_moves_of_a_batch_is_one_entry() -> None:
    state = world()
    play(state, move(NewEvent("z")))
    (first,) = play(state, move(NewEvent("a", idempotency_key="k")))
    (again,) = play(state, move(NewEvent("b", idempotency_key="k")))
    assert again == first._replace(duplicate=True)
    assert [d.event_type for d in state.entries] == ["z", "a"]


def test_a_key_used_before_answers_with_the_first_ids_whatever_the_payload() -> None:
    state = world(known=(UsedKey("k", "old", 7, 3),))
    (again,) = play(state, move(NewEvent("other", "{}", idempotency_key="k")))
    assert again == Recorded("old", 7, 3, True)
    assert state.entries == []


def test_entries_are_numbered_in_their_runs() -> None:
    state = world(a_run("r1"), a_run("r2", seq_cursor=8, fencing_token=4))
    one = NewEvent("a", run_id="r1", fencing_token=1)
    two = NewEvent("a", run_id="r2", fencing_token=4)
    recorded = play(state, move(one, two, NewEvent("x"), one))
    assert [r.seq for r in recorded] == [1, 9, 0, 2]
    assert [r.seq for r in play(state, move(one))] == [3]
    assert {k: r.seq_cursor for k, r in state.saves[RUNS].items()} == {"r1": 3, "r2": 9}  # type: ignore[attr-defined]


def test_a_duplicate_takes_no_number_and_saves_no_run() -> None:
    state = world(a_run("r"), known=(UsedKey("k", "old", 7, 1),))
    event = NewEvent("a", run_id="r", fencing_token=1, idempotency_key="k")
    assert play(state, move(event)) == [Recorded("old", 7, 1, True)]
    assert state.saves == {}


@pytest.mark.parametrize("token", [0, 1, 3, -1])
def test_a_stale_token_refuses_the_whole_request(token: int) -> None:
    state = world(a_run("r", fencing_token=2))
    with pytest.raises(StaleLease, match="abandon the work"):
        play(state, move(NewEvent("a"), NewEvent("b", run_id="r", fencing_token=token)))
    assert state.entries == []


def test_an_unknown_run_refuses_the_whole_request() -> None:
    with pytest.raises(NotFound, match="'r'"):
        play(world(), move(NewEvent("a"), NewEvent("b", run_id="r", fencing_token=1)))


def test_one_request_carries_one_token_for_a_run() -> None:
    one = NewEvent("a", run_id="r", fencing_token=1)
    with pytest.raises(InvalidArgument, match=r"events\[1\]\.fencing_token"):
        move(one, one._replace(fencing_token=2))


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (NewEvent(""), "event_type: must not be empty"),
        (NewEvent("a\0"), "event_type at position 1: NUL"),
        (NewEvent("a", "{"), "payload_json at position 1"),
        (NewEvent("a", entity_id="x" * 513), "entity_id: 513 bytes"),
        (NewEvent("a", entity_type="é" * 257), "entity_type: 514 bytes"),
        (NewEvent("a", idempotency_key="\0"), "idempotency_key at position 0"),
        (NewEvent("a", caused_by="\ud800"), "caused_by at position 0: a lone surrogate"),
        (NewEvent("a", source="x\0"), "source at position 1"),
        (NewEvent("a", run_id="r\0"), "run_id at position 1"),
        (NewEvent("a", run_id="\ud800"), "run_id at position 0"),
        (NewEvent("a", run_id="r" * 513), "run_id: 513 bytes"),
        (NewEvent("a", schema_version=0), "schema_version: 0"),
        (NewEvent("a", schema_version=32768), "schema_version: 32768"),
        (NewEvent("a", occurred_at_ms=-1), "occurred_at_ms"),
        (NewEvent("a", occurred_at_ms=2**63), "occurred_at_ms"),
        (NewEvent("a", trace_id="AB" * 16), "trace_id: must be 32"),
        (NewEvent("a", span_id="0" * 15), "span_id: must be 16"),
        (NewEvent("a", parent_span_id="g" * 16), "parent_span_id"),
        (NewEvent("é" * 200, entity_type="é" * 200), "subject: the subject has"),
    ],
)
def test_one_bad_event_refuses_all_and_is_named(event: NewEvent, message: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        move(NewEvent("fine"), NewEvent("fine"), event, NewEvent(""))
    assert str(refused.value).startswith(f"events[2].{message}")


def test_limits_of_a_request() -> None:
    few = replace(LIMITS, request_events=2, request_bytes=100)
    move(NewEvent("a"), NewEvent("a"), limits=few)
    with pytest.raises(TooLarge, match="3 events, the limit is 2"):
        move(*[NewEvent("a")] * 3, limits=few)
    fits = NewEvent("a", '"' + "x" * 48 + '"')
    move(fits, fits, limits=few)
    with pytest.raises(TooLarge, match=r"limit is 100|the limit is 100"):
        move(fits, fits._replace(payload_json='"' + "x" * 49 + '"'), limits=few)


def test_the_size_of_a_request_is_counted_in_bytes() -> None:
    few = replace(LIMITS, request_bytes=100)
    fits = NewEvent("a", '"' + "é" * 24 + '"')
    move(fits, fits, limits=few)
    with pytest.raises(TooLarge, match=r"limit is 100|the limit is 100"):
        move(fits, fits._replace(payload_json='"' + "é" * 25 + '"'), limits=few)


KEYS = st.sampled_from(["", "k1", "k2", "k3"])


@given(st.lists(st.lists(st.tuples(KEYS, st.booleans()), max_size=5), max_size=5))
def test_replies_always_name_the_entries_that_are_there(
    batch: list[list[tuple[str, bool]]],
) -> None:
    state = world(a_run("r"), known=(UsedKey("k3", "old", 7, 0),))
    fresh = ids()
    replies: list[tuple[str, Recorded]] = []
    for request in batch:
        events = [
            NewEvent("a", idempotency_key=key, run_id="r" * in_run, fencing_token=int(in_run))
            for key, in_run in request
        ]
        decision = RecordEvents(events, fresh, LIMITS).decide(state)
        place = EntryPlace(FIRST + state.apply(decision), 5)
        replies += zip([key for key, _ in request], decision.reply(place), strict=True)
    by_number = dict(enumerate(state.entries, FIRST))
    new = [r for _, r in replies if not r.duplicate]
    assert sorted(r.global_seq for r in new) == sorted(by_number)
    for key, recorded in replies:
        if key == "k3":
            assert recorded == Recorded("old", 7, 0, True)
            continue
        draft = by_number[recorded.global_seq]
        assert (draft.event_id, draft.seq or 0) == (recorded.event_id, recorded.seq)
        assert (draft.idempotency_key or "") == key
    in_run = [draft.seq for draft in state.entries if draft.run_id]
    assert in_run == list(range(1, len(in_run) + 1))


def test_types_of_tapes_own_are_refused() -> None:
    for event_type in ("workflow.dispatch_failed", "workflow.", "workflow.mine"):
        with pytest.raises(InvalidArgument, match="are reserved for Tape") as caught:
            move(NewEvent("a"), NewEvent(event_type))
        assert caught.value.field == "event_type"
    move(NewEvent("workflow"), NewEvent("Workflow.x"), NewEvent("my.workflow.x"))


def test_a_version_in_the_payload_is_the_events() -> None:
    for payload, version in (
        ('{"schema_version": 2}', 1),
        ('{"a": 1, "schema_version": 1.5}', 1),
        ('{"schema_version": 1}', 2),
    ):
        with pytest.raises(InvalidArgument, match="the payload says") as caught:
            move(NewEvent("a", payload, schema_version=version))
        assert caught.value.field == "schema_version"
    for payload, version in (
        ('{"schema_version": 2}', 2),
        ('{"schema_version": 2.0}', 2),
        ('{"schema_version": "of mine"}', 1),
        ('{"inner": {"schema_version": 7}}', 1),
        ('"schema_version"', 1),
    ):
        move(NewEvent("a", payload, schema_version=version))


def test_a_token_without_its_run_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="needs the run_id"):
        move(NewEvent("a", fencing_token=3))
