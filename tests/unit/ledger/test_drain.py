"""Drainers: strict order, a halt at the first failure, nothing skipped, nothing done twice."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tape.cli.drainers import held_up_words
from tape.errors import InvalidArgument, NotFound, NotHalted
from tape.model.drainer import DISPATCH_FAILED, DRAINERS
from tape.model.event import NewEvent
from tape.model.event_subscription import DEFAULT_DRAINER, NewEventSubscription
from tape.model.move import EntryPlace, save
from tape.model.run import RUNS, Run, RunName, RunStatus
from tape.ports.ledger import RecentQuery
from tape.ports.runs import RunQuery
from tape.programs.connect import open_bus
from tape.programs.store_gauges import refresh_metrics
from tape.telemetry import metrics
from tests.conformance.playing import SaveRows, play
from tests.conformance.reacting import until
from tests.unit.ledger.draining import QUICK, SPAN_ID, TRACE_ID, Desk, a_desk

EVENTS = 50
PATIENT = replace(QUICK, drainers=replace(QUICK.drainers, lease_s=60))
"""A third of its leases is longer than busy cores take for a pass."""

_NUMBERS = list(range(70))
TOO_COSTLY = f"{_NUMBERS}.all(a, {_NUMBERS}.all(b, {_NUMBERS}.all(c, a + b + c >= 0)))"


async def halts_at(desk: Desk, k: int) -> None:
    """One drainer of its own fails at event k until it is mended."""
    who = f"d{k}"
    desk.broken.add((who, k))
    for attempt in (1, 2):
        report = await desk.drain_all(who)
        drainer = await desk.drainer(who)
        assert report.halted_on_event_id == drainer.halted_on_event_id
        assert drainer.halted_on_global_seq == k
        assert drainer.attempts.failed == {who: attempt}
        assert (drainer.events_processed_total, drainer.failed_total) == (k - 1, attempt)
        assert drainer.last_global_seq == (k - 1)
        assert desk.done_by(who) == list(range(1, k))
    desk.broken.discard((who, k))
    report = await desk.drain_all(who)
    assert (report.halted_on_event_id, report.error) == ("", "")
    assert desk.done_by(who) == list(range(1, EVENTS + 1))
    drainer = await desk.drainer(who)
    assert (drainer.dispatched_total, drainer.failed_total) == (EVENTS, 2)
    assert drainer.events_processed_total >= EVENTS  # with those that tell of failures


async def test_a_failure_at_any_event_halts_there_and_goes_on_when_mended(store_url: str) -> None:
    chosen = range(1, EVENTS + 1) if store_url.startswith("sqlite") else (1, 25, EVENTS)
    async with a_desk(store_url) as desk:
        await desk.record(*range(1, EVENTS + 1))
        for k in chosen:
            await desk.subscribe(f"d{k}", drainer_id=f"d{k}")
        await asyncio.gather(*(halts_at(desk, k) for k in chosen))
        assert len(desk.acts) == EVENTS * len(chosen)
        assert len(desk.tried) == (EVENTS + 2) * len(chosen)


@pytest.fixture
async def desk(store_url: str) -> AsyncIterator[Desk]:
    async with a_desk(store_url) as desk:
        yield desk


@pytest.fixture
async def patient_desk(store_url: str) -> AsyncIterator[Desk]:
    async with a_desk(store_url, PATIENT) as desk:
        yield desk


async def test_who_succeeded_is_not_asked_again_when_another_fails(desk: Desk) -> None:
    for who in ("a", "b", "c"):
        await desk.subscribe(who)
    await desk.record(1, 2)
    desk.broken = {("b", 1)}
    for attempt in (1, 2, 3):
        report = await desk.bus.ledger.drain()
        assert (report.processed, report.dispatched) == (0, 0)
        assert "cannot do ('b', 1)" in report.error
        assert desk.acts == [("a", 1)]
        assert (await desk.drainer(DEFAULT_DRAINER)).attempts.failed == {"b": attempt}
    desk.broken.clear()
    report = await desk.bus.ledger.drain()
    # With the two events there was one that told of the failure, and matched nothing.
    assert (report.processed, report.dispatched) == (3, 6)
    assert desk.acts == [(who, n) for n in (1, 2) for who in ("a", "b", "c")]
    assert (await desk.drainer(DEFAULT_DRAINER)).attempts_json == ""


async def test_runs_are_named_after_subscription_event_and_attempt(desk: Desk) -> None:
    await desk.subscribe("a")
    (event,) = await desk.record(1)
    desk.broken = {("a", 1)}
    for _ in range(2):
        await desk.bus.ledger.drain()
    desk.broken.clear()
    report = await desk.bus.ledger.drain()
    name = f"event:order.placed:{event.event_id}"
    statuses = []
    for told in (name, f"{name}~2", f"{name}~3"):
        run = await desk.bus.runs.get_run(RunName("desk", "event", "a", told).run_id)
        assert run is not None
        statuses.append(RunStatus(run.status))
        first, *_ = await desk.bus.runs.read_run(run.run_id, 0)
        assert (first.trace_id, first.parent_span_id) == (TRACE_ID, SPAN_ID)
    assert statuses == [RunStatus.FAILED, RunStatus.FAILED, RunStatus.TERMINAL]
    (triggered,) = report.triggered
    last = RunName("desk", "event", "a", f"{name}~3").run_id
    assert triggered == (event.event_id, event.global_seq, "a", last)


async def test_a_failure_is_told_on_the_journal(desk: Desk) -> None:
    await desk.subscribe("a")
    (event,) = await desk.record(1)
    desk.broken = {("a", 1)}
    report = await desk.bus.ledger.drain()
    found = (await desk.bus.ledger.recent(RecentQuery(limit=2))).entries
    halted, failed = found
    assert halted.subject == f"/tape/drainer/halted/{DEFAULT_DRAINER}"
    assert failed.event_type == DISPATCH_FAILED
    assert failed.subject == f"/tape/event/recorded/{DISPATCH_FAILED}/drainer/{DEFAULT_DRAINER}"
    assert (failed.caused_by, failed.trace_id) == (event.event_id, TRACE_ID)
    assert failed.payload == {
        "drainer": DEFAULT_DRAINER,
        "subscription": "a",
        "event_id": event.event_id,
        "event_type": "order.placed",
        "global_seq": event.global_seq,
        "attempt": 1,
        "run_id": halted.payload["run_id"],
        "error": report.error,
    }
    desk.broken.clear()
    await desk.bus.ledger.drain()
    (resumed,) = (await desk.bus.ledger.recent(RecentQuery(prefix="/tape/drainer/resumed"))).entries
    assert resumed.payload == {
        "drainer": DEFAULT_DRAINER, "event_id": event.event_id, "by": "", "how": "dispatched",
    }  # fmt: skip


async def test_a_catch_all_is_not_fed_its_own_failures(desk: Desk) -> None:
    await desk.subscribe("all", event_type_glob="*", drainer_id="all")
    await desk.subscribe("told", event_type_glob="workflow.*", drainer_id="told", input_mapper="")
    await desk.record(1, 2)
    desk.broken = {("all", 1)}
    for _ in range(3):
        await desk.bus.ledger.drain("all")
    desk.broken.clear()
    assert (await desk.drain_all("all")).halted_on_event_id == ""
    assert desk.done_by("all") == [1, 2]
    report = await desk.bus.ledger.drain("told", await_s=0)
    assert report.waiting_on_run_id  # it was given the one that tells of the halt


async def test_a_run_that_takes_long_is_waited_for_by_the_next_pass(desk: Desk) -> None:
    desk.gate.clear()
    await desk.subscribe("a")
    await desk.record(1, 2)
    waiting = {(await desk.bus.ledger.drain(await_s=0.01)).waiting_on_run_id for _ in range(3)}
    assert len(waiting) == 1
    assert waiting != {""}
    assert (await desk.drainer(DEFAULT_DRAINER)).failed_total == 0
    desk.gate.set()
    report = await desk.bus.ledger.drain()
    assert (report.processed, report.waiting_on_run_id, report.more) == (2, "", False)
    assert desk.acts == [("a", 1), ("a", 2)]


async def test_a_run_is_triggered_by_the_one_pass_that_passes_its_event(desk: Desk) -> None:
    desk.gate.clear()
    await desk.subscribe("a")
    await desk.subscribe("b")
    events = await desk.record(1, 2)
    desk.broken = {("b", 1)}
    reports = [await desk.bus.ledger.drain(await_s=0.01) for _ in range(2)]
    desk.gate.set()
    reports += [await desk.bus.ledger.drain() for _ in range(2)]  # both halt at the second of them
    assert [report.triggered for report in reports] == [()] * 4
    desk.broken.clear()
    while True:
        reports.append(await desk.bus.ledger.drain(limit=1))
        if not reports[-1].more:
            break
    told = [triggered for report in reports for triggered in report.triggered]
    assert [(run.global_seq, run.subscription_id) for run in told] == [
        (event.global_seq, who) for event in events for who in ("a", "b")
    ]
    assert all(len(report.triggered) == report.dispatched for report in reports)


async def test_a_drainer_that_waits_says_for_whom_and_can_be_moved_on(
    patient_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape.ledger.drain.QUICK_S", 0.0)
    desk = patient_desk
    await desk.subscribe("a", workflow_type="nobody")
    await desk.subscribe("b", event_type_glob="order.later")
    (event,) = await desk.record(1)
    await desk.record(2, event_type="order.later")
    waiting = asyncio.create_task(desk.bus.ledger.drain(await_s=60))

    async def waits() -> bool:
        (state,) = await desk.bus.ledger.list_drainers()
        return state.drainer.is_waiting

    await until(waits)
    (state,) = await desk.bus.ledger.list_drainers()
    assert (state.waiting_on_app, state.waiting_on_pool) == ("nobody", "shared")
    assert state.drainer.waiting_on_event_id == event.event_id
    run_id, since = state.drainer.waiting_on_run_id, state.drainer.waiting_since_ms
    skipped = await desk.bus.ledger.skip(
        DEFAULT_DRAINER, event.event_id, reason="nobody serves it", by="me"
    )
    assert (skipped.drainer.waiting_on_run_id, skipped.waiting_on_app) == ("", "")
    async with asyncio.timeout(PATIENT.drainers.lease_s / 3):
        assert (await waiting).skipped_due_to_lock
    (told,) = (await desk.bus.ledger.recent(RecentQuery(prefix="/tape/drainer/skipped"))).entries
    assert (told.payload["by"], told.payload["run_id"]) == ("me", run_id)
    run = await desk.bus.runs.get_run(run_id)
    assert run is not None
    assert run.status == RunStatus.RUNNABLE
    assert since <= run.started_at_ms
    report = await desk.bus.ledger.drain(await_s=0)
    assert report.waiting_on_run_id not in ("", run_id)  # of the next event


async def test_a_retry_that_waits_for_a_worker_says_so_beside_the_halt(desk: Desk) -> None:
    await desk.subscribe("a")
    (event,) = await desk.record(1)
    desk.broken = {("a", 1)}
    assert (await desk.bus.ledger.drain()).halted_on_event_id == event.event_id
    await desk.subscribe("a", workflow_type="nobody")
    report = await desk.bus.ledger.drain(await_s=0)
    (state,) = await desk.bus.ledger.list_drainers()
    drainer = state.drainer
    assert (drainer.halted_on_event_id, state.failed_attempts) == (event.event_id, 1)
    assert (drainer.waiting_on_run_id, drainer.waiting_on_event_id) == (
        report.waiting_on_run_id, event.event_id,
    )  # fmt: skip
    assert (state.waiting_on_app, state.waiting_on_pool) == ("nobody", "shared")
    words = held_up_words(state)
    assert f"is halted at {event.event_id}, failed 1 time, is tried again and has waited" in words
    assert f"for run {report.waiting_on_run_id} of app nobody in pool shared: run " in words
    await refresh_metrics(desk.bus)
    waited = metrics.DRAINER_WAITING_SECONDS.labels(DEFAULT_DRAINER)
    assert (metrics.DRAINER_HALTED.labels(DEFAULT_DRAINER).value, waited.value > 0) == (1, True)
    skipped = await desk.bus.ledger.skip(DEFAULT_DRAINER, event.event_id, reason="old", by="me")
    assert (skipped.drainer.halted_on_event_id, skipped.drainer.waiting_on_run_id) == ("", "")


async def left_as(desk: Desk, status: RunStatus) -> Run:
    """The only run, in a status that a driver has left it in."""
    (run,) = await desk.bus.runs.list_runs(RunQuery())
    is_over = status is not RunStatus.RUNNABLE
    left = run._replace(status=status.value, ended_at_ms=int(is_over), outcome_json='"?"')
    await play(desk.bus._store, SaveRows(save(RUNS, left)))
    return left


async def test_no_run_is_begun_beside_one_that_is_stuck(desk: Desk) -> None:
    await desk.subscribe("a", workflow_type="nobody")
    (event,) = await desk.record(1)
    await desk.bus.ledger.drain(await_s=0)
    stuck = await left_as(desk, RunStatus.STUCK)
    for _ in range(3):
        report = await desk.bus.ledger.drain(await_s=0)
        assert report.halted_on_event_id == event.event_id
        assert "is stuck" in report.error
    (state,) = await desk.bus.ledger.list_drainers()
    assert state.failed_attempts == 1
    await desk.bus.runs.resume_run(stuck.run_id)  # as an operator does
    assert (await desk.bus.ledger.drain(await_s=0)).waiting_on_run_id == stuck.run_id
    await left_as(desk, RunStatus.TERMINAL)
    report = await desk.bus.ledger.drain(await_s=0)
    assert [run.run_id for run in report.triggered] == [stuck.run_id]


async def test_a_stuck_run_that_fails_for_good_is_followed_by_the_next(desk: Desk) -> None:
    await desk.subscribe("a", workflow_type="nobody")
    await desk.record(1)
    await desk.bus.ledger.drain(await_s=0)
    stuck = await left_as(desk, RunStatus.STUCK)
    await desk.bus.ledger.drain(await_s=0)
    await left_as(desk, RunStatus.FAILED)
    report = await desk.bus.ledger.drain(await_s=0)
    assert report.waiting_on_run_id not in ("", stuck.run_id)


async def test_a_halt_of_an_older_version_is_not_taken_for_waiting(desk: Desk) -> None:
    """It leaves the run that was waited for, which has failed."""
    await desk.subscribe("a")
    await desk.record(1)
    desk.broken = {("a", 1)}
    await desk.bus.ledger.drain()
    drainer = await desk.drainer(DEFAULT_DRAINER)
    (run,) = await desk.bus.runs.list_runs(RunQuery())
    left = drainer._replace(
        waiting_on_run_id=run.run_id,
        waiting_on_event_id=drainer.halted_on_event_id,
        waiting_on_global_seq=drainer.halted_on_global_seq,
        waiting_since_ms=1,
    )
    await play(desk.bus._store, SaveRows(save(DRAINERS, left)))
    (state,) = await desk.bus.ledger.list_drainers()
    assert state.drainer.halted_on_event_id
    assert state.drainer.waiting_on_run_id == ""


async def test_since_when_it_waits_is_not_moved_by_later_passes(desk: Desk) -> None:
    await desk.subscribe("a", workflow_type="nobody")
    await desk.record(1)
    seen = set()
    for _ in range(3):
        await desk.bus.ledger.drain(await_s=0.01)
        (state,) = await desk.bus.ledger.list_drainers()
        seen.add((state.drainer.waiting_on_run_id, state.drainer.waiting_since_ms))
    ((run_id, _since),) = seen
    assert run_id


async def test_a_retry_writes_no_more_than_the_run_it_made(desk: Desk) -> None:
    await desk.subscribe("a")
    await desk.record(1)
    desk.broken = {("a", 1)}
    first = await desk.bus.ledger.drain()
    (halted,) = await desk.bus.ledger.list_drainers()
    for _ in range(4):
        await desk.bus.ledger.drain()
    (state,) = await desk.bus.ledger.list_drainers()
    assert state.failed_attempts == 5
    assert state.drainer.halted_at_ms == halted.drainer.halted_at_ms > 0
    assert state.drainer.next_try_at_ms > first.next_try_at_ms > halted.drainer.halted_at_ms
    for prefix in ("/tape/drainer/halted", f"/tape/event/recorded/{DISPATCH_FAILED}"):
        assert len((await desk.bus.ledger.recent(RecentQuery(prefix=prefix))).entries) == 1


async def test_of_two_passes_at_once_one_is_locked_out(desk: Desk) -> None:
    await desk.subscribe("a")
    await desk.record(1)
    first = await desk.stuck_pass()
    assert (await desk.bus.ledger.list_drainers())[0].is_held
    second = await desk.bus.ledger.drain()
    assert second.skipped_due_to_lock
    assert second.processed == 0
    desk.gate.set()
    report = await first
    assert (report.skipped_due_to_lock, report.processed) == (False, 1)
    assert not (await desk.bus.ledger.list_drainers())[0].is_held
    assert not (await desk.bus.ledger.drain()).skipped_due_to_lock


async def test_a_pass_whose_lease_was_taken_stops_at_once(desk: Desk) -> None:
    await desk.subscribe("a")
    await desk.subscribe("b")
    await desk.record(1)
    first = await desk.stuck_pass()
    held = await desk.drainer(DEFAULT_DRAINER)
    taken = held._replace(fencing_token=held.fencing_token + 1, lease_owner="another")
    await play(desk.bus._store, SaveRows(save(DRAINERS, taken)))
    desk.gate.set()
    report = await first
    assert report.skipped_due_to_lock
    assert "fencing token 2" in report.error
    assert (report.processed, desk.done_by("b")) == (0, [])
    assert await desk.drainer(DEFAULT_DRAINER) == taken


async def test_a_pass_that_is_given_up_lets_go(desk: Desk) -> None:
    await desk.subscribe("a")
    await desk.record(1)
    task = await desk.stuck_pass()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await desk.drainer(DEFAULT_DRAINER)).lease_owner == ""


async def test_a_pass_that_is_given_up_before_it_has_the_lease_leaves_none(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.subscribe("a")
    commit = desk.bus._store.commit
    begun, going_on = asyncio.Event(), asyncio.Event()

    async def slow(*arguments: Any) -> EntryPlace:
        begun.set()
        await going_on.wait()
        return await commit(*arguments)

    monkeypatch.setattr(desk.bus._store, "commit", slow)
    task = asyncio.create_task(desk.bus.ledger.drain())
    await begun.wait()
    task.cancel()
    going_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    drainer = await desk.drainer(DEFAULT_DRAINER)
    assert (drainer.fencing_token, drainer.lease_owner) == (1, "")


async def test_an_operator_skips_the_event_and_no_other(desk: Desk) -> None:
    await desk.subscribe("a")
    first, second, third = await desk.record(1, 2, 3)
    desk.broken = {("a", 1), ("a", 2)}
    ledger = desk.bus.ledger
    with pytest.raises(NotFound):
        await ledger.skip(DEFAULT_DRAINER, first.event_id, reason="why", by="me")
    await ledger.drain()
    for event in (second, third):
        with pytest.raises(NotHalted, match="is halted on"):
            await ledger.skip(DEFAULT_DRAINER, event.event_id, reason="why", by="me")
    with pytest.raises(InvalidArgument, match="reason: must not be empty"):
        await ledger.skip(DEFAULT_DRAINER, first.event_id, reason="", by="me")
    state = await ledger.skip(DEFAULT_DRAINER, first.event_id, reason="sold out", by="me")
    assert (state.drainer.halted_on_event_id, state.drainer.skipped_total) == ("", 1)
    assert state.drainer.last_event_id == first.event_id
    (told,) = (await ledger.recent(RecentQuery(prefix="/tape/drainer/skipped"))).entries
    assert told.payload == {
        "drainer": DEFAULT_DRAINER, "event_id": first.event_id, "global_seq": first.global_seq,
        "reason": "sold out", "by": "me",
    }  # fmt: skip
    with pytest.raises(NotHalted):
        await ledger.skip(DEFAULT_DRAINER, first.event_id, reason="again", by="me")
    assert (await ledger.drain()).halted_on_event_id == second.event_id
    desk.broken.clear()
    await ledger.drain()
    assert desk.done_by("a") == [2, 3]


async def test_a_skip_takes_the_event_from_the_pass_that_tries_it(desk: Desk) -> None:
    await desk.subscribe("a")
    (event,) = await desk.record(1)
    desk.broken = {("a", 1)}
    ledger = desk.bus.ledger
    await ledger.drain()
    trying = await desk.stuck_pass()
    await ledger.skip(DEFAULT_DRAINER, event.event_id, reason="enough", by="me")
    desk.gate.set()
    assert (await trying).skipped_due_to_lock
    drainer = await desk.drainer(DEFAULT_DRAINER)
    assert (drainer.skipped_total, drainer.failed_total, drainer.halted_on_event_id) == (1, 1, "")


async def test_an_operator_resumes(desk: Desk) -> None:
    await desk.subscribe("a")
    (event,) = await desk.record(1)
    desk.broken = {("a", 1)}
    ledger = desk.bus.ledger
    with pytest.raises(NotFound):
        await ledger.resume(DEFAULT_DRAINER, by="me")
    await ledger.drain()
    assert (await ledger.resume(DEFAULT_DRAINER, by="me")).drainer.halted_on_event_id == ""
    with pytest.raises(NotHalted):
        await ledger.resume(DEFAULT_DRAINER, by="me")
    (told,) = (await ledger.recent(RecentQuery(prefix="/tape/drainer/resumed"))).entries
    assert (told.payload["by"], told.payload["how"]) == ("me", "operator")
    await ledger.drain()  # the second attempt, and so a run of its own
    assert (await desk.drainer(DEFAULT_DRAINER)).attempts.failed == {"a": 2}
    assert len(desk.tried) == 2
    assert told.caused_by == event.event_id


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"input_mapper": '{"n":"$.payload.m"}'}, "input_mapper.n: event .* has nothing at"),
        ({"filter_expr": "payload.m > 1"}, "no such key"),
        ({"filter_expr": TOO_COSTLY}, "more work than one evaluation may"),
    ],
)
async def test_what_cannot_be_decided_is_a_failure(
    desk: Desk, fields: dict[str, str], error: str
) -> None:
    await desk.subscribe("a", **fields)
    await desk.subscribe("b")
    (event,) = await desk.record(1)
    report = await desk.bus.ledger.drain()
    assert report.halted_on_event_id == event.event_id
    assert re.search(error, report.error)
    assert desk.tried == []
    await desk.subscribe("a")
    assert (await desk.drain_all(DEFAULT_DRAINER)).halted_on_event_id == ""
    assert desk.acts == [("a", 1), ("b", 1)]


async def test_a_filter_chooses(desk: Desk) -> None:
    seen = "event_type == 'order.placed' && event_id != caused_by && source == ''"
    await desk.subscribe("a", filter_expr=f"payload.n > 1 && {seen}")
    await desk.record(1, 2, 3)
    report = await desk.bus.ledger.drain()
    assert (report.processed, report.dispatched) == (3, 2)
    assert desk.done_by("a") == [2, 3]


async def test_what_is_not_awaited_is_begun_in_order(desk: Desk) -> None:
    await desk.subscribe("a", awaits_end=False)
    await desk.subscribe("b", awaits_end=False)
    desk.broken = {("a", 2)}  # which is nobody's business once it has begun
    events = await desk.record(*range(1, 31))
    report = await desk.drain_all(DEFAULT_DRAINER)
    assert (report.processed, report.dispatched, report.halted_on_event_id) == (30, 60, "")
    assert [(t.global_seq, t.subscription_id) for t in report.triggered] == [
        (event.global_seq, who) for event in events for who in ("a", "b")
    ]
    begun = (await desk.bus.ledger.recent(RecentQuery(prefix="/tape/run/runnable"))).entries
    assert [(e.payload["input"]["who"], e.payload["input"]["n"]) for e in reversed(begun)] == [
        (who, n) for n in range(1, 31) for who in ("a", "b")
    ]


async def test_a_failure_among_what_is_not_awaited_comes_after_what_was_before(desk: Desk) -> None:
    await desk.subscribe("a", awaits_end=False)
    await desk.subscribe("b", awaits_end=False, filter_expr="payload.n != 3 || payload.m")
    _, _, third, _ = await desk.record(1, 2, 3, 4)
    report = await desk.bus.ledger.drain()
    assert (report.processed, report.dispatched) == (2, 4)
    assert report.halted_on_event_id == third.event_id
    begun = (await desk.bus.ledger.recent(RecentQuery(prefix="/tape/run/runnable"))).entries
    inputs = [(e.payload["input"]["who"], e.payload["input"]["n"]) for e in reversed(begun)]
    assert inputs == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3)]


async def test_a_pass_takes_no_more_events_than_it_may(desk: Desk) -> None:
    await desk.subscribe("a", awaits_end=False)
    await desk.record(*range(1, 6))
    for expected in (2, 2):
        report = await desk.bus.ledger.drain(limit=2)
        assert (report.processed, report.more) == (expected, True)
    # The runs that were begun are entries too, so there is something to look through.
    assert (await desk.drain_all(DEFAULT_DRAINER, limit=2)).more is False
    assert (await desk.drainer(DEFAULT_DRAINER)).dispatched_total == 5


async def test_pages_without_a_match_are_passed(desk: Desk) -> None:
    await desk.subscribe("a")
    events = await desk.record(1, 2, event_type="other")
    report = await desk.bus.ledger.drain()
    assert (report.processed, report.dispatched) == (2, 0)
    assert report.last_event_id == events[-1].event_id
    (state,) = await desk.bus.ledger.list_drainers()
    assert (state.lag, state.subscriptions, state.is_held) == (0, 1, False)


async def test_drainers_are_independent(desk: Desk) -> None:
    await desk.subscribe("a", drainer_id="one")
    await desk.subscribe("b", drainer_id="two")
    await desk.record(1, 2)
    desk.broken = {("a", 1)}
    assert (await desk.bus.ledger.drain("one")).halted_on_event_id
    assert (await desk.bus.ledger.drain("two")).processed == 2 + 1
    assert desk.acts == [("b", 1), ("b", 2)]


async def test_who_subscribed_before_an_event_is_given_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the pass had begun before: subscribed and recorded just before it gets the lease."""
    await desk.subscribe("a", awaits_end=False)
    commit = desk.bus._store.commit

    async def meanwhile(*arguments: Any) -> EntryPlace:
        monkeypatch.setattr(desk.bus._store, "commit", commit)
        other = await open_bus(desk.url, QUICK)
        new = NewEventSubscription("b", "order.*", "desk", awaits_end=False)
        await other.ledger.put_event_subscription(new)
        await other.record_events([NewEvent("order.placed", '{"n":1}')])
        await other.close()
        return await commit(*arguments)

    monkeypatch.setattr(desk.bus._store, "commit", meanwhile)
    report = await desk.bus.ledger.drain()
    assert [run.subscription_id for run in report.triggered] == ["a", "b"]


async def test_what_nobody_subscribes_to_is_not_drained(desk: Desk) -> None:
    with pytest.raises(NotFound, match="no event subscription names the drainer 'typo'"):
        await desk.bus.ledger.drain("typo")
    assert await desk.bus.ledger.list_drainers() == []


@pytest.mark.parametrize(
    ("options", "field"),
    [({"limit": -1}, "limit"), ({"limit": 10_001}, "limit"), ({"await_s": -1}, "await_s"),
     ({"await_s": float("nan")}, "await_s"), ({"drainer_id": ""}, "drainer_id")],
)  # fmt: skip
async def test_a_pass_is_refused_with_the_field(
    desk: Desk, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as fault:
        await desk.bus.ledger.drain(**options)
    assert fault.value.field == field


async def test_what_is_not_awaited_costs_no_turn_for_each_event(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0
    commit = desk.bus._store.commit

    async def counted(*arguments: Any) -> EntryPlace:
        nonlocal turns
        turns += 1
        return await commit(*arguments)

    await desk.subscribe("a", awaits_end=False, workflow_type="nobody")
    await desk.record(*range(2_000))
    monkeypatch.setattr(desk.bus._store, "commit", counted)
    report = await desk.bus.ledger.drain(limit=2_000)
    assert (report.processed, report.dispatched) == (2_000, 2_000)
    assert turns <= 6  # the lease, and 500 runs at a time
