"""The operations on runs are the same in process and at a server."""

from typing import Any

import pytest

import tape
from tape.errors import InvalidArgument, LeaseHeld, NotFound, RunEnded, StaleLease
from tape.model.budget import ChargeBudget, SetBudget
from tape.model.decision import DecisionPlace, RecordDecision
from tape.model.effect import BeginEffect, CompleteEffect, EffectStatus
from tape.model.effect_claim import (
    ClaimEffect,
    ReconcileEffect,
    RecordDispatchAttempt,
    RecordExternalObservation,
    RenewClaim,
    Resolution,
)
from tape.model.entry import Trace
from tape.model.gate import AwaitSignal, Gate, SendSignal
from tape.model.lease import NewRun, Taker
from tape.model.obligation import (
    ClaimObligation,
    ObligationKey,
    ObligationStatus,
    RecordObligationAttempt,
    RegisterCompensation,
    RenewObligationClaim,
    ResolveObligation,
)
from tape.model.run import RunName, RunStatus
from tape.model.run_end import CancelRun, EndRun
from tape.model.run_write import RunWrite
from tape.model.timer import CancelTimer, FireTimer, SetTimer, Timer
from tape.ports.runs import PendingQuery, RecoverQuery, RunQuery
from tape.runs.operations import RunOperations

NAME = RunName("app", "u", "s", "i")
ME = Taker("me", "agent", 60_000)
TRACE = Trace("ab" * 16, "cd" * 8, "ef" * 8)
LARGE = '"' + "x" * 1_000_000 + '"'


@pytest.fixture
async def runs(url: str) -> Any:
    async with tape.connect_async(url) as client:
        yield client._operations.runs


async def test_a_life(runs: RunOperations) -> None:
    new = NewRun(NAME, '{"n": 1}', "p", "v1", trace=TRACE)
    begun = await runs.begin_run(new, ME)
    run = begun.run
    assert (begun.resumed, begun.fencing_token, begun.extended) == (False, 1, None)
    assert (run.name, run.pool, run.app_version, run.reactor_name) == (NAME, "p", "v1", "agent")
    assert await runs.get_run(run.run_id) == run
    assert await runs.get_run("none") is None
    assert await runs.list_runs(RunQuery(status=RunStatus.RUNNING)) == [run]
    assert await runs.list_runs(RunQuery(session=("u", "s"), app_name="app")) == [run]
    assert await runs.list_runs(RunQuery(session=("u", ""))) == []
    with pytest.raises(LeaseHeld):
        await runs.resume_run(run.run_id, Taker("other"))
    with pytest.raises(LeaseHeld):
        await runs.resume_run(run.run_id, ME, expected_token=7)
    renewed = await runs.heartbeat_run(run.run_id, 1, 120_000)
    assert renewed.lease_expires_at_ms > run.lease_expires_at_ms
    released = await runs.release_run(run.run_id, 1, waiting_on="x", seen_seq=1)
    assert (released.status, released.waiting_on) == (RunStatus.WAITING, "x")
    assert (await runs.resume_run(run.run_id)).status == RunStatus.RUNNABLE
    assert [r.run_id for r in await runs.list_runs_to_recover(RecoverQuery())] == [run.run_id]
    assert await runs.list_runs_to_recover(RecoverQuery(app_names=["x"])) == []
    (waiting,) = await runs.list_waiting_runs(0)
    assert waiting[:5] == ("p", "app", 1, 0, run.run_id)
    assert await runs.list_waiting_runs() == []
    with pytest.raises(InvalidArgument, match="older_than_ms"):
        await runs.list_waiting_runs(-1)
    again = await runs.resume_run(run.run_id, ME, expected_token=1)
    assert again.fencing_token == 2
    cancelled = await runs.change_run(run.run_id, CancelRun("enough"))
    assert (cancelled.cancel_reason, cancelled.seq_cursor) == ("enough", 5)
    end = [EndRun(RunStatus.CANCELLED, '"so"', "")]
    ended = await runs.extend_run(run.run_id, 2, end, TRACE)
    assert ended.run.status == RunStatus.CANCELLED
    assert ended.replies == [ended.run]
    assert (await runs.extend_run(run.run_id, 2, end)).replies == [ended.run]
    with pytest.raises(RunEnded):
        await runs.extend_run(run.run_id, 2, [SetTimer("t")])
    entries = await runs.read_run(run.run_id, 0)
    assert [entry.seq for entry in entries] == [1, 2, 3, 4, 5, 6]
    assert (entries[0].trace_id, entries[-1].span_id) == TRACE[:2]
    assert [e.seq for e in await runs.read_run(run.run_id, 2, 2)] == [3, 4]


async def test_what_a_driver_writes(runs: RunOperations) -> None:
    first = [RecordDecision(0, "m", "[1]", "2")]
    begun = await runs.begin_run(NewRun(NAME), ME, first)
    assert begun.extended is not None
    (place,) = begun.extended.replies
    run_id = begun.run.run_id
    assert place == DecisionPlace(run_id, 0, 2, place.ts_ms)
    assert (begun.extended.first_seq, begun.extended.run) == (2, begun.run)
    assert (await runs.begin_run(NewRun(NAME), ME, first)).extended is None
    entry = await runs.get_decision(run_id, 0)
    assert entry is not None
    assert (entry.seq, entry.payload["response"]) == (2, 2)
    assert await runs.get_decision(run_id, 1) is None
    undo = RegisterCompensation("k", "undo", "[3]")
    done = await runs.extend_run(
        run_id,
        2,
        [
            BeginEffect(0, "t", 0, "[1]", "k"),
            CompleteEffect("k", EffectStatus.CONFIRMED, "7", compensation=undo),
            undo,
            AwaitSignal("g", "[2]"),
            SetTimer("t", after_ms=60_000),
            CancelTimer("t"),
            CancelTimer("none"),
            SetBudget(2.0, 10),
            ChargeBudget(0.5, 3, "c"),
        ],
    )
    began, completed, owed, gate, timer, gone, none, budget, charged = done.replies
    assert (began.status, began.request_json) == (EffectStatus.PENDING, "[1]")
    assert completed == began._replace(status=EffectStatus.CONFIRMED, response_json="7")
    assert await runs.get_effect(run_id, "k") == completed
    assert await runs.get_effect(run_id, "none") is None
    assert await runs.list_obligations(run_id) == [owed]
    assert gate == Gate(run_id, "g", True, False, "[2]", "null")
    assert isinstance(timer, Timer)
    assert (gone, none) == (True, False)
    assert await runs.list_timers(run_id) == [timer._replace(cancelled=True)]
    assert (budget.usd_cap, charged.usd_spent) == (2.0, 0.5)
    admitted = await runs.admit_budget(run_id, 1.5, 7)
    assert (admitted.admitted, admitted.reason, admitted.budget) == (True, "", charged)
    assert not (await runs.admit_budget(run_id, 1.5, 8)).admitted
    assert done.run.seq_cursor == (await runs.read_run(run_id, 0))[-1].seq
    with pytest.raises(StaleLease):
        await runs.extend_run(run_id, 1, [SetTimer("u")])
    for wrong in ([SetTimer("")], []):
        with pytest.raises(InvalidArgument):
            await runs.extend_run(run_id, 2, wrong)


async def test_from_outside(runs: RunOperations) -> None:
    run_id = (await runs.begin_run(NewRun(NAME), ME)).run.run_id
    sent = await runs.change_run(run_id, SendSignal("g", "[1]"))
    assert (sent.accepted, sent.run.run_id) == (True, run_id)
    assert not (await runs.change_run(run_id, SendSignal("g"))).accepted
    with pytest.raises(NotFound):
        await runs.change_run("none", SendSignal("g"))
    assert await runs.next_timer_in_ms() is None
    await runs.extend_run(
        run_id, 1, [SetTimer("t", 1, "mine", "[2]"), SetTimer("u", after_ms=9**9)]
    )
    assert await runs.next_timer_in_ms() == 0
    (due,) = await runs.list_due_timers()
    assert (due.timer_id, due.fired) == ("t", False)
    assert await runs.fire_due_timers() == [due._replace(fired=True)]
    assert await runs.fire_due_timers() == await runs.list_due_timers() == []


async def test_effects_under_a_claim(runs: RunOperations) -> None:
    run_id = (await runs.begin_run(NewRun(NAME), ME)).run.run_id
    outbox = [BeginEffect(0, "pay", n, custom_key=f"k{n}", dispatch_mode=2) for n in range(2)]
    await runs.extend_run(run_id, 1, outbox)
    found = await runs.list_effects_to_dispatch(["pay"])
    assert [effect.idempotency_key for effect in found] == ["k0", "k1"]
    assert await runs.list_effects_to_dispatch(["other"], 1) == []
    claimed = await runs.change_run(run_id, ClaimEffect("k0", "c", 60_000))
    assert (claimed.claim_token, claimed.dispatch_claimed_by) == (1, "c")
    assert await runs.change_run(run_id, ClaimEffect("k0", "d", 60_000)) is None
    renewed = await runs.change_run(run_id, RenewClaim("k0", 1, 120_000))
    assert renewed.dispatch_claim_expires_at_ms > claimed.dispatch_claim_expires_at_ms
    lost = await runs.change_run(run_id, RecordDispatchAttempt("k0", 1, "no answer"))
    assert (lost.status, lost.last_dispatch_error) == (EffectStatus.UNKNOWN, "no answer")
    assert await runs.list_pending_effects(PendingQuery()) == [lost]
    nothing = PendingQuery(include_pending=False, include_unknown=False)
    assert await runs.list_pending_effects(nothing) == []
    pending = PendingQuery(include_pending=True, include_unknown=False, connectors=["pay"])
    assert [e.idempotency_key for e in await runs.list_pending_effects(pending)] == ["k1"]
    await runs.change_run(run_id, ClaimEffect("k0", "c", 60_000))
    settled = await runs.change_run(run_id, ReconcileEffect("k0", 2, EffectStatus.FAILED))
    assert settled.status == EffectStatus.FAILED
    await runs.change_run(run_id, ClaimEffect("k1", "c", 60_000))
    twice = RecordExternalObservation(
        "k1",
        1,
        Resolution.DUPLICATE,
        "ref",
        "[1]",
        compensation=RegisterCompensation("k1", "undo"),
        on_duplicate=RegisterCompensation("k1", "refund", "[2]"),
    )
    seen = await runs.change_run(run_id, twice)
    assert (seen.status, seen.external_ref) == (EffectStatus.CONFIRMED, "ref")
    owed = {row.kind: row.below for row in await runs.list_obligations(run_id)}
    assert owed == {"undo": 0, "refund": -1}
    with pytest.raises(StaleLease):
        await runs.change_run(run_id, RenewClaim("k1", 0, 60_000))


async def test_obligations_under_a_claim(runs: RunOperations) -> None:
    run_id = (await runs.begin_run(NewRun(NAME), ME)).run.run_id
    key = ObligationKey("k", "undo")
    await runs.extend_run(run_id, 1, [RegisterCompensation(*key), EndRun(RunStatus.FAILED)])
    (owed,) = await runs.list_unresolved_obligations()
    claimed = await runs.change_run(run_id, ClaimObligation(key, "c", 60_000))
    assert (claimed.seq, claimed.claim_token, owed.claim_token) == (owed.seq, 1, 0)
    assert await runs.change_run(run_id, ClaimObligation(key, "d", 60_000)) is None
    assert await runs.list_unresolved_obligations(5) == []
    renewed = await runs.change_run(run_id, RenewObligationClaim(key, 1, 120_000))
    assert renewed.claim_expires_at_ms > claimed.claim_expires_at_ms
    failed = await runs.change_run(run_id, RecordObligationAttempt(key, 1, "no"))
    assert (failed.status, failed.last_error) == (ObligationStatus.STUCK, "no")
    assert await runs.list_unresolved_obligations() == []
    assert await runs.list_unresolved_obligations(include_stuck=True) == [failed]
    await runs.resume_run(run_id)
    await runs.change_run(run_id, ClaimObligation(key, "c", 60_000))
    done = ResolveObligation(key, 2, ObligationStatus.COMPENSATED, "[1]")
    assert (await runs.change_run(run_id, done)).result_json == "[1]"
    run = await runs.get_run(run_id)
    assert run is not None
    assert run.status == RunStatus.FAILED


async def test_what_takes_several_answers(runs: RunOperations) -> None:
    run_id = (await runs.begin_run(NewRun(NAME), ME)).run.run_id
    for n in range(6):
        writes: list[RunWrite] = [
            RegisterCompensation(f"{n}", "undo", LARGE),
            SetTimer(f"{n}", 1, "mine", LARGE),
        ]
        await runs.extend_run(run_id, 1, writes)
    assert [row.effect_key for row in await runs.list_obligations(run_id)] == list("543210")
    assert sorted(timer.timer_id for timer in await runs.list_timers(run_id)) == list("012345")
    seqs: list[int] = []
    while page := await runs.read_run(run_id, seqs[-1] if seqs else 0):
        seqs += [entry.seq for entry in page]
    assert seqs == list(range(1, 14))
    assert [entry.seq for entry in await runs.read_run(run_id, 1, 9)] == list(range(2, 11))
    fired = await runs.fire_due_timers()
    assert sorted(timer.timer_id for timer in fired) == list("012345")
    for n in range(6):
        end = [EndRun(RunStatus.TERMINAL, LARGE, "")]
        await runs.begin_run(NewRun(NAME._replace(invocation_id=f"{n}")), ME, end)
    everything = await runs.list_runs(RunQuery())
    assert len(everything) == 7
    assert await runs.list_runs(RunQuery(limit=6)) == everything[:6]
    assert await runs.list_runs(RunQuery(after=everything[1].run_id)) == everything[2:]


async def test_what_cannot_be_sent(sqlite_url: str, serving: Any) -> None:
    async with tape.connect_async((await serving(sqlite_url)).url) as client:
        runs = client._operations.runs
        run_id = (await runs.begin_run(NewRun(NAME), ME)).run.run_id
        timer = Timer(run_id, "t", 0, "", "null", False, False, 0)
        for write in (FireTimer(timer), SetTimer("t")):
            with pytest.raises(InvalidArgument, match="has no call of its own"):
                await runs.change_run(run_id, write)
        with pytest.raises(InvalidArgument, match="no write of a run's driver"):
            await runs.extend_run(run_id, 1, [CancelRun("")])
        with pytest.raises(InvalidArgument, match="cannot be sent"):
            await runs.extend_run(run_id, 1, [BeginEffect(0, "t", 2**31)])
        with pytest.raises(InvalidArgument, match="cannot be sent"):
            await runs.begin_run(NewRun(NAME._replace(user_id="\ud800")))
