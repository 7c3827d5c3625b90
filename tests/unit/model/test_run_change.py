"""Several writes for one run in one move: who may, in what order, all of them or none."""

from typing import Any

import pytest

from tape.errors import InvalidArgument, NotFound, RunEnded, StaleLease
from tape.model.budget import SetBudget
from tape.model.decision import DECISIONS, DecisionPlace, RecordDecision
from tape.model.effect import BeginEffect, CompleteEffect, EffectStatus
from tape.model.entry import Trace
from tape.model.gate import GATES, AwaitSignal, SendSignal
from tape.model.lease import Begun, NewRun, Taker
from tape.model.move import Need
from tape.model.obligation import RegisterCompensation
from tape.model.run import RUNS, SHOWN_WORDS, Run, RunStatus
from tape.model.run_change import IDS_PER_WRITE, BeginAndExtend, ChangeRun, ExtendRun
from tape.model.run_end import CancelRun, EndRun
from tape.model.run_write import Extended
from tests.unit.model.run_world import (
    CHILD,
    CHILD_GATE,
    LIMITS,
    NAME,
    NOW,
    RUN,
    TTL,
    World,
    driven,
    names,
    refused,
    unchanged,
    with_child,
)

FIRST, SECOND = RecordDecision(0, "m"), RecordDecision(1, "m")
DONE = EndRun(RunStatus.TERMINAL, '"done"', "")


class TestTheDriversWrites:
    def test_each_is_answered_and_numbered_in_order(self) -> None:
        world = driven()
        extended = world.extend(1, FIRST, AwaitSignal("g"), SECOND)
        assert extended.first_seq == 2
        assert extended.replies[0] == DecisionPlace(RUN, 0, 2, NOW)
        assert extended.replies[1] == world.gate("g")
        assert extended.replies[2].seq == 4
        assert extended.run == world.run()
        assert extended.run.seq_cursor == 4
        assert world.verbs()[1:] == ["decision recorded", "gate waiting", "decision recorded"]

    def test_the_first_seq_shows_what_came_in_between(self) -> None:
        world = driven()
        seen = world.extend(1, FIRST).run.seq_cursor
        world.change(SendSignal("g"))
        assert world.extend(1, SECOND).first_seq == seen + 2

    def test_a_later_write_sees_an_earlier_one(self) -> None:
        world = driven()
        began = BeginEffect(0, "pay", 0)
        key = began.key(RUN)
        extended = world.extend(
            1, began, began, CompleteEffect(key, EffectStatus.CONFIRMED), FIRST, FIRST
        )
        assert extended.replies[0] == extended.replies[1]
        assert extended.replies[2].status == EffectStatus.CONFIRMED
        assert extended.replies[3] == extended.replies[4]
        assert world.verbs()[1:] == ["effect pending", "effect confirmed", "decision recorded"]

    def test_one_refusal_refuses_all(self) -> None:
        world = driven()
        with refused(world, NotFound):
            world.extend(1, FIRST, CompleteEffect("none", EffectStatus.CONFIRMED), SECOND)

    def test_no_writes_change_nothing(self) -> None:
        world = driven()
        with unchanged(world):
            assert world.extend(1) == Extended(world.run(), 2, [])
        world.drive(DONE)
        with refused(world, RunEnded):
            world.extend(1)

    def test_the_trace_is_on_every_entry(self) -> None:
        world = driven()
        trace = Trace("a" * 32, "b" * 16, "c" * 16)
        ids = [f"id-{n}" for n in range(12)]
        world.play(ExtendRun(RUN, 1, [FIRST, SECOND], ids=ids, limits=LIMITS, trace=trace))
        for draft, event_id in zip(world.entries[1:], ids, strict=False):
            assert (draft.trace_id, draft.span_id, draft.parent_span_id) == trace
            assert (draft.event_id, draft.run_id) == (event_id, RUN)

    @pytest.mark.parametrize("token", [0, -1, 2])
    def test_another_token_is_stale(self, token: int) -> None:
        world = driven()
        with refused(world, StaleLease, match="abandon the work"):
            world.extend(token, FIRST)
        with refused(world, StaleLease):
            world.extend(token, DONE)

    def test_a_lease_that_ran_out_serves_until_another_takes_it(self) -> None:
        world = driven()
        world.now_ms += 100 * TTL
        world.extend(1, FIRST)
        world.resume("b")
        with refused(world, StaleLease):
            world.extend(1, SECOND)

    def test_whoever_let_go_writes_nothing(self) -> None:
        world = driven()
        world.wait()
        with refused(world, StaleLease, match="resume it"):
            world.extend(1, FIRST)

    def test_an_unknown_run(self) -> None:
        world = World()
        with refused(world, NotFound):
            world.extend(1, FIRST)
        with refused(world, NotFound):
            world.change(SendSignal("g"))


class TestAfterTheEnd:
    @pytest.mark.parametrize(
        "status", [RunStatus.TERMINAL, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.STUCK]
    )
    def test_nothing_more_is_written(self, status: RunStatus) -> None:
        world = driven()
        world.extend(1, EndRun(status, '"done"', ""))
        with refused(world, RunEnded, match=SHOWN_WORDS[status]):
            world.extend(1, FIRST)
        with refused(world, StaleLease):
            world.extend(2, FIRST)
        with refused(world, StaleLease):
            world.extend(0, EndRun(status, '"done"', ""))

    def test_nothing_comes_after_it_in_the_same_move(self) -> None:
        world = driven()
        for writes in ([DONE, FIRST], [DONE, DONE], [FIRST, DONE, SetBudget(1)]):
            with refused(world, RunEnded):
                world.extend(1, *writes)

    def test_nor_after_an_end_that_came_from_outside(self) -> None:
        world = driven()
        world.now_ms += TTL
        with refused(world, RunEnded):
            world.extend(1, CancelRun("enough", ""), FIRST)

    @pytest.mark.parametrize("before", [[], [FIRST]])
    @pytest.mark.parametrize("status", [RunStatus.TERMINAL, RunStatus.FAILED, RunStatus.STUCK])
    def test_the_same_end_again_is_answered(self, before: list[Any], status: RunStatus) -> None:
        world = driven()
        writes = [*before, EndRun(status, '"done"', "")]
        first = world.extend(1, *writes)
        assert first.replies[-1] == world.run()
        with unchanged(world):
            again = world.extend(1, *writes)
        assert again == Extended(world.run(), 0, [*(None for _ in before), world.run()])

    def test_it_is_while_the_run_unwinds_and_when_it_has(self) -> None:
        world = driven()
        end = EndRun(RunStatus.FAILED, '"no"', "")
        world.drive(RegisterCompensation("e", "undo"))
        world.drive(end)
        with unchanged(world):
            assert world.drive(end).status == RunStatus.COMPENSATING

    @pytest.mark.parametrize(
        "other", [EndRun(RunStatus.FAILED, '"done"', ""), EndRun(RunStatus.TERMINAL, '"else"', "")]
    )
    def test_another_end_is_not_the_same(self, other: EndRun) -> None:
        world = driven()
        world.drive(DONE)
        with refused(world, RunEnded, match="is done"):
            world.extend(1, other)

    def test_what_came_with_an_end_that_was_not_is_not_dropped_without_a_word(self) -> None:
        world = driven()
        began = world.drive(BeginEffect(0, "pay", 0))
        world.now_ms += TTL
        world.change(CancelRun("enough", ""))
        confirmed = CompleteEffect(began.idempotency_key, EffectStatus.CONFIRMED)
        with refused(world, RunEnded, match="cancelled"):
            world.extend(1, confirmed, DONE)

    def test_a_run_that_was_never_driven_has_no_driver(self) -> None:
        world = World()
        world.begin("")
        world.change(CancelRun("enough", ""))
        with refused(world, StaleLease):
            world.extend(0, EndRun(RunStatus.CANCELLED, '{"cancelled":"enough"}', ""))


class TestBesides:
    def test_another_run_gets_its_entries_on_its_own_journal(self) -> None:
        world = with_child()
        before = world.run().seq_cursor
        world.drive(EndRun(RunStatus.TERMINAL, "7", RUN), run_id=CHILD)
        assert world.verbs(CHILD)[-1] == "run terminal"
        assert world.verbs(RUN)[-1] == "gate released"
        assert world.run().seq_cursor == before + 1

    def test_all_that_is_looked_at_is_named(self) -> None:
        writes: list[Any] = [FIRST, EndRun(RunStatus.TERMINAL, "1", RUN)]
        needs = [
            Need(RUNS, CHILD),
            Need(DECISIONS, (CHILD, 0)),
            Need(RUNS, RUN),
            Need(GATES, (RUN, CHILD_GATE)),
        ]
        extend = ExtendRun(CHILD, 1, writes, ids=[], limits=LIMITS)
        assert list(extend.needs()) == needs
        assert list(ChangeRun(CHILD, writes, ids=[], limits=LIMITS).needs()) == needs

    def test_it_weighs_what_it_holds(self) -> None:
        def weight(text: str) -> int:
            write = RecordDecision(0, "m", text)
            return ExtendRun(RUN, 1, [write], ids=[], limits=LIMITS).weight

        assert weight('"' + "x" * 1000 + '"') == weight('""') + 1000


class TestBeginningWithWrites:
    def begin(self, world: World, *writes: Any, owner: str = "a") -> Begun:
        count = 1 + IDS_PER_WRITE * len(writes)
        ids = [f"{len(world.entries)}-{n}" for n in range(count)]
        move = BeginAndExtend(NewRun(NAME), Taker(owner), writes, ids=ids, limits=LIMITS)
        begun: Begun = world.play(move)
        return begun

    def test_a_new_run_has_them_at_once(self) -> None:
        world = World()
        begun = self.begin(world, FIRST, AwaitSignal("g"))
        assert (begun.resumed, begun.fencing_token) == (False, 1)
        assert begun.extended is not None
        assert begun.run == begun.extended.run == world.run()
        assert (begun.run.seq_cursor, begun.extended.first_seq) == (3, 2)
        assert begun.extended.replies == [DecisionPlace(RUN, 0, 2, NOW), world.gate("g")]
        assert world.verbs() == ["run running", "decision recorded", "gate waiting"]

    def test_it_may_end_in_the_same_breath(self) -> None:
        world = World()
        begun = self.begin(world, FIRST, DONE)
        assert (begun.run.status, begun.run.lease_owner) == (RunStatus.TERMINAL, "")

    def test_one_refusal_refuses_all(self) -> None:
        world = World()
        with refused(world, NotFound):
            self.begin(world, CompleteEffect("none", EffectStatus.CONFIRMED))
        assert world.get(RUNS, RUN) is None

    def test_one_that_was_there_is_begun_and_no_more(self) -> None:
        world = driven()
        begun = self.begin(world, FIRST)
        assert (begun.resumed, begun.fencing_token, begun.extended) == (True, 2, None)
        assert world.verbs() == ["run running", "run running"]

    def test_one_that_was_there_and_is_driven_for_the_first_time(self) -> None:
        """Its token is the first, yet it is not new: something may have come for it already."""
        world = World()
        world.begin("")
        world.change(SendSignal("g"))
        begun = self.begin(world, FIRST)
        assert (begun.resumed, begun.fencing_token, begun.extended) == (True, 1, None)

    def test_nobody_writes_nothing(self) -> None:
        world = World()
        begun = self.begin(world, FIRST, owner="")
        assert (begun.fencing_token, begun.extended) == (0, None)
        assert world.verbs() == ["run runnable"]

    def test_all_that_is_looked_at_is_named(self) -> None:
        move = BeginAndExtend(NewRun(NAME), Taker("a"), [FIRST], ids=["1"], limits=LIMITS)
        assert set(names(move.needs())) == {(RUNS, RUN), (DECISIONS, (RUN, 0))}
        assert move.weight > ExtendRun(RUN, 1, [FIRST], ids=[], limits=LIMITS).weight


@pytest.mark.parametrize(
    ("run_id", "writes", "trace", "field"),
    [
        ("", [FIRST], Trace(), "run_id"),
        ("\0", [FIRST], Trace(), "run_id"),
        (RUN, [FIRST, RecordDecision(-1, "m")], Trace(), "decision_index"),
        (RUN, [FIRST], Trace("x" * 32), "trace_id"),
        (RUN, [FIRST], Trace("", "x"), "span_id"),
        (RUN, [FIRST], Trace("", "", "x"), "parent_span_id"),
    ],
)
def test_bad_input_is_refused_with_its_field(
    run_id: str, writes: list[Any], trace: Trace, field: str
) -> None:
    for make in (
        lambda: ExtendRun(run_id, 1, writes, ids=[], limits=LIMITS, trace=trace),
        lambda: ChangeRun(run_id, writes, ids=[], limits=LIMITS, trace=trace),
    ):
        with pytest.raises(InvalidArgument) as refusal:
            make()
        assert refusal.value.field == field


def test_a_leased_run_is_running_and_any_other_is_not() -> None:
    """What the fence and the heartbeat rely on."""
    world = driven()
    assert world.run().lease_owner
    for end in (World.wait, World.resume, lambda w: w.begin("b"), lambda w: w.drive(DONE)):
        end(world)
        run: Run = world.run()
        assert bool(run.lease_owner) == (run.status == RunStatus.RUNNING)
