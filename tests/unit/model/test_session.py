"""Sessions: events and state in one move, whatever else the batch does to them."""

import itertools
from dataclasses import replace
from typing import Any

import orjson
import pytest

from tape.errors import InvalidArgument, NotFound, StaleLease, TooLarge
from tape.model.entry import Trace
from tape.model.move import EntryPlace, State
from tape.model.run import RUNS
from tape.model.session import (
    SESSION_EVENTS,
    SESSIONS,
    Appended,
    AppendEvent,
    CreateSession,
    DeleteSession,
    Session,
    SessionEvent,
    SessionKey,
    StoredEvent,
)
from tape.settings import Limits
from tape.stores.rows import changed_rows
from tests.conformance.playing import a_run

LIMITS = Limits()
KEY = SessionKey("app", "user", "s")
IDS = map(str, itertools.count())


def world(*rows: Session, runs: Any = ()) -> State:
    state = State(50, 10)
    state.put_loaded(SESSIONS, rows)
    state.put_loaded(RUNS, runs)
    return state


def create(state_json: str = "{}") -> CreateSession:
    return CreateSession(KEY, state_json, next(IDS), LIMITS)


def delete() -> DeleteSession:
    return DeleteSession(KEY, next(IDS), LIMITS)


def append(
    event_id: str = "e1", delta: str = "", limits: Limits = LIMITS, **more: Any
) -> AppendEvent:
    event = SessionEvent(event_id, "inv", "author", "br", '{"a": 1}', "[2]", 7)
    return AppendEvent(KEY, event, delta, event_id=next(IDS), limits=limits, **more)


def play(state: State, move: Any) -> Any:
    decision = move.decide(state)
    first = state.apply(decision)
    return decision.reply(EntryPlace(10 + first, 50))


def state_of(state: State) -> Any:
    session = state.get(SESSIONS, KEY)
    assert session is not None
    return orjson.loads(session.state_json)


def test_a_session_begins_with_its_state() -> None:
    state = world()
    made = play(state, create('{"a": 1}'))
    assert made == Session(*KEY, '{"a": 1}', 0, 50, 50)
    (draft,) = state.entries
    assert (draft.kind, draft.subject) == ("session", "/tape/session/created/app/user/s")
    assert orjson.loads(draft.payload_json) == {"state": {"a": 1}}


def test_one_that_exists_is_answered_as_it_is() -> None:
    existing = Session(*KEY, '{"a": 1}', 3, 1, 2)
    state = world(existing)
    assert play(state, create('{"b": 1}')) == existing
    assert (state.entries, state.saves) == ([], {})


def test_an_event_counts_and_its_delta_replaces_top_level_keys() -> None:
    state = world(Session(*KEY, '{"a": {"x": 1}, "b": 2}', 4, 1, 1))
    appended = play(state, append(delta='{"a": {"y": 1}, "c": null}'))
    assert appended == Appended(SessionEvent("e1", "inv", "author", "br", '{"a": 1}', "[2]", 7), 50)
    assert state_of(state) == {"a": {"y": 1}, "b": 2, "c": None}
    row = state.get(SESSION_EVENTS, (*KEY, "e1"))
    assert row is not None
    assert row.position == 5
    (draft,) = state.entries
    assert (draft.kind, draft.subject) == ("event", "/tape/event/appended/app/user/s")
    assert orjson.loads(draft.payload_json) == {
        "event": {
            "id": "e1", "invocation_id": "inv", "author": "author", "branch": "br",
            "timestamp_ms": 7, "content": {"a": 1}, "actions": [2],
        },
        "state_delta": {"a": {"y": 1}, "c": None},
    }  # fmt: skip


def test_an_event_without_a_time_gets_the_stores() -> None:
    state = world(Session(*KEY, "{}", 0, 1, 1))
    move = AppendEvent(KEY, SessionEvent("e"), "", event_id="id", limits=LIMITS)
    assert play(state, move).event.timestamp_ms == 50


def test_no_delta_leaves_the_state_to_the_letter() -> None:
    text = '{ "a" : 1.50 }'
    state = world(Session(*KEY, text, 0, 1, 1))
    play(state, append(delta="{}"))
    session = state.get(SESSIONS, KEY)
    assert session is not None
    assert session.state_json == text


def test_a_repeat_changes_nothing_and_is_answered_with_the_first() -> None:
    state = world(Session(*KEY, "{}", 0, 1, 1))
    first = play(state, append(delta='{"n": 1}'))
    again = AppendEvent(KEY, SessionEvent("e1", "else"), '{"n": 2}', event_id="x", limits=LIMITS)
    assert play(state, again) == first
    assert state_of(state) == {"n": 1}
    assert len(state.entries) == 1


def test_a_repeat_of_a_stored_event() -> None:
    state = world(Session(*KEY, "{}", 1, 1, 9))
    stored = StoredEvent(*KEY, "e1", 1, "inv", "author", "br", "1", "2", 3)
    state.put_loaded(SESSION_EVENTS, [stored])
    assert play(state, append()) == Appended(
        SessionEvent("e1", "inv", "author", "br", "1", "2", 3), 9
    )
    assert state.entries == []


def test_an_event_needs_its_session() -> None:
    with pytest.raises(NotFound, match="app/user/s"):
        play(world(), append())


def test_deleting_what_is_not_there_is_false() -> None:
    state = world()
    assert play(state, delete()) is False
    assert (state.entries, state.deletions) == ([], {})


def test_deleted_made_again_and_appended_to_in_one_batch() -> None:
    state = world(Session(*KEY, '{"old": 1}', 1, 1, 1))
    state.put_loaded(SESSION_EVENTS, [StoredEvent(*KEY, "e1", 1, "", "", "", "1", "2", 3)])
    play(state, append("e2", '{"older": 1}'))
    assert play(state, delete()) is True
    with pytest.raises(NotFound):
        play(state, append("e9"))
    play(state, create('{"new": 1}'))
    play(state, append("e1", '{"newer": 1}'))
    assert state_of(state) == {"new": 1, "newer": 1}
    written = [(verb, table.name, rows) for verb, table, rows in changed_rows(state)]
    assert [(verb, table) for verb, table, _ in written] == [
        ("delete", "sessions"),
        ("save", "sessions"),
        ("save", "session_events"),
    ]
    assert written[0][2] == [tuple(KEY)]
    assert [(row[3], row[4]) for row in written[2][2]] == [("e1", 1)]
    verbs = [draft.subject.split("/")[3] for draft in state.entries]
    assert verbs == ["appended", "deleted", "created", "appended"]


def test_a_run_numbers_and_fences_its_events() -> None:
    trace = Trace("a" * 32, "b" * 16)
    state = world(Session(*KEY, "{}", 0, 1, 1), runs=[a_run("r", seq_cursor=4)])
    play(state, append(run=("r", 1), trace=trace))
    assert (state.entries[0].run_id, state.entries[0].seq) == ("r", 5)
    assert state.entries[0].trace_id == trace.trace_id
    with pytest.raises(StaleLease):
        play(state, append("e2", run=("r", 2)))
    with pytest.raises(NotFound):
        play(state, append("e2", run=("nobody", 2)))


def test_the_state_is_bounded_in_bytes() -> None:
    tight = replace(LIMITS, payload_bytes=40)
    state = world(Session(*KEY, '{"a": "' + "é" * 10 + '"}', 0, 1, 1))
    play(state, append("e1", '{"b": 1}', tight))
    with pytest.raises(TooLarge, match=r"the state would have \d+ bytes"):
        play(state, append("e2", '{"c": "éé"}', tight))


@pytest.mark.parametrize("text", ["1", "[]", "null", '"a"'])
def test_a_state_is_an_object(text: str) -> None:
    with pytest.raises(InvalidArgument, match="state_json: must be a JSON object"):
        create(text)
    with pytest.raises(InvalidArgument, match="state_delta_json: must be a JSON object"):
        append(delta=text)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"id": ""}, "event.id"),
        ({"id": "\0"}, "event.id"),
        ({"author": "a\0"}, "event.author"),
        ({"content_json": "{"}, "event.content_json"),
        ({"actions_json": "nope"}, "event.actions_json"),
        ({"timestamp_ms": 2**63}, "event.timestamp_ms"),
        ({"timestamp_ms": -1}, "event.timestamp_ms"),
    ],
)
def test_bad_events_are_refused_with_their_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        AppendEvent(KEY, SessionEvent("e")._replace(**fields), "", event_id="id", limits=LIMITS)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"run": ("r\0", 1)}, "run_id"),
        ({"run": ("\ud800", 1)}, "run_id"),
        ({"trace": Trace("x\0")}, "trace_id"),
        ({"trace": Trace("", "0")}, "span_id"),
    ],
)
def test_bad_runs_and_traces_are_refused_with_their_field(more: Any, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        append(**more)
    assert refused.value.field == field


@pytest.mark.parametrize("part", ["app_name", "user_id", "session_id"])
def test_every_part_of_a_key_is_a_name(part: str) -> None:
    for bad in ("", "a\0", "x" * 513):
        with pytest.raises(InvalidArgument) as refused:
            KEY._replace(**{part: bad}).checked(LIMITS)
        assert refused.value.field == part
