"""Beginning a run: new, found, or as the child of another."""

from dataclasses import replace
from typing import Any

import pytest

from tape.errors import (
    InvalidArgument,
    NotFound,
    RunCancelled,
    StaleLease,
    TooLarge,
)
from tape.model.decision import RecordDecision
from tape.model.entry import Trace
from tape.model.lease import (
    BeginRun,
    Begun,
    HeartbeatRun,
    NewRun,
    ReleaseRun,
    ResumeRun,
    Taker,
)
from tape.model.run import RUNS, Run, RunName, RunStatus
from tape.model.run_end import CancelRun, EndRun
from tests.unit.model.run_world import (
    CHILD,
    CHILD_NAME,
    LIMITS,
    NAME,
    NOW,
    RUN,
    TTL,
    World,
    driven,
    faulty,
    names,
    refused,
    unchanged,
    with_child,
)

TRACE = Trace("a" * 32, "b" * 16, "c" * 16)


class TestBeginning:
    def test_a_new_run_is_held_by_whoever_begins_it(self) -> None:
        world = World()
        begun = world.begin("a", pool="p", app_version="v1", input_json='{"x": 1}')
        assert begun.run == Run(
            RUN, *NAME, "p", RunStatus.RUNNING, 1, "a", "agent", NOW + TTL, 1, NOW, 0, "v1"
        )
        assert (begun.resumed, begun.fencing_token) == (False, 1)
        assert world.run() == begun.run
        assert world.entries[0].subject == f"/tape/run/running/app/user/session/{RUN}"
        assert world.payload() == {
            **NAME._asdict(), "pool": "p", "input": {"x": 1}, "app_version": "v1",
            "parent_run_id": "", "owner": "a", "reactor": "agent", "fencing_token": 1,
            "lease_expires_at_ms": NOW + TTL,
        }  # fmt: skip

    def test_begun_for_whoever_comes_it_is_held_by_nobody(self) -> None:
        world = World()
        begun = world.begin("")
        assert begun.run == Run(
            RUN, *NAME, "shared", RunStatus.RUNNABLE, 1, "", "", 0, 0, NOW, 0, ""
        )
        assert (begun.resumed, begun.fencing_token) == (False, 0)
        assert world.verbs() == ["run runnable"]
        assert "owner" not in world.payload()
        with refused(world, StaleLease):
            world.extend(0, RecordDecision(0, "m"))
        with refused(world, StaleLease):
            world.heartbeat(0)
        with refused(world, StaleLease):
            world.release(0)

    def test_the_empty_pool_is_the_shared_one(self) -> None:
        assert World().begin(pool="").run.pool == "shared"

    def test_its_trace_is_on_its_entry(self) -> None:
        world = World()
        world.begin(trace=TRACE)
        draft = world.entries[0]
        assert (draft.trace_id, draft.span_id, draft.parent_span_id) == TRACE

    def test_one_that_is_held_is_shown_and_not_handed_out(self) -> None:
        world = driven()
        world.now_ms += TTL - 1
        with unchanged(world):
            begun = world.begin("b")
        assert begun == Begun(world.run(), True, 0)

    @pytest.mark.parametrize("owner", ["a", "b"])
    def test_one_whose_lease_ran_out_is_taken_over(self, owner: str) -> None:
        world = driven()
        world.now_ms += TTL
        begun = world.begin(owner)
        assert (begun.resumed, begun.fencing_token) == (True, 2)
        assert (world.run().lease_owner, world.run().lease_expires_at_ms) == (owner, NOW + 2 * TTL)
        assert world.verbs() == ["run running", "run running"]
        assert world.payload()["fencing_token"] == 2

    def test_its_own_holder_gets_another_token_and_the_old_one_is_stale(self) -> None:
        world = driven()
        assert world.begin("a").fencing_token == 2
        with refused(world, StaleLease):
            world.extend(1, RecordDecision(0, "m"))

    def test_finding_it_for_nobody_changes_nothing(self) -> None:
        world = World()
        world.begin("")
        with unchanged(world):
            assert world.begin("") == Begun(world.run(), True, 0)

    @pytest.mark.parametrize("status", [RunStatus.TERMINAL, RunStatus.STUCK, RunStatus.FAILED])
    def test_one_that_has_ended_is_shown(self, status: RunStatus) -> None:
        world = driven()
        world.drive(EndRun(status, "1", ""))
        with unchanged(world):
            assert world.begin("a") == Begun(world.run(), True, 0)

    def test_one_that_waits_is_taken_up(self) -> None:
        world = driven()
        world.wait()
        begun = world.begin("b")
        assert begun.fencing_token == 2
        assert (begun.run.status, begun.run.waiting_on) == (RunStatus.RUNNING, "")


class TestChildren:
    def test_a_child_is_begun_under_its_parents_token(self) -> None:
        world = driven()
        begun = world.begin("", CHILD_NAME, parent=RUN, parent_token=1)
        assert begun.run.parent_run_id == RUN
        assert world.payload()["parent_run_id"] == RUN

    @pytest.mark.parametrize("token", [0, 2])
    def test_a_stale_parent_begins_none(self, token: int) -> None:
        world = driven()
        with refused(world, StaleLease):
            world.begin("", CHILD_NAME, parent=RUN, parent_token=token)

    def test_nor_does_one_that_has_ended_or_let_go(self) -> None:
        for end in (lambda w: w.drive(EndRun(RunStatus.TERMINAL, "1", "")), World.wait):
            world = driven()
            end(world)
            with refused(world, StaleLease):
                world.begin("", CHILD_NAME, parent=RUN, parent_token=1)

    def test_nor_one_that_is_to_be_cancelled(self) -> None:
        world = driven()
        world.change(CancelRun("enough", ""))
        with refused(world, RunCancelled, match="enough"):
            world.begin("", CHILD_NAME, parent=RUN, parent_token=1)

    def test_the_parent_must_be_there(self) -> None:
        world = driven()
        with refused(world, NotFound):
            world.begin("", CHILD_NAME, parent="nobody", parent_token=1)

    def test_beginning_it_again_finds_it(self) -> None:
        world = with_child()
        with unchanged(world):
            again = world.begin("", CHILD_NAME, parent=RUN, parent_token=1)
        assert (again.resumed, again.run.run_id) == (True, CHILD)

    def test_whoever_does_not_name_its_parent_finds_it_too(self) -> None:
        world = driven()
        world.begin("", CHILD_NAME, parent=RUN, parent_token=1)
        begun = world.begin("b", CHILD_NAME)
        assert (begun.fencing_token, begun.run.parent_run_id) == (1, RUN)

    def test_a_stale_parent_takes_no_lease_of_a_child(self) -> None:
        world = driven()
        world.begin("", CHILD_NAME, parent=RUN, parent_token=1)
        world.begin("a")
        with refused(world, StaleLease):
            world.begin("a", CHILD_NAME, parent=RUN, parent_token=1)
        assert world.begin("a", CHILD_NAME, parent=RUN, parent_token=2).fencing_token == 1

    @pytest.mark.parametrize("parent", ["", RUN])
    def test_a_run_has_one_parent_only_which_it_tells_of_its_end(self, parent: str) -> None:
        world = driven()
        other = RunName("app", "user", "session", "other")
        world.begin("o", other)
        world.begin("", CHILD_NAME, parent=parent, parent_token=1)
        with refused(world, InvalidArgument, "parent_run_id"):
            world.begin("", CHILD_NAME, parent=other.run_id, parent_token=1)


class TestNames:
    def test_a_run_has_the_id_of_its_name(self) -> None:
        assert NAME.run_id == RunName("app", "user", "session", "1").run_id
        assert driven().run().name == NAME

    def test_different_names_have_different_ids(self) -> None:
        names = [
            RunName("a", "b", "c", "d"),
            RunName("ab", "", "c", "d"),
            RunName("a", "", "b", "cd"),
            RunName("a", "b", "c", ""),
            RunName("a", "b", "", "c"),
        ]
        assert len({name.run_id for name in names}) == len(names)

    def test_what_each_move_looks_at(self) -> None:
        child = NewRun(CHILD_NAME, parent_run_id=RUN)
        begin = BeginRun(child, Taker(), "id", LIMITS)
        assert names(begin.needs()) == [(RUNS, CHILD), (RUNS, RUN)]
        for move in (
            BeginRun(NewRun(NAME), Taker(), "id", LIMITS),
            ResumeRun(RUN, Taker(), "id", LIMITS),
            HeartbeatRun(RUN, 1, 0, LIMITS),
            ReleaseRun(RUN, 1, "id", LIMITS),
        ):
            assert names(move.needs()) == [(RUNS, RUN)]
            assert move.weight > 0


class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "error", "field"),
        [
            ({"name": NAME._replace(app_name="")}, InvalidArgument, "app_name"),
            ({"name": NAME._replace(app_name="\0")}, InvalidArgument, "app_name"),
            ({"name": NAME._replace(user_id="\0")}, InvalidArgument, "user_id"),
            ({"name": NAME._replace(session_id="\ud800")}, InvalidArgument, "session_id"),
            ({"name": NAME._replace(invocation_id="x" * 513)}, TooLarge, "invocation_id"),
            ({"pool": "\0"}, InvalidArgument, "pool"),
            ({"app_version": "\0"}, InvalidArgument, "app_version"),
            ({"parent_run_id": "\0"}, InvalidArgument, "parent_run_id"),
            ({"input_json": "{"}, InvalidArgument, "input_json"),
            ({"trace": Trace("a")}, InvalidArgument, "trace_id"),
        ],
    )
    def test_of_a_new_run(
        self, fields: dict[str, Any], error: type[InvalidArgument], field: str
    ) -> None:
        faulty(NewRun(**({"name": NAME} | fields)), error, field)

    @pytest.mark.parametrize(("room", "fits"), [(0, True), (1, False)])
    def test_every_subject_of_a_run_must_fit(self, room: int, fits: bool) -> None:
        longest = f"/tape/run/cancel_requested/app/user/session/{RUN}"
        limits = replace(LIMITS, subject_bytes=len(longest) - room)
        if fits:
            NewRun(NAME).checked(limits)
            return
        with pytest.raises(TooLarge) as refusal:
            NewRun(NAME).checked(limits)
        assert refusal.value.field == "subject"
