"""Deciding a batch: in order, on one state, each move for itself."""

from collections.abc import Sequence
from typing import Any

import pytest

from tape.errors import InvalidArgument, TapeError
from tape.journal.batch import Accepted, decide_all, needs_of, settle
from tape.model.entry import EntryDraft
from tape.model.event import NewEvent
from tape.model.move import KNOWN, Decision, EntryPlace, Need, State
from tests.conformance.playing import recording


class Scripted:
    """Appends a number of entries, or raises."""

    weight = 1

    def __init__(self, entries: int, error: Exception | None = None) -> None:
        self.entries = entries
        self.error = error

    def needs(self) -> Sequence[Need]:
        return [Need(KNOWN, str(self.entries))]

    def decide(self, state: State) -> Decision[Any]:
        if self.error is not None:
            raise self.error
        drafts = [EntryDraft("id", "event", "/tape/a/b", "null")] * self.entries
        return Decision(lambda place: place, drafts)


def test_needs_are_those_of_all_moves() -> None:
    assert [need.key for need in needs_of([Scripted(1), Scripted(2)])] == ["1", "2"]


def test_each_move_learns_its_own_place() -> None:
    state = State(5, 100)
    verdicts = decide_all([Scripted(2), Scripted(0), Scripted(3), Scripted(1)], state)
    places = [settle(verdict, EntryPlace(100, 7)) for verdict in verdicts]
    assert places == [
        EntryPlace(100, 7),
        EntryPlace(102, 7),
        EntryPlace(102, 7),
        EntryPlace(105, 7),
    ]
    assert len(state.entries) == 6


@pytest.mark.parametrize("error", [InvalidArgument("no"), ZeroDivisionError("bug")])
def test_a_refusal_and_a_bug_cost_nobody_else_anything(error: Exception) -> None:
    state = State(5, 100)
    good, bad, after = decide_all([Scripted(1), Scripted(1, error), Scripted(1)], state)
    assert isinstance(good, Accepted)
    assert bad is error
    assert settle(after, EntryPlace(100, 7)) == EntryPlace(101, 7)
    assert len(state.entries) == 2
    with pytest.raises(type(error)):
        settle(bad, EntryPlace(100, 7))


def test_a_refused_move_leaves_no_trace_for_later_ones() -> None:
    state = State(5, 100)
    keyed = NewEvent("a", idempotency_key="k")
    refused = recording(keyed, NewEvent("b", run_id="nobody", fencing_token=1))
    verdicts = decide_all([refused, recording(keyed)], state)
    assert isinstance(verdicts[0], TapeError)
    (recorded,) = settle(verdicts[1], EntryPlace(100, 7))
    assert (recorded.global_seq, recorded.duplicate) == (100, False)
