"""Who may hold a run, from when and until when."""

import pytest

from tape.errors import (
    InvalidArgument,
    LeaseHeld,
    NotFound,
    RunEnded,
    StaleLease,
    TooLarge,
)
from tape.model.decision import RecordDecision
from tape.model.entry import Trace
from tape.model.gate import AwaitSignal, SendSignal
from tape.model.lease import (
    DEFAULT_TTL_MS,
    MOST_TTL_MS,
    HeartbeatRun,
    ReleaseRun,
    ResumeRun,
    Taker,
)
from tape.model.run import SHOWN_WORDS, RunStatus
from tape.model.run_end import CancelRun, EndRun
from tests.unit.model.run_world import (
    LIMITS,
    NOW,
    RUN,
    TTL,
    World,
    driven,
    faulty,
    refused,
    unchanged,
)

TRACE = Trace("a" * 32, "b" * 16, "c" * 16)


class TestResuming:
    def test_a_free_run_is_taken_with_the_next_token(self) -> None:
        world = World()
        world.begin("")
        run = world.resume("b")
        assert (run.status, run.lease_owner, run.reactor_name) == (2, "b", "recovery")
        assert (run.fencing_token, run.lease_expires_at_ms) == (1, NOW + TTL)
        assert world.verbs() == ["run runnable", "run running"]
        assert (world.payload()["owner"], world.payload()["reactor"]) == ("b", "recovery")

    def test_not_while_another_holds_it(self) -> None:
        world = driven()
        world.now_ms += TTL - 1
        with refused(world, LeaseHeld, match="held by 'a' for another 1 ms"):
            world.resume("b")
        world.now_ms += 1
        assert world.resume("b").fencing_token == 2

    def test_a_renewed_lease_is_held(self) -> None:
        world = driven()
        world.now_ms += TTL - 1
        world.heartbeat(1)
        world.now_ms += 1
        with refused(world, LeaseHeld):
            world.resume("b")

    def test_only_the_first_of_two_that_saw_the_same_token(self) -> None:
        world = driven()
        world.now_ms += TTL
        world.resume("b", expected_token=1)
        world.now_ms += TTL
        with refused(world, LeaseHeld, match="taken over by another"):
            world.resume("c", expected_token=1)
        assert world.resume("c", expected_token=2).fencing_token == 3

    def test_the_token_before_is_stale_from_then_on_and_not_before(self) -> None:
        world = driven()
        world.now_ms += TTL
        world.extend(1, RecordDecision(0, "m"))
        world.resume("b")
        for play in (
            lambda: world.extend(1, RecordDecision(1, "m")),
            lambda: world.heartbeat(1),
            lambda: world.release(1),
            lambda: world.extend(1, EndRun(RunStatus.TERMINAL, "1", "")),
        ):
            with refused(world, StaleLease):
                play()

    @pytest.mark.parametrize(
        "status", [RunStatus.TERMINAL, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.STUCK]
    )
    def test_one_that_has_ended_is_driven_no_more(self, status: RunStatus) -> None:
        world = driven()
        world.drive(EndRun(status, "1", ""))
        with refused(world, RunEnded, match=SHOWN_WORDS[status]):
            world.resume("b")

    def test_its_trace_is_on_its_entry(self) -> None:
        world = World()
        world.begin("")
        world.play(ResumeRun(RUN, Taker("b"), "id", LIMITS, trace=TRACE))
        assert world.entries[-1].trace_id == TRACE.trace_id

    def test_an_unknown_run(self) -> None:
        world = World()
        with refused(world, NotFound):
            world.resume("b")


class TestPuttingBack:
    def test_a_stuck_run_is_runnable_again(self) -> None:
        world = driven()
        world.drive(EndRun(RunStatus.STUCK, '"why"', ""))
        world.now_ms += 5
        run = world.resume()
        assert (run.status, run.ended_at_ms, run.outcome_json) == (RunStatus.RUNNABLE, 0, "")
        assert world.verbs()[-1] == "run runnable"
        assert world.resume("b").fencing_token == 2

    def test_its_driver_of_before_has_no_part_in_it(self) -> None:
        world = driven()
        world.drive(EndRun(RunStatus.STUCK, '"why"', ""))
        world.resume()
        with refused(world, StaleLease):
            world.extend(1, RecordDecision(0, "m"))

    def test_a_waiting_run_is_runnable_again(self) -> None:
        world = driven()
        world.wait()
        run = world.resume()
        assert (run.status, run.waiting_on) == (RunStatus.RUNNABLE, "")

    def test_a_run_that_anybody_may_take_stays_as_it_is(self) -> None:
        world = World()
        world.begin("")
        with unchanged(world):
            assert world.resume() == world.run()
        world.begin("a")
        world.now_ms += TTL
        with unchanged(world):
            assert world.resume() == world.run()

    def test_a_run_that_is_driven_is_left_alone(self) -> None:
        world = driven()
        with refused(world, LeaseHeld, match="driven by 'a'"):
            world.resume()

    @pytest.mark.parametrize("status", [RunStatus.TERMINAL, RunStatus.FAILED, RunStatus.CANCELLED])
    def test_an_end_is_an_end(self, status: RunStatus) -> None:
        world = driven()
        world.drive(EndRun(status, "1", ""))
        with refused(world, RunEnded, match=SHOWN_WORDS[status]):
            world.resume()


class TestHeartbeats:
    def test_a_lease_is_renewed_without_an_entry(self) -> None:
        world = driven()
        before = world.run()
        world.now_ms += 10
        run = world.heartbeat(1, ttl_ms=70)
        assert run == before._replace(lease_expires_at_ms=NOW + 80) == world.run()
        assert len(world.entries) == 1

    def test_one_that_ran_out_and_nobody_took_over_is_renewed(self) -> None:
        world = driven()
        world.now_ms += 5 * TTL
        assert world.heartbeat(1).is_leased(world.now_ms)

    def test_it_tells_of_a_cancellation(self) -> None:
        world = driven()
        world.change(CancelRun("enough", ""))
        assert world.heartbeat(1).cancel_reason == "enough"

    @pytest.mark.parametrize("token", [0, -1, 2])
    def test_not_with_another_token(self, token: int) -> None:
        world = driven()
        with refused(world, StaleLease, match="abandon the work"):
            world.heartbeat(token)

    def test_not_once_it_was_let_go_of_or_has_ended(self) -> None:
        for end in (lambda w: w.drive(EndRun(RunStatus.TERMINAL, "1", "")), World.wait):
            world = driven()
            end(world)
            with refused(world, StaleLease, match="was released"):
                world.heartbeat(1)

    def test_an_unknown_run(self) -> None:
        world = World()
        with refused(world, NotFound):
            world.heartbeat(1)


class TestReleasing:
    def test_the_run_is_free_at_once(self) -> None:
        world = driven()
        run = world.release(1)
        assert (run.status, run.lease_owner, run.reactor_name) == (RunStatus.RUNNABLE, "", "")
        assert (run.lease_expires_at_ms, run.fencing_token, run.waiting_on) == (0, 1, "")
        assert world.verbs() == ["run running", "run runnable"]
        assert world.payload()["fencing_token"] == 1
        assert world.resume("b").fencing_token == 2

    def test_it_waits_if_its_driver_has_seen_all_there_is(self) -> None:
        world = driven()
        world.drive(AwaitSignal("g"))
        run = world.release(1, waiting_on="gate g", seen_seq=2)
        assert (run.status, run.waiting_on, run.lease_owner) == (RunStatus.WAITING, "gate g", "")
        assert world.verbs()[-1] == "run waiting"
        assert world.payload()["waiting_on"] == "gate g"

    @pytest.mark.parametrize("seen", [0, -1, 1, 3])
    def test_it_does_not_if_something_came_in_between(self, seen: int) -> None:
        world = driven()
        world.drive(AwaitSignal("g"))
        run = world.release(1, waiting_on="gate g", seen_seq=seen)
        assert (run.status, run.waiting_on) == (RunStatus.RUNNABLE, "")

    def test_a_signal_between_looking_and_waiting_is_not_lost(self) -> None:
        world = driven()
        seen = world.extend(1, AwaitSignal("g")).run.seq_cursor
        world.change(SendSignal("g"))
        assert world.release(1, waiting_on="gate g", seen_seq=seen).status == RunStatus.RUNNABLE

    def test_one_that_is_to_be_cancelled_does_not_wait(self) -> None:
        world = driven()
        world.change(CancelRun("enough", ""))
        run = world.wait()
        assert (run.status, run.cancel_reason) == (RunStatus.RUNNABLE, "enough")

    def test_a_repeat_is_answered_however_it_asks(self) -> None:
        world = driven()
        world.wait()
        for waiting_on in ("gate g", ""):
            with unchanged(world):
                run = world.release(1, waiting_on=waiting_on, seen_seq=1)
            assert run == world.run()

    def test_after_the_end_it_is_answered_with_the_end(self) -> None:
        world = driven()
        world.drive(EndRun(RunStatus.TERMINAL, "1", ""))
        with unchanged(world):
            assert world.release(1) == world.run()

    @pytest.mark.parametrize("token", [0, 1, 3])
    def test_not_with_another_token(self, token: int) -> None:
        world = driven()
        world.begin("a")
        with refused(world, StaleLease):
            world.release(token)

    def test_after_it_let_go_an_older_token_is_stale_as_before(self) -> None:
        world = driven()
        world.begin("a")
        world.wait()
        with refused(world, StaleLease):
            world.release(1)

    def test_an_unknown_run(self) -> None:
        world = World()
        with refused(world, NotFound):
            world.release(1)


class TestBadInput:
    @pytest.mark.parametrize("ttl", [0, -1])
    def test_no_time_is_half_a_minute(self, ttl: int) -> None:
        assert Taker("a", "", ttl).checked(LIMITS).ttl_ms == DEFAULT_TTL_MS == 30_000
        world = driven()
        assert world.heartbeat(1, ttl_ms=ttl).lease_expires_at_ms == NOW + DEFAULT_TTL_MS

    @pytest.mark.parametrize(
        ("taker", "error", "field"),
        [
            (Taker("\0"), InvalidArgument, "lease_owner"),
            (Taker("x" * 513), TooLarge, "lease_owner"),
            (Taker("a", "\0"), InvalidArgument, "reactor_name"),
            (Taker("a", "\ud800"), InvalidArgument, "reactor_name"),
            (Taker("a", "b", MOST_TTL_MS + 1), InvalidArgument, "lease_ttl_ms"),
        ],
    )
    def test_of_a_taker(self, taker: Taker, error: type[InvalidArgument], field: str) -> None:
        faulty(taker, error, field)

    def test_a_day_is_not_too_long(self) -> None:
        assert Taker("a", "b", MOST_TTL_MS).checked(LIMITS).ttl_ms == MOST_TTL_MS

    def test_of_moves(self) -> None:
        for run_id in ("", "\0", "\ud800"):
            for make in (
                lambda r: ResumeRun(r, Taker(), "id", LIMITS),
                lambda r: HeartbeatRun(r, 1, 0, LIMITS),
                lambda r: ReleaseRun(r, 1, "id", LIMITS),
            ):
                with pytest.raises(InvalidArgument) as refusal:
                    make(run_id)
                assert refusal.value.field == "run_id"
        with pytest.raises(InvalidArgument) as refusal:
            HeartbeatRun(RUN, 1, MOST_TTL_MS + 1, LIMITS)
        assert refusal.value.field == "lease_ttl_ms"
        with pytest.raises(TooLarge) as too_large:
            ReleaseRun(RUN, 1, "id", LIMITS, waiting_on="x" * 513)
        assert too_large.value.field == "waiting_on"
        with pytest.raises(InvalidArgument) as refusal:
            ResumeRun(RUN, Taker(), "id", LIMITS, trace=Trace("a"))
        assert refusal.value.field == "trace_id"
