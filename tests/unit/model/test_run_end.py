"""The end of a run: by its driver, from outside, and what a parent hears of it."""

from collections.abc import Callable

import pytest

from tape.errors import InvalidArgument
from tape.model.effect import BeginEffect
from tape.model.gate import GATES, AwaitSignal, SendSignal
from tape.model.move import Need
from tape.model.obligation import (
    ClaimObligation,
    ObligationKey,
    ObligationStatus,
    RegisterCompensation,
    ResolveObligation,
)
from tape.model.run import RUNS, Run, RunStatus
from tape.model.run_end import CancelRun, EndRun
from tests.unit.model.run_world import (
    CHILD,
    CHILD_GATE,
    NOW,
    RUN,
    TTL,
    World,
    driven,
    faulty,
    refused,
    unchanged,
    with_child,
)

TERMINAL, FAILED, CANCELLED, STUCK = (
    RunStatus.TERMINAL, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.STUCK,
)  # fmt: skip
UNDO = ObligationKey("e", "undo")


def resolve(world: World, key: ObligationKey = UNDO, run_id: str = RUN) -> None:
    """Unwind the obligation on top."""
    claimed = world.change(ClaimObligation(key, "c", TTL), run_id)
    parent = world.run(run_id).parent_run_id
    status = ObligationStatus.COMPENSATED
    world.change(ResolveObligation(key, claimed.claim_token, status, "1", parent), run_id)


class TestByItsDriver:
    @pytest.mark.parametrize("status", [TERMINAL, FAILED, CANCELLED, STUCK])
    def test_it_is_written_down_and_let_go_of(self, status: RunStatus) -> None:
        world = driven()
        before = world.run()
        world.now_ms += 7
        run = world.drive(EndRun(status, '{"x": 1}', ""))
        assert (
            run
            == world.run()
            == before.unleased()._replace(
                status=status, seq_cursor=2, ended_at_ms=NOW + 7, outcome_json='{"x": 1}'
            )
        )
        verb = status.name.lower()
        assert world.entries[-1].subject == f"/tape/run/{verb}/app/user/session/{RUN}"
        assert world.payload()["detail"] == {"x": 1}
        assert world.payload()["fencing_token"] == 1

    @pytest.mark.parametrize("status", [FAILED, CANCELLED])
    def test_obligations_are_unwound_first(self, status: RunStatus) -> None:
        world = driven()
        world.drive(RegisterCompensation(*UNDO))
        run = world.drive(EndRun(status, '"why"', ""))
        assert (run.status, run.ending, run.outcome_json) == (
            RunStatus.COMPENSATING, status, '"why"',
        )  # fmt: skip
        assert (run.lease_owner, run.ended_at_ms) == ("", 0)
        assert world.verbs()[-1] == "run compensating"
        assert (world.payload()["ending"], world.payload()["detail"]) == (
            status.name.lower(), "why",
        )  # fmt: skip
        world.now_ms += 9
        resolve(world)
        run = world.run()
        assert (run.status, run.ending, run.outcome_json) == (status, 0, '"why"')
        assert run.ended_at_ms == NOW + 9

    @pytest.mark.parametrize("status", [TERMINAL, STUCK])
    def test_they_are_not_if_it_succeeds_or_is_stuck(self, status: RunStatus) -> None:
        world = driven()
        world.drive(RegisterCompensation(*UNDO))
        run = world.drive(EndRun(status, "1", ""))
        assert (run.status, run.ending) == (status, 0)
        assert world.change(ClaimObligation(UNDO, "c", TTL)) is None

    def test_a_stuck_run_keeps_its_obligations_for_when_it_fails(self) -> None:
        world = driven()
        world.drive(RegisterCompensation(*UNDO))
        world.drive(EndRun(STUCK, "1", ""))
        world.resume()
        world.resume("b")
        assert world.drive(EndRun(FAILED, "1", "")).status == RunStatus.COMPENSATING

    @pytest.mark.parametrize("named", [None, "", "another"])
    def test_a_parent_that_was_not_looked_at_would_never_hear_of_it(self, named: str) -> None:
        world = with_child()
        with refused(world, InvalidArgument, "parent_run_id", match=RUN):
            world.drive(EndRun(TERMINAL, "1", named), run_id=CHILD)

    def test_nor_is_one_named_that_is_not_its_parent(self) -> None:
        world = driven()
        with refused(world, InvalidArgument, "parent_run_id"):
            world.drive(EndRun(TERMINAL, "1", CHILD))
        with refused(world, InvalidArgument, "parent_run_id"):
            world.drive(EndRun(TERMINAL, "1", None))


class TestFromOutside:
    def test_one_that_is_driven_is_told(self) -> None:
        world = driven()
        run = world.change(CancelRun("enough", ""))
        assert run == world.run()
        assert (run.status, run.cancel_reason, run.lease_owner) == (
            RunStatus.RUNNING, "enough", "a",
        )  # fmt: skip
        assert world.verbs() == ["run running", "run cancel_requested"]
        assert world.payload()["reason"] == "enough"

    def test_asking_again_changes_nothing(self) -> None:
        world = driven()
        world.change(CancelRun("enough", ""))
        with unchanged(world):
            assert world.change(CancelRun("really", "")) == world.run()

    def test_once_its_driver_is_gone_asking_again_ends_it(self) -> None:
        world = driven()
        world.change(CancelRun("enough", ""))
        world.now_ms += TTL
        assert world.change(CancelRun("enough", "")).status == CANCELLED

    def test_the_next_driver_is_told_as_well(self) -> None:
        world = driven()
        world.change(CancelRun("enough", ""))
        world.now_ms += TTL
        assert world.resume("b").cancel_reason == "enough"

    @pytest.mark.parametrize(
        "leave",
        [
            lambda world: world.release(1),
            World.wait,
            lambda world: setattr(world, "now_ms", NOW + TTL),
            lambda world: world.drive(EndRun(STUCK, "1", "")),
        ],
        ids=["runnable", "waiting", "lease ran out", "stuck"],
    )
    def test_one_that_nobody_drives_ends_at_once(self, leave: Callable[[World], None]) -> None:
        world = driven()
        leave(world)
        run = world.change(CancelRun("enough", ""))
        assert run == world.run()
        assert (run.status, run.outcome_json) == (CANCELLED, '{"cancelled":"enough"}')
        assert (run.lease_owner, run.waiting_on, run.ended_at_ms) == ("", "", world.now_ms)
        assert world.verbs()[-1] == "run cancelled"

    def test_a_stuck_one_with_obligations_has_not_ended_until_they_are_unwound(self) -> None:
        world = driven()
        world.drive(RegisterCompensation(*UNDO), EndRun(STUCK, "1", ""))
        run = world.change(CancelRun("enough", ""))
        assert (run.status, run.ended_at_ms) == (RunStatus.COMPENSATING, 0)

    def test_it_unwinds_its_obligations_first(self) -> None:
        world = driven()
        world.drive(RegisterCompensation(*UNDO))
        world.wait()
        run = world.change(CancelRun("enough", ""))
        assert (run.status, run.ending, run.waiting_on) == (RunStatus.COMPENSATING, CANCELLED, "")
        resolve(world)
        assert world.run().status == CANCELLED

    @pytest.mark.parametrize("status", [TERMINAL, FAILED, CANCELLED])
    def test_one_that_has_ended_stays_as_it_ended(self, status: RunStatus) -> None:
        world = driven()
        world.drive(EndRun(status, "1", ""))
        with unchanged(world):
            assert world.change(CancelRun("enough", "")) == world.run()

    def test_one_that_unwinds_goes_on_unwinding(self) -> None:
        world = driven()
        world.drive(RegisterCompensation(*UNDO))
        world.drive(EndRun(FAILED, '"why"', ""))
        with unchanged(world):
            world.change(CancelRun("enough", ""))
        resolve(world)
        assert (world.run().status, world.run().outcome_json) == (FAILED, '"why"')

    def test_one_that_is_stuck_in_unwinding_is_not_done_with_it(self) -> None:
        world = driven()
        world.drive(RegisterCompensation(*UNDO))
        world.drive(EndRun(FAILED, '"why"', ""))
        token = world.change(ClaimObligation(UNDO, "c", TTL)).claim_token
        world.change(ResolveObligation(UNDO, token, ObligationStatus.STUCK, "1", ""))
        assert world.run().status == STUCK
        with unchanged(world):
            world.change(CancelRun("enough", ""))

    def test_its_parent_must_be_looked_at(self) -> None:
        world = with_child()
        for named in (None, "", "another"):
            with refused(world, InvalidArgument, "parent_run_id"):
                world.change(CancelRun("enough", named), CHILD)

    def test_a_run_may_still_succeed_before_its_driver_has_heard(self) -> None:
        world = driven()
        world.change(CancelRun("enough", ""))
        assert world.drive(EndRun(TERMINAL, "1", "")).status == TERMINAL


class TestTellingTheParent:
    @pytest.mark.parametrize("status", [TERMINAL, FAILED, CANCELLED])
    def test_its_gate_opens_with_status_and_outcome(self, status: RunStatus) -> None:
        world = with_child()
        world.drive(EndRun(status, "7", RUN), run_id=CHILD)
        gate = world.gate(CHILD_GATE)
        assert gate is not None
        assert (gate.released, gate.awaited) == (True, False)
        expected = f'{{"status":"{status.name.lower()}","outcome":7}}'
        assert gate.resolution_json == expected

    def test_a_parent_that_waits_is_woken(self) -> None:
        world = with_child()
        world.drive(AwaitSignal(CHILD_GATE))
        world.wait(f"gate {CHILD_GATE}")
        world.drive(EndRun(TERMINAL, "7", RUN), run_id=CHILD)
        assert (world.run().status, world.run().waiting_on) == (RunStatus.RUNNABLE, "")
        assert world.verbs()[-2:] == ["gate released", "run runnable"]

    def test_a_parent_about_to_wait_does_not(self) -> None:
        world = with_child()
        seen = world.extend(1, AwaitSignal(CHILD_GATE)).run.seq_cursor
        world.drive(EndRun(TERMINAL, "7", RUN), run_id=CHILD)
        run = world.release(1, waiting_on="child", seen_seq=seen)
        assert run.status == RunStatus.RUNNABLE

    def test_a_parent_that_comes_later_finds_it_open(self) -> None:
        world = with_child()
        world.drive(EndRun(TERMINAL, "7", RUN), run_id=CHILD)
        gate = world.drive(AwaitSignal(CHILD_GATE))
        assert (gate.awaited, gate.released) == (True, True)

    def test_a_stuck_child_has_not_ended_for_its_parent(self) -> None:
        world = with_child()
        world.drive(EndRun(STUCK, "7", RUN), run_id=CHILD)
        assert world.gate(CHILD_GATE) is None
        world.resume(run_id=CHILD)
        world.resume("c", CHILD)
        world.drive(EndRun(TERMINAL, "8", RUN), run_id=CHILD)
        gate = world.gate(CHILD_GATE)
        assert gate is not None
        assert gate.released

    def test_nor_has_one_that_unwinds(self) -> None:
        world = with_child()
        world.drive(RegisterCompensation(*UNDO), run_id=CHILD)
        world.drive(EndRun(FAILED, "7", RUN), run_id=CHILD)
        assert world.gate(CHILD_GATE) is None
        resolve(world, run_id=CHILD)
        gate = world.gate(CHILD_GATE)
        assert gate is not None
        assert gate.resolution_json == '{"status":"failed","outcome":7}'

    def test_one_that_nobody_drives_tells_when_it_is_cancelled(self) -> None:
        world = with_child()
        world.release(1, CHILD)
        world.change(CancelRun("enough", RUN), CHILD)
        gate = world.gate(CHILD_GATE)
        assert gate is not None
        assert '"status":"cancelled"' in gate.resolution_json

    def test_a_word_that_came_first_counts(self) -> None:
        world = with_child()
        world.change(SendSignal(CHILD_GATE, '"never mind"'))
        before = world.run()
        world.drive(EndRun(TERMINAL, "7", RUN), run_id=CHILD)
        gate = world.gate(CHILD_GATE)
        assert gate is not None
        assert gate.resolution_json == '"never mind"'
        assert world.run() == before

    @pytest.mark.parametrize("status", [TERMINAL, FAILED, CANCELLED])
    def test_a_parent_that_has_ended_hears_no_more(self, status: RunStatus) -> None:
        world = with_child()
        before = world.drive(EndRun(status, "1", ""))
        world.drive(EndRun(TERMINAL, "7", RUN), run_id=CHILD)
        assert world.gate(CHILD_GATE) is None
        assert world.run() == before

    def test_nor_does_one_that_unwinds(self) -> None:
        world = with_child()
        world.drive(RegisterCompensation(*UNDO))
        before: Run = world.drive(EndRun(FAILED, "1", ""))
        world.drive(EndRun(TERMINAL, "7", RUN), run_id=CHILD)
        assert world.run() == before

    def test_a_stuck_parent_finds_it_open_when_it_goes_on(self) -> None:
        world = with_child()
        world.drive(AwaitSignal(CHILD_GATE))
        world.drive(EndRun(STUCK, '"why"', ""))
        world.drive(EndRun(TERMINAL, "7", RUN), run_id=CHILD)
        assert world.run().status == STUCK
        world.resume()
        world.resume("b")
        assert world.drive(AwaitSignal(CHILD_GATE)).released


def test_a_write_that_may_end_a_run_names_its_parent_and_the_gate() -> None:
    for write in (EndRun(TERMINAL, "1", RUN), CancelRun("x", RUN)):
        assert list(write.needs(CHILD)) == [Need(RUNS, RUN), Need(GATES, (RUN, CHILD_GATE))]
        assert list(write._replace(parent_run_id="").needs(RUN)) == []
        assert write.size == 1


def test_effects_are_not_begun_once_it_is_to_be_cancelled() -> None:
    world = driven()
    known = world.drive(BeginEffect(0, "pay", 0))
    world.change(CancelRun("enough", ""))
    with unchanged(world):
        assert world.drive(BeginEffect(0, "pay", 0)) == known


@pytest.mark.parametrize(
    ("write", "field"),
    [
        (EndRun(RunStatus.RUNNABLE), "status"),
        (EndRun(RunStatus.RUNNING), "status"),
        (EndRun(RunStatus.WAITING), "status"),
        (EndRun(RunStatus.COMPENSATING), "status"),
        (EndRun(0), "status"),
        (EndRun(9), "status"),
        (EndRun(TERMINAL, "{"), "detail_json"),
    ],
)
def test_bad_input_is_refused_with_its_field(write: EndRun, field: str) -> None:
    faulty(write, InvalidArgument, field)


def test_no_detail_is_null() -> None:
    world = driven()
    assert world.drive(EndRun(TERMINAL, "", "")).outcome_json == "null"


@pytest.mark.parametrize(
    ("given", "kept"),
    [("", "cancelled"), ("x" * 600, "x" * 512), ("a\0b", "a\\0b"), ("a\ud800", "a?")],
)
def test_a_reason_is_kept_as_far_as_it_can_be(given: str, kept: str) -> None:
    world = driven()
    assert world.change(CancelRun(given, "")).cancel_reason == kept
