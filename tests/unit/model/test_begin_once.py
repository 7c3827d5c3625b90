"""A run for each key of an app in a window of time."""

from itertools import count
from typing import Any

import orjson
import pytest

from tape.errors import InvalidArgument
from tape.model.begin_once import MOST_WINDOW_MS, BeginRunOnce, OnceAnswer, scope_of
from tape.model.entry import Trace
from tape.model.lease import NewRun
from tape.model.message import LONGEST_KEY
from tape.model.move import EntryPlace, State
from tape.model.run import RUNS, RunName
from tape.model.subscription import SEEN_KEYS
from tape.model.trace_context import TraceTexts
from tape.settings import Limits

LIMITS = Limits()
NUMBERS = count()
PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def run_named(invocation: str, app: str = "app", **fields: Any) -> NewRun:
    return NewRun(RunName(app, "", "", invocation))._replace(**fields)


def once(new: NewRun, key: str = "k", window_ms: int = 100) -> BeginRunOnce:
    return BeginRunOnce(new, key, window_ms, (f"e{next(NUMBERS)}", f"e{next(NUMBERS)}"), LIMITS)


class World:
    def __init__(self) -> None:
        self.state = State(1_000, 1)

    def play(self, new: NewRun, key: str = "k", window_ms: int = 100) -> OnceAnswer:
        move = once(new, key, window_ms)
        named = {(need.table, need.key) for need in move.needs()}
        scope = scope_of(new.name.app_name)
        assert {table for table, _key in named} == {RUNS, SEEN_KEYS}
        decision = move.decide(self.state)
        self.state.apply(decision)
        answer = decision.reply(EntryPlace(1, self.state.now_ms))
        assert self.state.get(SEEN_KEYS, (scope, "", key)) is not None
        return answer

    @property
    def words(self) -> list[str]:
        return [draft.subject.split("/")[3] for draft in self.state.entries]


def test_a_key_begins_one_run_in_its_window() -> None:
    world = World()
    first = world.play(run_named("1"))
    assert first.run is not None
    assert (first.run.invocation_id, first.resumed) == ("1", False)
    again = world.play(run_named("2", trace=Trace("a" * 32)))
    assert again == OnceAnswer(first.run_id, None, True)
    assert world.words == ["runnable", "run_deduplicated"]
    entry = world.state.entries[-1]
    assert entry.subject == "/tape/subscription/run_deduplicated/execute%2Fapp"
    assert (entry.run_id, entry.trace_id) == (None, "a" * 32)
    assert orjson.loads(entry.payload_json) == {
        "app_name": "app",
        "invocation_id": "2",
        "key": "k",
        "run_id": first.run_id,
    }
    assert world.play(run_named("3", app="other")).run is not None
    assert world.play(run_named("4"), key="another").run is not None


def test_after_the_window_a_key_begins_a_run_again() -> None:
    world = World()
    first = world.play(run_named("1"), window_ms=100)
    world.state.now_ms += 99
    assert world.play(run_named("2")).run_id == first.run_id
    world.state.now_ms += 1
    second = world.play(run_named("3"))
    assert second.run is not None
    assert second.run_id != first.run_id
    assert world.play(run_named("4")).run_id == second.run_id


def test_the_shorter_window_counts() -> None:
    world = World()
    world.play(run_named("1"), window_ms=100)
    world.state.now_ms += 10
    assert world.play(run_named("2"), window_ms=10).run is not None
    world.state.now_ms += 50
    assert world.play(run_named("3"), window_ms=100).run is not None


def test_a_run_of_that_name_is_found_whatever_its_key() -> None:
    world = World()
    first = world.play(run_named("1"))
    for key in ("k", "another"):
        move = once(run_named("1"), key)
        decision = move.decide(world.state)
        answer = decision.reply(EntryPlace(1, 1_000))
        assert (answer.run_id, answer.run is not None, answer.resumed) == (first.run_id, True, True)
        assert (*decision.entries, *decision.changes) == ()
    world.state.now_ms += 100
    second = world.play(run_named("2"))
    found = once(run_named("1")).decide(world.state).reply(EntryPlace(1, 1_000))
    assert found.run_id == first.run_id != second.run_id


def test_a_long_key_is_its_digest() -> None:
    world = World()
    text = "ä" * (LONGEST_KEY // 2 + 1)
    first = once(run_named("1"), text).decide(world.state)
    world.state.apply(first)
    assert once(run_named("2"), text).decide(world.state).reply(EntryPlace(1, 1)).run is None
    (row,) = (change.row for change in first.changes if change.table is SEEN_KEYS)
    assert row is not None
    assert str(row[2]).startswith("sha256=")


@pytest.mark.parametrize(
    ("new", "key", "window_ms", "field"),
    [
        (run_named("1"), "", 100, "key"),
        (run_named("1"), "a\0", 100, "key"),
        (run_named("1"), "k", 0, "window_ms"),
        (run_named("1"), "k", MOST_WINDOW_MS + 1, "window_ms"),
        (run_named("1", app=""), "k", 100, "app_name"),
        (run_named("1", parent_run_id="p"), "k", 100, "parent_run_id"),
        (run_named("1", context=TraceTexts("no")), "k", 100, "trace.traceparent"),
    ],
)
def test_what_is_refused(new: NewRun, key: str, window_ms: int, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        once(new, key, window_ms)
    assert refused.value.field == field


def test_the_context_of_a_trace_is_in_the_first_entry() -> None:
    world = World()
    context = TraceTexts(PARENT, " v=1 ,w=2", "tenant=acme;p=1")
    world.play(run_named("1", context=context))
    (entry,) = world.state.entries
    assert (entry.trace_id, entry.span_id, entry.parent_span_id) == ("a" * 32, "", "b" * 16)
    assert orjson.loads(entry.payload_json)["trace"] == {
        "traceparent": PARENT,
        "tracestate": "v=1,w=2",
        "baggage": "tenant=acme",
    }
    own = Trace("c" * 32, "d" * 16, "")
    world.play(run_named("2", context=context, trace=own), key="other")
    assert world.state.entries[-1].trace_id == own.trace_id
    world.play(run_named("3"), key="third")
    assert "trace" not in orjson.loads(world.state.entries[-1].payload_json)
