"""Drainers: who may write, how the cursor moves, and what halting, skipping and resuming leave."""

from typing import Any

import pytest

from tape.errors import InvalidArgument, NotFound, NotHalted, StaleLease, TapeError, TooLarge
from tape.model.drain import (
    AwaitedRun,
    DispatchEvents,
    DispatchFailure,
    HaltDrainer,
    PassProgress,
    Pauses,
)
from tape.model.drainer import (
    DRAINERS,
    AcquireDrainer,
    Attempts,
    Drainer,
    DrainerLease,
    Grant,
    RenewDrainer,
)
from tape.model.drainer_operator import ResumeDrainer, SkipEvent
from tape.model.entry import Entry
from tape.model.event_subscription import (
    EVENT_SUBSCRIPTIONS,
    DeleteEventSubscription,
    NewEventSubscription,
    PutEventSubscription,
)
from tape.model.lease import NewRun
from tape.model.move import EntryPlace, State
from tape.model.run import RUNS, RunName
from tape.settings import DrainerSettings, Limits

LIMITS = Limits()
PAUSES = Pauses(30, 600, 0.0)
NOW, HEAD, TTL = 1_000, 9, 100
NEW = NewEventSubscription("s", "order.*", "desk")
RUN = NewRun(RunName("desk", "event", "s", "event:order.placed:E3"), '{"n":3}')
EVENT = Entry(
    3, "", 0, "event", "/tape/event/recorded/order.placed/_/_", "{}", 1, "ab" * 16, "cd" * 8, "",
    5, "E3", "order.placed", "", "", "", "", 5, "",
)  # fmt: skip


def world(drainer: Drainer | None = None, now_ms: int = NOW) -> State:
    state = State(now_ms, HEAD + 1)
    if drainer is not None:
        state.put_loaded(DRAINERS, [drainer])
    return state


def play(state: State, move: Any) -> Any:
    list(move.needs())
    decision = move.decide(state)
    state.apply(decision)
    return decision.reply(EntryPlace(HEAD + 1, state.now_ms))


def row(state: State) -> Drainer:
    found = state.get(DRAINERS, "d")
    assert found is not None
    return found


def acquire(state: State, owner: str = "me") -> Grant:
    grant = play(state, AcquireDrainer("d", owner, TTL, LIMITS))
    assert isinstance(grant, Grant)
    return grant


def held(**fields: Any) -> tuple[State, DrainerLease]:
    state = world(Drainer("d")._replace(**fields))
    grant = acquire(state)
    return state, DrainerLease("d", grant.drainer.fencing_token, TTL)


def dispatching(
    hold: DrainerLease, passed: PassProgress, *runs: NewRun, **options: Any
) -> DispatchEvents:
    ids = ["X", *(f"R{n}" for n in range(len(runs)))]
    return DispatchEvents(hold, passed, runs, ids=ids, limits=LIMITS, **options)


def halting(
    hold: DrainerLease, passed: PassProgress, error: str = "no", subscription: str = "s"
) -> HaltDrainer:
    failure = DispatchFailure(EVENT, subscription, "r", error)
    return HaltDrainer(hold, passed, failure, ["A", "B", "C"], LIMITS, pauses=PAUSES)


def test_a_lease_is_granted_once_until_it_runs_out() -> None:
    state = world()
    grant = acquire(state)
    assert (grant.is_granted, grant.head, grant.drainer.fencing_token) == (True, HEAD, 1)
    assert row(state).lease_expires_at_ms == NOW + TTL
    again = acquire(state)  # even by the same owner: two passes of one process are two
    assert (again.is_granted, again.drainer) == (False, grant.drainer)
    state.now_ms += TTL - 1
    assert not acquire(state, "other").is_granted
    state.now_ms += 1
    taken = acquire(state, "other")
    assert (taken.is_granted, taken.drainer.fencing_token) == (True, 2)
    assert taken.drainer.lease_owner == "other"


def test_whoever_has_lost_the_lease_writes_nothing() -> None:
    state, hold = held()
    state.now_ms += TTL
    acquire(state, "other")
    before = row(state)
    for move in (
        dispatching(hold, PassProgress(3, "E3", 1, 1), RUN),
        halting(hold, PassProgress(2, "E2")),
        RenewDrainer(hold),
        RenewDrainer(hold, letting_go=True),
    ):
        with pytest.raises(StaleLease, match="is at fencing token 2, this pass has 1"):
            play(state, move)
    assert (row(state), state.entries) == (before, [])
    assert state.get(RUNS, RUN.name.run_id) is None


def test_whoever_has_let_go_has_none() -> None:
    state, hold = held()
    assert play(state, RenewDrainer(hold, letting_go=True)).lease_owner == ""
    with pytest.raises(StaleLease):
        play(state, RenewDrainer(hold))
    assert acquire(state).drainer.fencing_token == 2


def test_a_lease_that_ran_out_is_good_until_somebody_takes_it() -> None:
    state, hold = held()
    state.now_ms += 5 * TTL
    assert play(state, RenewDrainer(hold)).lease_expires_at_ms == NOW + 6 * TTL
    assert not acquire(state, "other").is_granted


def test_runs_and_cursor_move_together() -> None:
    state, hold = held()
    (begun,) = play(state, dispatching(hold, PassProgress(3, "E3", 3, 1), RUN))
    assert not begun.resumed
    drainer = row(state)
    assert (drainer.last_global_seq, drainer.last_event_id) == (3, "E3")
    assert (drainer.events_processed_total, drainer.dispatched_total) == (3, 1)
    assert (drainer.last_drained_at_ms, drainer.lease_owner) == (NOW, "me")
    assert [draft.kind for draft in state.entries] == ["run"]
    (found,) = play(state, dispatching(hold, PassProgress(4, "E4", 1, 0), RUN, letting_go=True))
    assert found.resumed
    assert len(state.entries) == 1
    assert row(state).events_processed_total == 4
    assert row(state).lease_owner == ""


def test_a_cursor_never_goes_back() -> None:
    state, hold = held(last_global_seq=5)
    with pytest.raises(StaleLease, match="is at 5 already"):
        play(state, dispatching(hold, PassProgress(4, "E4")))
    play(state, dispatching(hold, PassProgress(5, "E5")))


def test_a_halt_keeps_what_was_done_before_and_counts_the_attempt() -> None:
    state, hold = held()
    drainer = play(state, halting(hold, PassProgress(2, "E2", 2, 2)))
    assert drainer == row(state)
    assert (drainer.last_global_seq, drainer.last_event_id) == (2, "E2")
    assert (drainer.halted_on_event_id, drainer.halted_on_global_seq) == ("E3", 3)
    assert (drainer.halted_at_ms, drainer.failed_total, drainer.last_error) == (NOW, 1, "no")
    assert (drainer.events_processed_total, drainer.lease_owner) == (2, "")
    assert drainer.attempts == Attempts("E3", 3, {"s": 1})
    failed, halted = state.entries
    assert (failed.event_type, failed.caused_by) == ("workflow.dispatch_failed", "E3")
    assert (failed.trace_id, failed.parent_span_id) == ("ab" * 16, "cd" * 8)
    assert (halted.subject, halted.payload_json) == ("/tape/drainer/halted/d", failed.payload_json)


def test_a_failure_is_told_below_the_parent_of_an_event_that_has_no_span() -> None:
    state, hold = held()
    event = EVENT._replace(span_id="", parent_span_id="ef" * 8)
    failure = DispatchFailure(event, "s", "r", "no")
    play(
        state,
        HaltDrainer(hold, PassProgress(2, "E2"), failure, ["A", "B", "C"], LIMITS, pauses=PAUSES),
    )
    assert state.entries[0].parent_span_id == "ef" * 8


def test_attempts_are_counted_for_each_subscription_and_event() -> None:
    state, hold = held()
    for number, subscription in enumerate(("s", "t", "s"), 1):
        play(state, halting(hold, PassProgress(2, "E2"), subscription=subscription))
        assert row(state).failed_total == number
        hold = hold._replace(fencing_token=acquire(state).drainer.fencing_token)
    attempts = row(state).attempts
    assert attempts.failed == {"s": 2, "t": 1}
    assert [attempts.next_for("E3", who) for who in ("s", "t", "u")] == [3, 2, 1]
    assert attempts.next_for("E4", "s") == 1
    assert attempts.counted("E4", 4, "t") == Attempts("E4", 4, {"t": 1})


def halt_again(state: State, error: str = "no") -> Drainer:
    state.now_ms += 1_000
    hold = DrainerLease("d", acquire(state).drainer.fencing_token, TTL)
    drainer = play(state, halting(hold, PassProgress(2, "E2"), error))
    assert isinstance(drainer, Drainer)
    return drainer


def test_a_retry_keeps_since_when_it_is_halted_and_pauses_twice_as_long() -> None:
    state, hold = held()
    pauses = [play(state, halting(hold, PassProgress(2, "E2"))).next_try_at_ms - NOW]
    for attempt in range(2, 9):
        drainer = halt_again(state)
        assert (drainer.halted_at_ms, drainer.attempts.total) == (NOW, attempt)
        pauses.append(drainer.next_try_at_ms - state.now_ms)
    assert pauses == [30, 60, 120, 240, 480, 600, 600, 600]
    assert [Pauses(1_000, 9_000, jitter).after(2) for jitter in (0.0, 0.5, 1.0)] == [
        2_000, 1_800, 1_600,
    ]  # fmt: skip
    assert Pauses(1_000, 9_000, 0.0).after(10**6) == 9_000


def test_an_event_that_fails_for_long_is_not_tried_often() -> None:
    """With the settings as they are, in 17 minutes and in a day."""
    settings = DrainerSettings()
    pauses = Pauses(int(settings.retry_s * 1000), int(settings.retry_most_s * 1000), jitter=1.0)
    tries, now_ms, counted = 0, 0, []
    for end_ms in (17 * 60_000, 24 * 3_600_000):
        while now_ms < end_ms:
            tries += 1
            now_ms += pauses.after(tries)
        counted.append(tries)
    assert counted == [6, 184]


def test_a_retry_is_told_only_with_another_reason() -> None:
    state, hold = held()
    play(state, halting(hold, PassProgress(2, "E2"), "run 'a' is failed: no"))
    assert len(state.entries) == 2
    for run in ("b", "c"):
        assert halt_again(state, f"run '{run}' is failed: no").last_error.startswith(f"run '{run}'")
    assert len(state.entries) == 2
    halt_again(state, "run 'd' is failed: never")
    assert len(state.entries) == 4
    assert row(state).failed_total == 4


def test_what_fails_after_a_resume_is_told_and_since_when_it_failed_first() -> None:
    state, hold = held()
    play(state, halting(hold, PassProgress(2, "E2")))
    resumed = play(state, ResumeDrainer("d", "me", "S", LIMITS))
    assert (resumed.next_try_at_ms, resumed.attempts.total) == (0, 1)
    drainer = halt_again(state)
    assert (drainer.halted_at_ms, drainer.attempts.total) == (NOW, 2)
    assert [entry.subject.split("/")[3] for entry in state.entries] == [
        "recorded", "halted", "resumed", "recorded", "halted",
    ]  # fmt: skip


def waiting(state: State, hold: DrainerLease, run_id: str) -> Drainer:
    play(state, dispatching(hold, PassProgress(2, "E2"), RUN, waits_for=AwaitedRun(run_id, EVENT)))
    return row(state)


def test_a_drainer_that_waits_says_for_which_run_since_when() -> None:
    state, hold = held()
    drainer = waiting(state, hold, "r")
    assert drainer.is_waiting
    assert (drainer.waiting_on_run_id, drainer.waiting_on_event_id) == ("r", "E3")
    assert (drainer.waiting_on_global_seq, drainer.waiting_since_ms) == (3, NOW)
    state.now_ms += 50
    assert waiting(state, hold, "r").waiting_since_ms == NOW
    assert waiting(state, hold, "other").waiting_since_ms == NOW + 50
    play(state, dispatching(hold, PassProgress(3, "E3", 1, 1)))
    assert row(state) == row(state).not_waiting()


def test_what_an_older_version_has_passed_is_not_waited_for() -> None:
    state, hold = held()
    drainer = waiting(state, hold, "r")
    assert not drainer._replace(last_global_seq=3).is_waiting
    assert not play(state, halting(hold, PassProgress(2, "E2"))).is_waiting


def test_a_skip_moves_past_the_event_whose_run_is_waited_for() -> None:
    state, hold = held()
    waiting(state, hold, "r")
    with pytest.raises(NotHalted, match="waits with event 'E3', not 'E4'"):
        play(state, skipping("E4"))
    drainer = play(state, skipping())
    assert (drainer.last_global_seq, drainer.skipped_total, drainer.is_waiting) == (3, 1, False)
    assert '"run_id":"r"' in state.entries[-1].payload_json
    with pytest.raises(StaleLease):
        play(state, dispatching(hold, PassProgress(3, "E3", 1, 1)))


def test_past_the_event_that_failed_the_drainer_goes_on() -> None:
    state, hold = held()
    play(state, halting(hold, PassProgress(2, "E2")))
    hold = hold._replace(fencing_token=acquire(state).drainer.fencing_token)
    play(state, dispatching(hold, PassProgress(2, "E2")))
    assert row(state).halted_on_event_id == "E3"
    assert row(state).attempts_json
    play(state, dispatching(hold, PassProgress(3, "E3", 1, 1)))
    drainer = row(state)
    assert (drainer.halted_on_event_id, drainer.halted_at_ms, drainer.attempts_json) == ("", 0, "")
    assert state.entries[-1].subject == "/tape/drainer/resumed/d"


def test_an_error_is_kept_as_a_database_can_have_it() -> None:
    state, hold = held()
    drainer = play(state, halting(hold, PassProgress(0, ""), error="a\0b\ud800" + "x" * 9_999))
    assert drainer.last_error.startswith("a\\0b?x")
    assert len(drainer.last_error) == 2_000


def halted_world() -> State:
    state, hold = held()
    play(state, halting(hold, PassProgress(2, "E2", 2)))
    return state


def skipping(event_id: str = "E3", reason: str = "why", by: str = "me") -> SkipEvent:
    return SkipEvent("d", event_id, "S", LIMITS, reason=reason, by=by)


def test_a_skip_moves_past_the_halted_event_and_takes_the_lease_away() -> None:
    state = halted_world()
    token = acquire(state).drainer.fencing_token
    with pytest.raises(NotHalted):
        play(state, skipping("E4"))
    drainer = play(state, skipping())
    assert (drainer.last_global_seq, drainer.last_event_id, drainer.skipped_total) == (3, "E3", 1)
    assert (drainer.halted_on_event_id, drainer.attempts_json) == ("", "")
    assert drainer.events_processed_total == 2
    with pytest.raises(StaleLease):
        play(state, dispatching(DrainerLease("d", token, TTL), PassProgress(3, "E3", 1, 1)))
    assert state.entries[-1].subject == "/tape/drainer/skipped/d"
    with pytest.raises(NotHalted):
        play(state, skipping())


def test_a_resume_clears_the_halt_and_forgets_no_attempt() -> None:
    state = halted_world()
    drainer = play(state, ResumeDrainer("d", "me", "S", LIMITS))
    assert (drainer.halted_on_event_id, drainer.last_global_seq) == ("", 2)
    assert drainer.attempts.next_for("E3", "s") == 2
    with pytest.raises(NotHalted):
        play(state, ResumeDrainer("d", "me", "S", LIMITS))


def test_nobody_can_help_a_drainer_that_is_not_there() -> None:
    for move in (skipping(), ResumeDrainer("d", "me", "S", LIMITS)):
        with pytest.raises(NotFound):
            play(world(), move)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: AcquireDrainer("", "me", TTL, LIMITS), "drainer_id"),
        (lambda: AcquireDrainer("d", "", TTL, LIMITS), "lease_owner"),
        (lambda: AcquireDrainer("d", "me", 0, LIMITS), "lease_ttl_ms"),
        (lambda: skipping(event_id=""), "event_id"),
        (lambda: skipping(reason=""), "reason"),
        (lambda: skipping(reason="x" * 513), "reason"),
        (lambda: skipping(by="\0"), "by"),
        (lambda: ResumeDrainer("\0", "", "S", LIMITS), "drainer_id"),
    ],
)
def test_bad_input_is_refused_with_its_field(make: Any, field: str) -> None:
    with pytest.raises(InvalidArgument) as fault:
        make()
    assert fault.value.field == field


def put(state: State, **fields: Any) -> Any:
    return play(state, PutEventSubscription(NEW._replace(**fields), "P", LIMITS))


def test_a_subscription_is_kept_and_told() -> None:
    state = world()
    kept = put(state)
    assert kept == (*NEW[:1], "workflow_runner", "order.*", "desk", "", "", True, True, NOW, "")
    assert state.entries[0].subject == "/tape/drainer/subscribed/workflow_runner/s"
    state.now_ms += 1
    assert put(state) == kept
    assert len(state.entries) == 1  # nothing has changed
    changed = put(state, enabled=False)
    assert (changed.enabled, changed.created_at_ms) == (False, NOW)
    assert len(state.entries) == 2
    assert play(state, DeleteEventSubscription("s", "P", LIMITS)) is True
    assert state.entries[-1].subject == "/tape/drainer/unsubscribed/workflow_runner/s"
    assert state.get(EVENT_SUBSCRIPTIONS, "s") is None
    assert play(state, DeleteEventSubscription("s", "P", LIMITS)) is False
    assert len(state.entries) == 3


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"subscription_id": ""}, "subscription_id"),
        ({"workflow_type": ""}, "workflow_type"),
        ({"drainer_id": ""}, "drainer_id"),
        ({"event_type_glob": "a?"}, "event_type_glob"),
        ({"input_mapper": '{"a":"b"}'}, "input_mapper.a"),
        ({"subscription_id": "ä" * 200, "drainer_id": "ä" * 200}, "subject"),
    ],
)
def test_a_subscription_that_could_never_work_is_refused(
    fields: dict[str, str], field: str
) -> None:
    with pytest.raises(TapeError) as fault:
        put(world(), **fields)
    assert isinstance(fault.value, InvalidArgument)
    assert fault.value.field == field
    if field == "subject":
        assert isinstance(fault.value, TooLarge)
