"""Whoever acts on a drainer and whenever: each event is passed once, in order, by one at a time."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tape.errors import NotHalted, StaleLease
from tape.model.drain import DispatchEvents, DispatchFailure, HaltDrainer, PassProgress, Pauses
from tape.model.drainer import DRAINERS, AcquireDrainer, Drainer, DrainerLease, RenewDrainer
from tape.model.drainer_operator import ResumeDrainer, SkipEvent
from tape.model.entry import Entry
from tape.model.lease import NewRun
from tape.model.move import EntryPlace, State
from tape.model.run import RUNS, RunName
from tape.settings import Limits

LIMITS = Limits()
PAUSES = Pauses(30, 600, 0.0)
TTL = 100
WHO = st.sampled_from(["a", "b", "c"])


def event(number: int) -> Entry:
    return Entry(
        number, "", 0, "event", "/tape/event/recorded/e/_/_", "{}", 1, "", "", "", 5, f"E{number}",
        "e", "", "", "", "", 5, "",
    )  # fmt: skip


def run_of(number: int) -> NewRun:
    return NewRun(RunName("app", "event", "s", f"event:e:E{number}"))


class Draining(RuleBasedStateMachine):
    """Each of three may hold the lease, or believe so. Events are entries 1, 2, 3 and so on."""

    def __init__(self) -> None:
        super().__init__()
        self.state = State(1_000, 1)
        self.holds: dict[str, tuple[DrainerLease, int]] = {}  # with where its holder believes to be
        self.owner = ""
        self.skipped: set[int] = set()

    @property
    def row(self) -> Drainer:
        return self.state.get(DRAINERS, "d") or Drainer("d")

    def play(self, move: Any) -> Any:
        decision = move.decide(self.state)
        self.state.apply(decision)
        return decision.reply(EntryPlace(1, self.state.now_ms))

    @rule(who=WHO)
    def acquire(self, who: str) -> None:
        free = not self.row.is_leased(self.state.now_ms)
        grant = self.play(AcquireDrainer("d", who, TTL, LIMITS))
        assert grant.is_granted == free
        if grant.is_granted:
            token = grant.drainer.fencing_token
            self.holds[who] = (DrainerLease("d", token, TTL), grant.drainer.last_global_seq)
            self.owner = who

    @rule(ms=st.integers(1, 2 * TTL))
    def wait(self, ms: int) -> None:
        self.state.now_ms += ms

    def as_holder(self, who: str, move: Any) -> bool:
        """Whether it was let: the one with the lease is, and nobody else."""
        if who != self.owner:
            before = self.row
            with pytest.raises(StaleLease):
                move.decide(self.state)
            assert self.row == before
            del self.holds[who]
            return False
        self.play(move)
        return True

    @precondition(lambda self: self.holds)
    @rule(who=WHO, letting_go=st.booleans())
    def dispatch(self, who: str, letting_go: bool) -> None:
        if who not in self.holds:
            return
        hold, at = self.holds[who]
        passed = PassProgress(at + 1, f"E{at + 1}", 1, 1)
        move = DispatchEvents(
            hold, passed, [run_of(at + 1)], ids=["X", "Y"], limits=LIMITS, letting_go=letting_go
        )
        if self.as_holder(who, move):
            self.holds[who] = (hold, at + 1)
            if letting_go:
                self.owner = ""

    @precondition(lambda self: self.holds)
    @rule(who=WHO)
    def fail(self, who: str) -> None:
        if who not in self.holds:
            return
        hold, at = self.holds[who]
        failure = DispatchFailure(event(at + 1), "s", "", "no")
        before = self.row.attempts.next_for(f"E{at + 1}", "s")
        halting = HaltDrainer(
            hold, PassProgress(at, ""), failure, ["A", "B", "C"], LIMITS, pauses=PAUSES
        )
        if self.as_holder(who, halting):
            self.owner = ""
            assert self.row.halted_on_global_seq == at + 1
            assert self.row.attempts.failed == {"s": before}

    @precondition(lambda self: self.holds)
    @rule(who=WHO, letting_go=st.booleans())
    def renew(self, who: str, letting_go: bool) -> None:
        if who not in self.holds:
            return
        hold, _ = self.holds[who]
        if self.as_holder(who, RenewDrainer(hold, letting_go=letting_go)) and letting_go:
            self.owner = ""

    @rule()
    def skip(self) -> None:
        halted = self.row
        move = SkipEvent("d", halted.halted_on_event_id or "E1", "S", LIMITS, reason="r", by="")
        if not halted.halted_on_event_id:
            if halted.fencing_token:
                with pytest.raises(NotHalted):
                    move.decide(self.state)
            return
        self.play(move)
        self.skipped.add(halted.halted_on_global_seq)
        self.owner = ""

    @rule()
    def resume(self) -> None:
        if self.row.halted_on_event_id:
            attempts = self.row.attempts
            self.play(ResumeDrainer("d", "", "S", LIMITS))
            assert (self.row.halted_on_event_id, self.row.attempts) == ("", attempts)

    @invariant()
    def each_event_is_passed_once(self) -> None:
        row = self.row
        assert row.events_processed_total + row.skipped_total == row.last_global_seq
        begun = {
            number
            for number in range(1, row.last_global_seq + 1)
            if self.state.get(RUNS, run_of(number).name.run_id) is not None
        }
        passed = set(range(1, row.last_global_seq + 1))
        assert passed - self.skipped <= begun

    @invariant()
    def what_it_is_halted_at_comes_next(self) -> None:
        row = self.row
        if row.halted_on_event_id:
            assert row.halted_on_global_seq == row.last_global_seq + 1
        if row.attempts_json:
            assert row.attempts.global_seq == row.last_global_seq + 1


TestDraining = Draining.TestCase
TestDraining.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
