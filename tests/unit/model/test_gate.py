"""Gates: come to by the run, opened from outside, in whichever order."""

import pytest

from tape.errors import InvalidArgument, StaleLease, TooLarge
from tape.model.gate import GATES, AwaitSignal, Gate, SendSignal
from tape.model.move import Need
from tape.model.obligation import (
    ClaimObligation,
    ObligationKey,
    RegisterCompensation,
    ResolveObligation,
)
from tape.model.obligation import ObligationStatus as Owed
from tape.model.run import RunStatus
from tape.model.run_end import CancelRun, EndRun
from tests.unit.model.run_world import LIMITS, RUN, TTL, driven, faulty, refused, unchanged


class TestComingToIt:
    def test_it_is_written_down(self) -> None:
        world = driven()
        gate = world.drive(AwaitSignal("approve", '{"sum": 7}'))
        assert gate == Gate(RUN, "approve", True, False, '{"sum": 7}', "null")
        assert gate == world.gate("approve")
        assert world.entries[-1].subject == f"/tape/gate/waiting/approve/{RUN}"
        assert world.payload() == {"gate_name": "approve", "payload": {"sum": 7}}
        assert world.run().status == RunStatus.RUNNING

    def test_coming_again_changes_nothing(self) -> None:
        world = driven()
        gate = world.drive(AwaitSignal("g", "1"))
        with unchanged(world):
            assert world.drive(AwaitSignal("g", "2")) == gate
        world.change(SendSignal("g", "3"))
        with unchanged(world):
            assert world.drive(AwaitSignal("g", "1")).resolution_json == "3"

    def test_a_word_that_came_early_is_there(self) -> None:
        world = driven()
        world.change(SendSignal("g", '"yes"'))
        gate = world.drive(AwaitSignal("g", "1"))
        assert gate == Gate(RUN, "g", True, True, "1", '"yes"')
        assert world.verbs()[1:] == ["gate released", "gate waiting"]

    def test_only_its_driver_comes_to_it(self) -> None:
        world = driven()
        with refused(world, StaleLease):
            world.extend(2, AwaitSignal("g"))

    def test_one_gate_is_not_another(self) -> None:
        world = driven()
        world.change(SendSignal("g"))
        assert not world.drive(AwaitSignal("h")).released


class TestTheWord:
    def test_it_wakes_a_run_that_waits(self) -> None:
        world = driven()
        world.drive(AwaitSignal("g", "1"))
        world.wait("gate g")
        told = world.change(SendSignal("g", '"yes"'))
        assert told == (True, world.run())
        assert (world.run().status, world.run().waiting_on) == (RunStatus.RUNNABLE, "")
        assert world.gate("g") == Gate(RUN, "g", True, True, "1", '"yes"')
        assert world.verbs()[-2:] == ["gate released", "run runnable"]
        assert world.payload(-2) == {"gate_name": "g", "resolution": "yes"}
        assert world.payload()["because"] == "gate g"
        assert world.entries[-2].subject == f"/tape/gate/released/g/{RUN}"

    def test_a_run_that_is_driven_goes_on_and_sees_it_by_its_number(self) -> None:
        world = driven()
        before = world.run()
        told = world.change(SendSignal("g"))
        assert told == (True, before._replace(seq_cursor=2))
        assert world.run() == told.run

    def test_one_that_nobody_drives_stays_runnable(self) -> None:
        world = driven()
        world.release(1)
        assert world.change(SendSignal("g")).run.status == RunStatus.RUNNABLE
        assert world.verbs()[-1] == "gate released"

    def test_any_word_wakes_it_whatever_it_waits_for(self) -> None:
        world = driven()
        world.wait("gate g")
        assert world.change(SendSignal("h")).run.status == RunStatus.RUNNABLE

    def test_the_first_counts(self) -> None:
        world = driven()
        world.change(SendSignal("g", "1"))
        with unchanged(world):
            assert world.change(SendSignal("g", "2")) == (False, world.run())
            assert world.change(SendSignal("g", "1")) == (False, world.run())

    @pytest.mark.parametrize("status", [RunStatus.TERMINAL, RunStatus.FAILED, RunStatus.CANCELLED])
    def test_a_run_that_has_ended_takes_none(self, status: RunStatus) -> None:
        world = driven()
        world.drive(EndRun(status, "1", ""))
        with unchanged(world):
            assert world.change(SendSignal("g")) == (False, world.run())

    def test_nor_does_one_that_unwinds_or_is_stuck_in_it(self) -> None:
        world = driven()
        key = ObligationKey("e", "undo")
        world.drive(RegisterCompensation(*key))
        world.drive(EndRun(RunStatus.FAILED, "1", ""))
        with unchanged(world):
            assert not world.change(SendSignal("g")).accepted
        token = world.change(ClaimObligation(key, "c", TTL)).claim_token
        world.change(ResolveObligation(key, token, Owed.STUCK, "1", ""))
        with unchanged(world):
            assert not world.change(SendSignal("g")).accepted

    def test_it_is_kept_for_a_stuck_run_that_may_go_on(self) -> None:
        world = driven()
        world.drive(AwaitSignal("g"))
        world.drive(EndRun(RunStatus.STUCK, "1", ""))
        told = world.change(SendSignal("g", "7"))
        assert (told.accepted, told.run.status) == (True, RunStatus.STUCK)
        world.resume()
        world.resume("b")
        assert world.drive(AwaitSignal("g")).resolution_json == "7"

    def test_one_that_is_to_be_cancelled_takes_it(self) -> None:
        world = driven()
        world.change(CancelRun("enough", ""))
        assert world.change(SendSignal("g")).accepted


def test_what_they_look_at_and_weigh() -> None:
    for write in (AwaitSignal("g", "123"), SendSignal("g", "123")):
        assert list(write.needs(RUN)) == [Need(GATES, (RUN, "g"))]
        assert write.size == 3


def test_json_that_is_left_out_is_null() -> None:
    assert AwaitSignal("g", "").checked(LIMITS).payload_json == "null"
    assert SendSignal("g", "").checked(LIMITS).resolution_json == "null"


@pytest.mark.parametrize(
    ("write", "error", "field"),
    [
        (AwaitSignal(""), InvalidArgument, "gate_name"),
        (AwaitSignal("\0"), InvalidArgument, "gate_name"),
        (AwaitSignal("x" * 513), TooLarge, "gate_name"),
        (AwaitSignal("g", "{"), InvalidArgument, "payload_json"),
        (SendSignal(""), InvalidArgument, "gate_name"),
        (SendSignal("\ud800"), InvalidArgument, "gate_name"),
        (SendSignal("x" * 513), TooLarge, "gate_name"),
        (SendSignal("g", "{"), InvalidArgument, "resolution_json"),
    ],
)
def test_bad_input_is_refused_with_its_field(
    write: AwaitSignal | SendSignal, error: type[InvalidArgument], field: str
) -> None:
    faulty(write, error, field)
