"""A run's journal in words: moves are played without a store, and what they wrote is told."""

from collections.abc import Sequence
from typing import Any

import pytest

from tape.model.budget import ChargeBudget, SetBudget
from tape.model.decision import RecordDecision
from tape.model.effect import BeginEffect, CompleteEffect, DispatchMode, EffectStatus, effect_key
from tape.model.effect_claim import (
    ClaimEffect,
    RecordDispatchAttempt,
    RecordExternalObservation,
    Resolution,
)
from tape.model.entry import Entry, EntryDraft
from tape.model.event import NewEvent, RecordEvents
from tape.model.gate import AwaitSignal, SendSignal
from tape.model.obligation import (
    ClaimObligation,
    ObligationKey,
    ObligationStatus,
    RecordObligationAttempt,
    RegisterCompensation,
    ResolveObligation,
)
from tape.model.run import RunStatus
from tape.model.run_end import CancelRun, EndRun
from tape.model.timer import CancelTimer, FireTimer, SetTimer
from tape.model.value import Author, DeleteValue, WriteValue
from tape.runs.looking.timeline import Timeline, TimelineLine, elapsed, timeline
from tape.settings import Limits
from tests.unit.model.run_world import CHILD, CHILD_NAME, RUN, TTL, World

KEY = effect_key(RUN, 0, "wire", 0)
LIMITS = Limits()


class ToldWorld(World):
    """A world that remembers when each entry was written, and tells those of a run."""

    def __init__(self) -> None:
        super().__init__()
        self._times: list[int] = []

    def _take(self, drafts: Sequence[EntryDraft]) -> None:
        super()._take(drafts)
        self._times += [self.now_ms] * len(drafts)

    def later(self, ms: int) -> None:
        self.now_ms += ms

    def told(self, run_id: str = RUN) -> list[TimelineLine]:
        return timeline(
            _entry(number, draft, ts_ms)
            for number, (draft, ts_ms) in enumerate(zip(self.entries, self._times, strict=True), 1)
            if draft.run_id == run_id
        )

    def last(self) -> TimelineLine:
        return self.told()[-1]

    def words(self) -> list[str]:
        return [line.text for line in self.told()]


def _entry(number: int, draft: EntryDraft, ts_ms: int) -> Entry:
    fields: dict[str, Any] = {
        name: "" if value is None else value for name, value in draft._asdict().items()
    }
    return Entry(**fields | {"global_seq": number, "ts_ms": ts_ms, "seq": draft.seq or 0})


@pytest.fixture
def world() -> ToldWorld:
    world = ToldWorld()
    world.begin(input_json='{"cents":100}', app_version="2")
    return world


def begin_effect(world: World, **fields: Any) -> None:
    request = '{"args":[100],"kwargs":{"to":"DE1"}}'
    world.drive(BeginEffect(0, "wire", 0, request, **fields))


def test_a_run_begun_with_a_lease(world: ToldWorld) -> None:
    assert world.told() == [
        TimelineLine(
            1, world.now_ms, 0, "run running",
            "begun: app version 2 in pool shared, lease granted to a (agent) with token 1",
            '{"cents":100}',
        )
    ]  # fmt: skip


def test_a_run_that_nobody_had_until_somebody_came() -> None:
    world = ToldWorld()
    world.begin("")
    world.later(2_500)
    world.resume("b")
    assert world.words() == [
        "begun: app in pool shared",
        "lease granted to b (recovery) with token 1, 2.5 s without a holder",
    ]
    assert world.last().since_ms == 2_500


def test_a_child_says_whose() -> None:
    world = ToldWorld()
    world.begin()
    world.begin("c", CHILD_NAME, parent=RUN, parent_token=1)
    (line,) = world.told(CHILD)
    assert f"child of {RUN}" in line.text


def test_a_takeover_tells_how_long_nobody_held_it(world: ToldWorld) -> None:
    world.later(4_000)
    world.drive(RecordDecision(0, "now", "null", "7"))
    world.later(TTL - 4_000 + 1_200)
    world.resume("b")
    assert world.last().text == (
        "taken over from a by b (recovery) with token 2: a last wrote 27.2 s before, "
        "and nobody held it for 1.2 s at most"
    )
    assert world.last().tone == "warning"


def test_a_lease_that_was_renewed_was_held_at_least_until_its_last_write(world: ToldWorld) -> None:
    world.later(TTL - 1)
    world.heartbeat(1)
    world.later(20_001)
    world.drive(RecordDecision(0, "now", "null", "7"))
    world.later(TTL)
    world.resume("b")
    assert "nobody held it for 30.0 s at most" in world.last().text


def test_what_others_write_is_no_sign_of_the_driver(world: ToldWorld) -> None:
    world.later(10_000)
    world.change(SendSignal("early"))
    world.later(TTL)
    world.resume("b")
    assert "a last wrote 40.0 s before" in world.last().text


def test_the_same_owner_again(world: ToldWorld) -> None:
    world.resume("a")
    assert world.last().text == "lease granted again to a (recovery) with token 2"


def test_letting_go(world: ToldWorld) -> None:
    world.wait("gate approve")
    assert world.last().text == "waits for gate approve, released by a"
    world.later(3_000)
    world.resume()
    assert world.last().text == "runnable again: resumed by an operator"
    world.resume("b")
    assert world.last().text == "lease granted to b (recovery) with token 2, 3.0 s without a holder"
    world.release(2)
    assert world.last().text == "released by b"
    world.resume("c")
    world.release(3, waiting_on="gate approve", seen_seq=1)
    assert world.last().text == ("no longer had to wait for gate approve; released by c")


def test_an_effect_from_its_beginning_to_its_outcome(world: ToldWorld) -> None:
    begin_effect(world, business_key="invoice-7")
    assert world.last()[4:7] == (
        "effect wire begun, business key invoice-7", '(100, to="DE1")', "",
    )  # fmt: skip
    world.later(12)
    compensation = RegisterCompensation(KEY, "reverse_wire")
    done = CompleteEffect(KEY, EffectStatus.CONFIRMED, '{"id":"w1"}', compensation=compensation)
    world.drive(done)
    *_, confirmed, owed = world.told()
    assert confirmed[4:7] == ("effect wire (2) confirmed after 12 ms", '{"id":"w1"}', "good")
    assert owed.text == "obligation: reverse_wire undoes effect 2"


def test_an_effect_that_failed(world: ToldWorld) -> None:
    begin_effect(world)
    error = '{"type":"GiveUp","message":"no such account"}'
    world.drive(CompleteEffect(KEY, EffectStatus.FAILED, error_json=error))
    assert world.last()[4:7] == (
        "effect wire (2) failed after 0 ms", "GiveUp: no such account", "bad",
    )  # fmt: skip


def claim(world: ToldWorld, claimer: str = "d") -> int:
    token: int = world.change(ClaimEffect(KEY, claimer, TTL)).claim_token
    return token


def test_claims_attempts_and_dispatches(world: ToldWorld) -> None:
    begin_effect(world, dispatch_mode=DispatchMode.OUTBOX)
    assert world.last().text == "effect wire begun for the outbox"
    token = claim(world)
    assert world.last().text == "effect wire (2) claimed by d, dispatch 1"
    world.change(RecordDispatchAttempt(KEY, token, "connection refused", world.now_ms + 50))
    assert world.last()[4:7] == (
        "effect wire (2) was not done, it is tried again", "connection refused", "warning",
    )  # fmt: skip
    world.later(50)
    token = claim(world, "e")
    world.later(1_000)
    world.change(
        RecordExternalObservation(
            KEY, token, Resolution.CONFIRMED, "ref-9", '"ok"', parent_run_id=""
        )
    )
    assert world.last()[4:7] == (
        "effect wire (2) confirmed after 1.1 s, dispatched 2 times, reference ref-9",
        '"ok"',
        "good",
    )


def test_an_effect_in_doubt(world: ToldWorld) -> None:
    begin_effect(world)
    error = '{"type":"AckLost","message":"gone"}'
    world.drive(CompleteEffect(KEY, EffectStatus.UNKNOWN, error_json=error))
    assert world.last()[4:7] == (
        "effect wire (2) unknown after 0 ms: it may have happened", "AckLost: gone", "warning",
    )  # fmt: skip
    token = claim(world, "reconciler-1")
    assert world.last().text == ("effect wire (2) claimed by reconciler-1, to find out its outcome")
    world.later(40_000)
    world.change(RecordExternalObservation(KEY, token, Resolution.ABSENT, parent_run_id=""))
    assert world.last().text == "effect wire (2) did not happen and will be executed after 40.0 s"


def test_an_effect_of_the_outbox_in_doubt(world: ToldWorld) -> None:
    begin_effect(world, dispatch_mode=DispatchMode.OUTBOX)
    world.change(RecordDispatchAttempt(KEY, claim(world), "cut off"))
    assert world.last().text == "effect wire (2) unknown after 0 ms: it may have happened"
    token = claim(world, "reconciler-1")
    assert world.last().text.endswith("claimed by reconciler-1, to find out its outcome")
    world.change(RecordDispatchAttempt(KEY, token, "no answer", world.now_ms + 50))
    assert world.last()[4:6] == (
        "effect wire (2) is still unknown, it is tried again", "no answer",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("resolution", "says", "tone"),
    [
        (Resolution.CONFIRMED, "effect wire (2) is found to be confirmed after 5.0 s", "good"),
        (Resolution.FAILED, "effect wire (2) is found to be failed after 5.0 s", "bad"),
    ],
)
def test_an_effect_that_is_reconciled(
    world: ToldWorld, resolution: Resolution, says: str, tone: str
) -> None:
    begin_effect(world)
    world.drive(CompleteEffect(KEY, EffectStatus.UNKNOWN))
    token = claim(world)
    world.later(5_000)
    world.change(RecordExternalObservation(KEY, token, resolution, parent_run_id=""))
    assert (world.last().text, world.last().tone) == (says, tone)


def test_an_effect_that_is_stuck_sticks_its_run(world: ToldWorld) -> None:
    begin_effect(world)
    world.drive(CompleteEffect(KEY, EffectStatus.UNKNOWN))
    token = claim(world)
    error = '{"type":"RuntimeError","message":"the bank is gone"}'
    world.change(
        RecordExternalObservation(KEY, token, Resolution.STUCK, error_json=error, parent_run_id="")
    )
    *_, effect, run = world.told()
    assert effect[4:7] == (
        "effect wire (2) is stuck: its outcome could not be determined",
        "RuntimeError: the bank is gone",
        "bad",
    )
    assert run[4:7] == ("stuck after 0 ms", "RuntimeError: the bank is gone", "bad")


def test_unwinding(world: ToldWorld) -> None:
    begin_effect(world)
    undo = RegisterCompensation(KEY, "reverse_wire", max_attempts=2)
    world.drive(CompleteEffect(KEY, EffectStatus.CONFIRMED, compensation=undo))
    error = '{"type":"ValueError","message":"no"}'
    world.drive(EndRun(RunStatus.FAILED, error, ""))
    assert world.last()[4:7] == (
        "will end as failed: its effects are undone first", "ValueError: no", "warning",
    )  # fmt: skip
    key = ObligationKey(KEY, "reverse_wire")
    token = world.change(ClaimObligation(key, "comp-1", TTL)).claim_token
    assert world.last().text == "compensation reverse_wire (4) begun by comp-1, attempt 1"
    world.later(30)
    due = world.now_ms + 100
    world.change(RecordObligationAttempt(key, token, "bank closed", due, parent_run_id=""))
    assert world.last()[4:7] == (
        "compensation reverse_wire (4) failed after 30 ms, attempt 1: it is tried again",
        "bank closed",
        "warning",
    )
    world.later(100)
    token = world.change(ClaimObligation(key, "comp-2", TTL)).claim_token
    world.later(7)
    resolved = ResolveObligation(
        key, token, ObligationStatus.COMPENSATED, '{"reversed":1}', parent_run_id=""
    )
    world.change(resolved)
    *_, done, failed = world.told()
    assert done[4:7] == ("compensation reverse_wire (4) done after 7 ms", '{"reversed":1}', "good")
    assert failed[4:7] == ("failed after 137 ms", "ValueError: no", "bad")


def test_an_obligation_that_is_stuck(world: ToldWorld) -> None:
    begin_effect(world)
    undo = RegisterCompensation(KEY, "reverse_wire", max_attempts=1)
    world.drive(CompleteEffect(KEY, EffectStatus.CONFIRMED, compensation=undo))
    world.drive(EndRun(RunStatus.FAILED, "null", ""))
    key = ObligationKey(KEY, "reverse_wire")
    token = world.change(ClaimObligation(key, "comp-1", TTL)).claim_token
    world.change(RecordObligationAttempt(key, token, "bank closed", parent_run_id=""))
    *_, stuck, run = world.told()
    assert stuck[4:7] == (
        "compensation reverse_wire (4) is stuck, attempt 1", "bank closed", "bad",
    )  # fmt: skip
    assert run.text == "stuck after 0 ms"
    world.resume()
    assert world.last().text == "compensating again: resumed by an operator"


def test_a_gate(world: ToldWorld) -> None:
    world.drive(AwaitSignal("approve", '{"cents":5}'))
    assert world.last()[4:7] == ("reaches gate approve", '{"cents":5}', "")
    world.wait("gate approve")
    world.later(7_200_000)
    world.change(SendSignal("approve", '{"by":"ada"}'))
    *_, opened, runnable = world.told()
    assert opened[4:7] == ("gate approve opened after 2h 0m", '{"by":"ada"}', "")
    assert runnable.text == "runnable again: gate approve"


def test_a_word_that_came_early(world: ToldWorld) -> None:
    world.change(SendSignal("approve", "true"))
    assert world.last().text == "gate approve opened before it was asked for"
    world.later(9_000)
    world.drive(AwaitSignal("approve"))
    assert world.last().text == "reaches gate approve, open for 9.0 s"


def test_a_gate_that_nobody_came_to(world: ToldWorld) -> None:
    set_timer = SetTimer("gate:g", kind="gate_timeout", payload_json='{"gate":"g"}', after_ms=500)
    world.drive(set_timer)
    assert world.last().text == "timer gate:g (gate_timeout) set, due in 500 ms"
    world.drive(AwaitSignal("g"))
    world.later(501)
    world.change(FireTimer(world.timer("gate:g")))
    *_, fired, timed_out = world.told()
    assert fired.text == "timer gate:g (gate_timeout) fired, 1 ms after it was due"
    assert timed_out[4:7] == ("gate g timed out after 501 ms", "", "warning")


def test_a_child_that_ended() -> None:
    world = ToldWorld()
    world.begin()
    world.begin("c", CHILD_NAME, parent=RUN, parent_token=1)
    world.drive(AwaitSignal(f"run:{CHILD}"))
    assert world.last().text == f"waits for the end of run {CHILD}"
    world.later(20)
    world.drive(EndRun(RunStatus.TERMINAL, "7", RUN), run_id=CHILD)
    assert world.last()[4:6] == (
        f"run {CHILD} ended after 20 ms", '{"status":"terminal","outcome":7}',
    )  # fmt: skip


def test_timers(world: ToldWorld) -> None:
    world.drive(SetTimer("sleep:1", after_ms=61_000), SetTimer("other", after_ms=10))
    assert world.words()[-2] == "timer sleep:1 set, due in 1m 1s"
    world.drive(CancelTimer("other"))
    assert world.last().text == "timer other cancelled"


@pytest.mark.parametrize(
    ("model", "response", "says", "carries"),
    [
        ("gpt-9", '{"do":"it"}', "decision 0: decides with gpt-9", '{"do":"it"}'),
        ("now", "17", "decision 0: decides with now", "17"),
        ("start/settle", '"r9"', "decision 0: starts a run of settle", '"r9"'),
        ("patched/fees", "true", "decision 0: takes the patched branch at fees", "true"),
        ("failed/gpt-9", "1", "decision 0: failed to decide with gpt-9", "1"),
        ("value/ns/k", "null", "decision 0: reads value ns/k", ""),
        ("openai/gpt-9", "1", "decision 0: decides with openai/gpt-9", "1"),
    ],
)
def test_decisions(world: ToldWorld, model: str, response: str, says: str, carries: str) -> None:
    world.drive(RecordDecision(0, model, "null", response))
    assert world.last()[4:6] == (says, carries)


def test_a_decision_tells_its_reason_and_policy(world: ToldWorld) -> None:
    world.drive(RecordDecision(0, "m", "null", "1", "it is cheap", "p3"))
    assert world.last().text == "decision 0: decides with m, policy p3, because it is cheap"


def test_values_and_events(world: ToldWorld) -> None:
    author = Author("run", RUN, 1)
    world.play(WriteValue("ns", "k", '{"a":1}', -1, author=author, event_id="e1", limits=LIMITS))
    assert world.last()[4:6] == ("value ns/k set, version 1", '{"a":1}')
    world.play(DeleteValue("ns", "k", author, "e2", LIMITS))
    assert world.last()[4:6] == ("value ns/k deleted, version 2", "")
    event = NewEvent("paid", "7", "order", "o/1", run_id=RUN, fencing_token=1)
    world.play(RecordEvents([event], ["e3"], LIMITS))
    assert world.last()[4:6] == ("event paid recorded of order/o/1", "7")


def test_budgets(world: ToldWorld) -> None:
    world.drive(SetBudget(5.0, 1_000), ChargeBudget(0.25, 40, "c1"))
    assert world.words()[-2:] == [
        "budget of 5 USD and 1000 tokens set",
        "charged 0.25 USD and 40 tokens: 0.25 USD and 40 tokens of 5 USD and 1000 tokens are spent",
    ]
    world.drive(SetBudget())
    assert world.last().text == "budget lifted"


def test_the_end(world: ToldWorld) -> None:
    world.change(CancelRun("too late", ""))
    assert world.last()[4:7] == ("cancellation requested: too late", "", "warning")
    world.later(90_000)
    world.drive(EndRun(RunStatus.TERMINAL, '{"ok":true}', ""))
    assert world.last()[4:7] == ("done after 1m 30s", '{"ok":true}', "good")


def test_an_entry_of_a_kind_that_is_not_known() -> None:
    entry = _entry(1, EntryDraft("e", "wallet", "/tape/wallet/opened/x", '{"a":1}', RUN, 1), 5)
    assert Timeline().add(entry) == TimelineLine(
        1, 5, 0, "wallet opened", "wallet opened", '{"a":1}'
    )


@pytest.mark.parametrize(
    ("ms", "says"),
    [(-1, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (59_900, "59.9 s"), (60_000, "1m 0s"),
     (3_600_000, "1h 0m"), (200_000_000, "2d 7h")],
)  # fmt: skip
def test_lengths_of_time(ms: int, says: str) -> None:
    assert elapsed(ms) == says
