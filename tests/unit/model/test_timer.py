"""Timers: set and cancelled by the run, fired when they are due, and whom they wake."""

import pytest

from tape.errors import InvalidArgument, StaleLease, TooLarge
from tape.model.gate import GATES, AwaitSignal, SendSignal
from tape.model.move import Need
from tape.model.run import RunStatus
from tape.model.run_end import EndRun
from tape.model.timer import (
    GATE_TIMEOUT,
    RECONCILE,
    REDRIVE,
    TIMED_OUT_JSON,
    TIMERS,
    CancelTimer,
    FireTimer,
    SetTimer,
    Timer,
)
from tests.unit.model.run_world import (
    LIMITS,
    NOW,
    RUN,
    World,
    driven,
    faulty,
    refused,
    unchanged,
)

TIMEOUT = SetTimer("t", kind=GATE_TIMEOUT, payload_json='{"gate": "g"}', after_ms=10)


def fire(world: World, timer_id: str = "t") -> Timer | None:
    fired: Timer | None = world.change(FireTimer(world.timer(timer_id)))
    return fired


class TestSetting:
    def test_it_is_written_down(self) -> None:
        world = driven()
        timer = world.drive(SetTimer("t", NOW + 5, "mine", '{"x": 1}'))
        assert timer == Timer(RUN, "t", NOW + 5, "mine", '{"x": 1}', False, False, NOW)
        assert timer == world.timer("t")
        assert world.entries[-1].subject == f"/tape/timer/set/mine/{RUN}"
        assert world.payload() == {
            "timer_id": "t", "kind": "mine", "fire_at_ms": NOW + 5, "payload": {"x": 1},
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("fire_at", "after", "due"),
        [(0, 7, NOW + 7), (0, 0, NOW), (5, 7, 5), (NOW + 3, 0, NOW + 3)],
    )
    def test_at_a_time_or_so_long_from_now(self, fire_at: int, after: int, due: int) -> None:
        world = driven()
        assert world.drive(SetTimer("t", fire_at, after_ms=after)).fire_at_ms == due

    @pytest.mark.parametrize("kind", ["", REDRIVE])
    def test_it_wakes_the_run_unless_told_otherwise(self, kind: str) -> None:
        assert driven().drive(SetTimer("t", kind=kind)).kind == REDRIVE

    def test_the_first_by_its_id_counts(self) -> None:
        world = driven()
        timer = world.drive(SetTimer("t", after_ms=5))
        world.now_ms += 1
        with unchanged(world):
            assert world.drive(SetTimer("t", after_ms=9)) == timer
        world.drive(CancelTimer("t"))
        with unchanged(world):
            assert world.drive(SetTimer("t", after_ms=9)).cancelled

    def test_only_its_driver_sets_it(self) -> None:
        world = driven()
        with refused(world, StaleLease):
            world.extend(2, SetTimer("t"))


class TestCancelling:
    def test_it_does_not_fire(self) -> None:
        world = driven()
        world.drive(SetTimer("t"))
        assert world.drive(CancelTimer("t")) is True
        assert world.timer("t").cancelled
        assert world.verbs()[-1] == "timer cancelled"
        with unchanged(world):
            assert fire(world) is None

    def test_a_repeat_is_answered(self) -> None:
        world = driven()
        world.drive(SetTimer("t"))
        world.drive(CancelTimer("t"))
        with unchanged(world):
            assert world.drive(CancelTimer("t")) is True

    def test_one_that_fired_or_never_was_is_not(self) -> None:
        world = driven()
        world.drive(SetTimer("t"))
        fire(world)
        with unchanged(world):
            assert world.drive(CancelTimer("t")) is False
            assert world.drive(CancelTimer("none")) is False

    def test_only_its_driver_does(self) -> None:
        world = driven()
        world.drive(SetTimer("t"))
        with refused(world, StaleLease):
            world.extend(0, CancelTimer("t"))


class TestFiring:
    @pytest.mark.parametrize(("now", "fires"), [(9, False), (10, True), (11, True)])
    def test_not_before_it_is_due(self, now: int, fires: bool) -> None:
        world = driven()
        world.drive(SetTimer("t", after_ms=10, payload_json="7"))
        world.now_ms += now
        if not fires:
            with unchanged(world):
                assert fire(world) is None
            return
        assert fire(world) == world.timer("t")
        assert world.timer("t").fired
        assert world.entries[-1].subject == f"/tape/timer/fired/redrive/{RUN}"
        assert world.payload()["payload"] == 7

    def test_once(self) -> None:
        world = driven()
        world.drive(SetTimer("t"))
        as_read = world.timer("t")
        fire(world)
        with unchanged(world):
            assert world.change(FireTimer(as_read)) is None

    def test_one_that_is_gone_stays_so(self) -> None:
        world = driven()
        with unchanged(world):
            gone = Timer(RUN, "t", 0, REDRIVE, "null", False, False, 0)
            assert world.change(FireTimer(gone)) is None

    def test_redrive_wakes_a_run_that_waits(self) -> None:
        world = driven()
        world.drive(SetTimer("t"))
        world.wait("timer t")
        fire(world)
        assert (world.run().status, world.run().waiting_on) == (RunStatus.RUNNABLE, "")
        assert world.verbs()[-2:] == ["timer fired", "run runnable"]
        assert world.payload()["because"] == "timer t"

    def test_a_run_about_to_wait_does_not(self) -> None:
        world = driven()
        seen = world.extend(1, SetTimer("t")).run.seq_cursor
        fire(world)
        run = world.release(1, waiting_on="timer t", seen_seq=seen)
        assert run.status == RunStatus.RUNNABLE

    @pytest.mark.parametrize("kind", [RECONCILE, "mine"])
    def test_other_kinds_only_say_so(self, kind: str) -> None:
        world = driven()
        world.drive(SetTimer("t", kind=kind))
        world.wait("gate g")
        fire(world)
        assert world.run().status == RunStatus.WAITING
        assert world.verbs()[-1] == "timer fired"

    @pytest.mark.parametrize("status", [RunStatus.TERMINAL, RunStatus.FAILED, RunStatus.CANCELLED])
    def test_after_the_end_it_is_only_written_down(self, status: RunStatus) -> None:
        world = driven()
        world.drive(TIMEOUT, SetTimer("u"), EndRun(status, "1", ""))
        world.now_ms += 10
        assert fire(world) is not None
        assert fire(world, "u") is not None
        assert world.gate("g") is None
        assert world.run().status == status


class TestTimeoutsOfGates:
    def test_the_gate_opens_and_the_run_wakes(self) -> None:
        world = driven()
        world.drive(AwaitSignal("g", "1"), TIMEOUT)
        world.wait("gate g")
        world.now_ms += 10
        fire(world)
        gate = world.gate("g")
        assert gate is not None
        assert (gate.released, gate.awaited) == (True, True)
        assert (gate.payload_json, gate.resolution_json) == ("1", TIMED_OUT_JSON)
        assert world.run().status == RunStatus.RUNNABLE
        assert world.verbs()[-3:] == ["timer fired", "gate released", "run runnable"]

    def test_a_word_that_came_counts(self) -> None:
        world = driven()
        world.drive(AwaitSignal("g"), TIMEOUT)
        world.change(SendSignal("g", '"yes"'))
        world.wait("something else")
        world.now_ms += 10
        fire(world)
        gate = world.gate("g")
        assert gate is not None
        assert gate.resolution_json == '"yes"'
        assert world.verbs()[-1] == "timer fired"
        assert world.run().status == RunStatus.WAITING

    def test_it_counts_for_a_run_that_comes_later(self) -> None:
        world = driven()
        world.drive(TIMEOUT)
        world.now_ms += 10
        fire(world)
        assert world.drive(AwaitSignal("g")).resolution_json == TIMED_OUT_JSON
        with unchanged(world):
            assert not world.change(SendSignal("g", '"late"')).accepted

    def test_it_counts_for_a_stuck_run_that_goes_on(self) -> None:
        world = driven()
        world.drive(AwaitSignal("g"), TIMEOUT, EndRun(RunStatus.STUCK, "1", ""))
        world.now_ms += 10
        fire(world)
        world.resume()
        world.resume("b")
        assert world.drive(AwaitSignal("g")).resolution_json == TIMED_OUT_JSON


def test_what_they_look_at_and_weigh() -> None:
    timer = Timer(RUN, "t", 0, REDRIVE, "null", False, False, 0)
    own = Need(TIMERS, (RUN, "t"))
    for write in (SetTimer("t"), CancelTimer("t"), FireTimer(timer)):
        assert list(write.needs(RUN)) == [own]
        assert write.size > 0
    timeout = timer._replace(kind=GATE_TIMEOUT, payload_json='{"gate": "g"}')
    assert list(FireTimer(timeout).needs(RUN)) == [own, Need(GATES, (RUN, "g"))]


def test_json_that_is_left_out_is_null() -> None:
    assert SetTimer("t", payload_json="").checked(LIMITS).payload_json == "null"


@pytest.mark.parametrize(
    ("write", "error", "field"),
    [
        (SetTimer(""), InvalidArgument, "timer_id"),
        (SetTimer("\0"), InvalidArgument, "timer_id"),
        (SetTimer("x" * 513), TooLarge, "timer_id"),
        (SetTimer("t", kind="\0"), InvalidArgument, "kind"),
        (SetTimer("t", -1), InvalidArgument, "fire_at_ms"),
        (SetTimer("t", 2**62), InvalidArgument, "fire_at_ms"),
        (SetTimer("t", after_ms=-1), InvalidArgument, "after_ms"),
        (SetTimer("t", after_ms=2**50), InvalidArgument, "after_ms"),
        (SetTimer("t", payload_json="{"), InvalidArgument, "payload_json"),
        (SetTimer("t", kind=GATE_TIMEOUT), InvalidArgument, "payload_json"),
        (SetTimer("t", kind=GATE_TIMEOUT, payload_json="[]"), InvalidArgument, "payload_json"),
        (TIMEOUT._replace(payload_json='{"gate": ""}'), InvalidArgument, "payload_json"),
        (TIMEOUT._replace(payload_json='{"gate": 1}'), InvalidArgument, "payload_json"),
        (TIMEOUT._replace(payload_json='{"gate": "\\u0000"}'), InvalidArgument, "payload_json"),
        (TIMEOUT._replace(payload_json=f'{{"gate": "{"x" * 513}"}}'), TooLarge, "payload_json"),
        (CancelTimer(""), InvalidArgument, "timer_id"),
        (CancelTimer("\ud800"), InvalidArgument, "timer_id"),
    ],
)
def test_bad_input_is_refused_with_its_field(
    write: SetTimer | CancelTimer, error: type[InvalidArgument], field: str
) -> None:
    faulty(write, error, field)


def test_the_timers_reactor_has_read_what_it_fires() -> None:
    timer = Timer(RUN, "t", 0, REDRIVE, "null", False, False, 0)
    assert FireTimer(timer).checked(LIMITS) == FireTimer(timer)
