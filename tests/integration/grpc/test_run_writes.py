"""What a run's driver writes, call by call and many at once; a repeat changes nothing."""

import math
from typing import Any

import grpc
import pytest

from tape.wire.v1 import tape_pb2 as pb
from tests.integration.grpc.running import begun, entries, fault, refused, subjects

TRACE: dict[str, Any] = {"trace_id": "ab" * 16, "span_id": "cd" * 8, "parent_span_id": "ef" * 8}


@pytest.fixture
async def run(rpc: Any) -> dict[str, Any]:
    """The run and its token, as each request names them."""
    made = await begun(rpc)
    return {"run_id": made.run_id, "fencing_token": made.fencing_token}


async def test_decisions(rpc: Any, run: dict[str, Any]) -> None:
    request = pb.RecordDecisionRequest(
        **run,
        **TRACE,
        decision_index=3,
        model="m",
        request_json='{"a": [1,  2]}',
        response_json="1.50",
        rationale='said "so"',
        policy_version="v1",
    )
    record = await rpc.RecordDecision(request)
    assert (record.seq, record.decision_index, record.model) == (2, 3, "m")
    assert (record.request_json, record.response_json) == ('{"a": [1,  2]}', "1.50")
    assert (record.rationale, record.policy_version) == ('said "so"', "v1")
    request.response_json = '"another"'
    assert await rpc.RecordDecision(request) == record
    get = pb.GetDecisionRequest(run_id=run["run_id"], decision_index=3)
    found = await rpc.GetDecision(get)
    assert (found.found, found.decision) == (True, record)
    get.as_entry = True
    entry = (await rpc.GetDecision(get)).entry
    assert (entry.seq, entry.kind, entry.trace_id) == (2, "decision", TRACE["trace_id"])
    get.decision_index = 4
    assert not (await rpc.GetDecision(get)).found
    get.decision_index = 2**40
    assert await fault(rpc.GetDecision(get)) == "decision_index"
    request.decision_index = -1
    assert await fault(rpc.RecordDecision(request)) == "decision_index"
    assert len(await entries(rpc, run["run_id"])) == 2


async def test_what_a_run_writes_without_a_trace_is_in_that_of_the_run(rpc: Any) -> None:
    made = await begun(rpc, **TRACE)
    run = {"run_id": made.run_id, "fencing_token": made.fencing_token}
    value: dict[str, Any] = {"namespace": "n", "key": "k", **run}
    session: dict[str, Any] = {"app_name": "a", "user_id": "u", "session_id": "s"}
    event = pb.NewEvent(event_type="a", **run)
    await rpc.RecordEvents(pb.RecordEventsRequest(events=[event, event]))
    await rpc.WriteValue(pb.WriteValueRequest(**value, value_json="1", if_version=-1))
    await rpc.DeleteValue(pb.DeleteValueRequest(**value))
    await rpc.CreateSession(pb.CreateSessionRequest(**session))
    await rpc.AppendEvent(pb.AppendEventRequest(**session, event=pb.EventRecord(id="e"), **run))
    found = (await entries(rpc, made.run_id))[1:]
    assert [entry.kind for entry in found] == ["event", "event", "value", "value", "event"]
    joined = {(entry.trace_id, entry.span_id, entry.parent_span_id) for entry in found}
    assert joined == {(TRACE["trace_id"], "", TRACE["span_id"])}


async def test_effects(rpc: Any, run: dict[str, Any]) -> None:
    begin = pb.BeginEffectRequest(
        **run, decision_index=1, tool_name="pay", call_index=2, request_json="[7]", scope="s"
    )
    first = await rpc.BeginEffect(begin)
    key = f"{run['run_id']}/decision-1/pay/2"
    assert (first.seq, first.idempotency_key) == (2, key)
    assert first.status == pb.EFFECT_STATUS_PENDING
    effect = first.effect
    assert (effect.request_json, effect.connector, effect.call_index) == ("[7]", "pay", 2)
    assert (effect.semantics, effect.dispatch_mode, effect.scope) == (1, 1, "s")
    complete = pb.CompleteEffectRequest(
        **run,
        idempotency_key=key,
        status=pb.EFFECT_STATUS_CONFIRMED,
        response_json='{"id": 9}',
        compensation=pb.Compensation(kind="refund", payload_json="[9]"),
    )
    done = await rpc.CompleteEffect(complete)
    assert (done.status, done.response_json) == (pb.EFFECT_STATUS_CONFIRMED, '{"id": 9}')
    complete.status = pb.EFFECT_STATUS_FAILED
    assert await rpc.CompleteEffect(complete) == done
    again = await rpc.BeginEffect(begin)
    assert (again.seq, again.status) == (2, pb.EFFECT_STATUS_CONFIRMED)
    assert again.response_json == '{"id": 9}'
    found = await rpc.GetEffect(pb.GetEffectRequest(run_id=run["run_id"], idempotency_key=key))
    assert (found.found, found.effect) == (True, done)
    missing = pb.GetEffectRequest(run_id=run["run_id"], idempotency_key="none")
    assert not (await rpc.GetEffect(missing)).found
    (owed,) = (
        await rpc.ListObligations(pb.ListObligationsRequest(run_id=run["run_id"]))
    ).obligations
    assert (owed.effect_key, owed.kind, owed.payload_json) == (key, "refund", "[9]")
    state = await rpc.GetRun(pb.GetRunRequest(run_id=run["run_id"]))
    assert state.top_obligation == owed.seq
    assert await subjects(rpc, run["run_id"]) == [
        "run/running",
        "effect/pending",
        "effect/confirmed",
        "obligation/registered",
    ]


async def test_effects_that_are_refused(rpc: Any, run: dict[str, Any]) -> None:
    begin = pb.BeginEffectRequest(**run, tool_name="pay", business_key="order-1")
    await rpc.BeginEffect(begin)
    begin.call_index = 1
    assert await refused(rpc.BeginEffect(begin)) == ("ALREADY_EXISTS", "BUSINESS_KEY_TAKEN")
    begin.semantics = pb.EFFECT_SEMANTICS_NON_IDEMPOTENT
    assert await fault(rpc.BeginEffect(begin)) == "dispatch_mode"
    begin.semantics = 9  # type: ignore[assignment]
    assert await fault(rpc.BeginEffect(begin)) == "semantics"
    complete = pb.CompleteEffectRequest(**run, idempotency_key="none", status=2)  # type: ignore[arg-type]
    assert await refused(rpc.CompleteEffect(complete)) == ("NOT_FOUND", "NOT_FOUND")
    complete.status = pb.EFFECT_STATUS_PENDING
    assert await fault(rpc.CompleteEffect(complete)) == "status"
    assert len(await entries(rpc, run["run_id"])) == 2


async def test_obligations(rpc: Any, run: dict[str, Any]) -> None:
    request = pb.RegisterCompensationRequest(
        **run, effect_key="k", kind="refund", payload_json="[1]", max_attempts=3
    )
    first = await rpc.RegisterCompensation(request)
    assert (first.seq, first.status) == (2, pb.OBLIGATION_STATUS_PENDING)
    assert (first.compensator_ref, first.max_attempts, first.below) == ("refund", 3, 0)
    request.payload_json = "[2]"
    assert await rpc.RegisterCompensation(request) == first
    request.kind = "apologise"
    second = await rpc.RegisterCompensation(request)
    assert second.below == first.seq
    ask = pb.ListObligationsRequest(run_id=run["run_id"])
    answer = await rpc.ListObligations(ask)
    assert (list(answer.obligations), answer.more) == ([second, first], False)
    ask.before_seq = second.seq
    assert list((await rpc.ListObligations(ask)).obligations) == [first]
    ask.status_filter = pb.OBLIGATION_STATUS_STUCK
    assert list((await rpc.ListObligations(ask)).obligations) == []
    ask.status_filter = 9  # type: ignore[assignment]
    assert await fault(rpc.ListObligations(ask)) == "status_filter"
    request.max_attempts = -1
    assert await fault(rpc.RegisterCompensation(request)) == "max_attempts"


async def test_obligations_that_do_not_fit_into_an_answer(rpc: Any, run: dict[str, Any]) -> None:
    large = '"' + "x" * 1_000_000 + '"'
    for n in range(5):
        request = pb.RegisterCompensationRequest(
            **run, effect_key=f"{n}", kind="refund", payload_json=large
        )
        await rpc.RegisterCompensation(request)
    ask = pb.ListObligationsRequest(run_id=run["run_id"], only_unresolved=True)
    first = await rpc.ListObligations(ask)
    assert ([o.effect_key for o in first.obligations], first.more) == (["4", "3", "2", "1"], True)
    ask.before_seq = first.obligations[-1].seq
    rest = await rpc.ListObligations(ask)
    assert ([o.effect_key for o in rest.obligations], rest.more) == (["0"], False)


async def test_gates(rpc: Any, run: dict[str, Any]) -> None:
    wait = pb.AwaitSignalRequest(**run, gate_name="approval", payload_json="[1]")
    waiting = await rpc.AwaitSignal(wait)
    assert (waiting.delivered, waiting.payload_json) == (False, "[1]")
    word = pb.SendSignalRequest(run_id=run["run_id"], gate_name="approval", resolution_json="true")
    sent = await rpc.SendSignal(word)
    assert (sent.accepted, sent.run_id) == (True, run["run_id"])
    assert (sent.run_status, sent.run.run_id) == (pb.RUN_STATUS_RUNNING, run["run_id"])
    word.resolution_json = "false"
    assert not (await rpc.SendSignal(word)).accepted
    told = await rpc.AwaitSignal(wait)
    assert (told.delivered, told.resolution_json) == (True, "true")
    word.resolution_json = "{"
    assert await fault(rpc.SendSignal(word)) == "resolution_json"
    unknown = pb.SendSignalRequest(run_id="none", gate_name="g")
    assert await refused(rpc.SendSignal(unknown)) == ("NOT_FOUND", "NOT_FOUND")


async def test_a_signal_to_a_session(rpc: Any, run: dict[str, Any]) -> None:
    newer = await begun(rpc, invocation_id="j")
    other = await begun(rpc, session_id="other")
    word = pb.SendSignalRequest(app_name="app", user_id="u", session_id="s", gate_name="g")
    chosen = (await rpc.SendSignal(word)).run_id
    listed = pb.ListRunsRequest(app_name="app", user_id="u", session_id="s")
    newest = [found.run_id for found in (await rpc.ListRuns(listed)).runs]
    assert sorted(newest) == sorted([run["run_id"], newer.run_id])
    assert chosen == newest[0]
    for run_id in newest:
        await rpc.EndRun(
            pb.EndRunRequest(run_id=run_id, fencing_token=1, status=pb.RUN_STATUS_TERMINAL)
        )
        word.gate_name += "'"
        if run_id == newest[0]:
            assert (await rpc.SendSignal(word)).run_id == newest[1]
    assert await refused(rpc.SendSignal(word)) == ("NOT_FOUND", "NOT_FOUND")
    word.session_id = "other"
    assert (await rpc.SendSignal(word)).run_id == other.run_id
    assert await fault(rpc.SendSignal(pb.SendSignalRequest(gate_name="g"))) == "app_name"


async def test_timers(rpc: Any, run: dict[str, Any]) -> None:
    assert not (await rpc.NextTimer(pb.NextTimerRequest())).HasField("in_ms")
    late = pb.SetTimerRequest(**run, timer_id="late", after_ms=3_600_000, payload_json="[1]")
    timer = await rpc.SetTimer(late)
    assert (timer.kind, timer.fired, timer.cancelled) == ("redrive", False, False)
    assert timer.fire_at_ms - timer.created_at_ms == 3_600_000
    late.after_ms = 1
    assert await rpc.SetTimer(late) == timer
    assert 3_500_000 < (await rpc.NextTimer(pb.NextTimerRequest())).in_ms <= 3_600_000
    due = await rpc.SetTimer(pb.SetTimerRequest(**run, timer_id="due", fire_at_ms=1, kind="mine"))
    assert (await rpc.NextTimer(pb.NextTimerRequest())).in_ms == 0
    look = pb.ListDueTimersRequest(now_ms=2**62)  # the client's clock does not matter
    assert list((await rpc.ListDueTimers(look)).timers) == [due]
    look.claim = True
    (fired,) = (await rpc.ListDueTimers(look)).timers
    assert (fired.timer_id, fired.fired, fired.run_id) == ("due", True, run["run_id"])
    assert list((await rpc.ListDueTimers(look)).timers) == []
    assert (await subjects(rpc, run["run_id"]))[-1] == "timer/fired"
    cancel = pb.CancelTimerRequest(**run, timer_id="late")
    for _ in range(2):
        assert (await rpc.CancelTimer(cancel)).cancelled
    cancel.timer_id = "due"
    assert not (await rpc.CancelTimer(cancel)).cancelled
    listed = await rpc.ListTimers(pb.ListTimersRequest(run_id=run["run_id"]))
    assert [(t.timer_id, t.fired, t.cancelled) for t in listed.timers] == [
        ("due", True, False),
        ("late", False, True),
    ]
    rest = await rpc.ListTimers(pb.ListTimersRequest(run_id=run["run_id"], after_timer_id="due"))
    assert [t.timer_id for t in rest.timers] == ["late"]
    late.fire_at_ms = -1
    assert await fault(rpc.SetTimer(late)) == "fire_at_ms"


async def test_no_timer_that_fired_is_left_out(rpc: Any, run: dict[str, Any]) -> None:
    large = '"' + "x" * 1_000_000 + '"'
    for n in range(6):
        await rpc.SetTimer(
            pb.SetTimerRequest(**run, timer_id=f"{n}", fire_at_ms=1, kind="k", payload_json=large)
        )
    listed = await rpc.ListTimers(pb.ListTimersRequest(run_id=run["run_id"]))
    assert ([t.timer_id for t in listed.timers], listed.more) == (["0", "1", "2", "3"], True)
    fired = (await rpc.ListDueTimers(pb.ListDueTimersRequest(claim=True))).timers
    assert sorted(timer.timer_id for timer in fired) == list("012345")
    assert {timer.payload_json for timer in fired} == {large, ""}


async def test_budgets(rpc: Any, run: dict[str, Any]) -> None:
    budget = await rpc.SetBudget(pb.SetBudgetRequest(**run, usd_cap=1.5, token_cap=-4))
    assert (budget.usd_cap, budget.token_cap, budget.usd_spent) == (1.5, 0, 0.0)
    charge = pb.ChargeBudgetRequest(**run, usd=1.0, tokens=7, charge_id="c1")
    for _ in range(2):
        spent = await rpc.ChargeBudget(charge)
        assert (spent.usd_spent, spent.tokens_spent, spent.last_charge) == (1.0, 7, "c1")
    ask = pb.AdmitBudgetRequest(run_id=run["run_id"], usd_estimate=0.5, token_estimate=10**9)
    answer = await rpc.AdmitBudget(ask)
    assert (answer.admitted, answer.reason, answer.budget) == (True, "", spent)
    ask.usd_estimate = 0.75
    answer = await rpc.AdmitBudget(ask)
    assert (answer.admitted, answer.budget.usd_spent) == (False, 1.0)
    assert "would exceed the cap" in answer.reason
    for wrong in (-1.0, math.inf, math.nan):
        charge.usd = wrong
        assert await fault(rpc.ChargeBudget(charge)) == "usd"
    assert (await subjects(rpc, run["run_id"]))[1:] == ["budget/set", "budget/charged"]


def all_kinds() -> list[pb.RunWrite]:
    return [
        pb.RunWrite(record_decision=pb.RecordDecisionRequest(model="m", request_json="[1]")),
        pb.RunWrite(begin_effect=pb.BeginEffectRequest(tool_name="t", custom_key="k")),
        pb.RunWrite(
            complete_effect=pb.CompleteEffectRequest(
                idempotency_key="k", status=pb.EFFECT_STATUS_CONFIRMED, response_json="7"
            )
        ),
        pb.RunWrite(
            register_compensation=pb.RegisterCompensationRequest(effect_key="k", kind="undo")
        ),
        pb.RunWrite(await_signal=pb.AwaitSignalRequest(gate_name="g", payload_json="[2]")),
        pb.RunWrite(set_timer=pb.SetTimerRequest(timer_id="t", after_ms=60_000)),
        pb.RunWrite(cancel_timer=pb.CancelTimerRequest(timer_id="t")),
        pb.RunWrite(set_budget=pb.SetBudgetRequest(usd_cap=2.0)),
        pb.RunWrite(charge_budget=pb.ChargeBudgetRequest(usd=0.5, charge_id="c")),
        pb.RunWrite(end_run=pb.EndRunRequest(status=pb.RUN_STATUS_TERMINAL, detail_json="[3]")),
    ]


async def test_all_at_once(rpc: Any, run: dict[str, Any]) -> None:
    request = pb.ExtendRunRequest(**run, writes=all_kinds(), **TRACE)
    done = await rpc.ExtendRun(request)
    assert (done.first_seq, done.run.seq_cursor) == (2, 11)
    assert (done.run.status, done.run.outcome_json) == (pb.RUN_STATUS_TERMINAL, "[3]")
    names = [write.WhichOneof("write") for write in request.writes]
    assert [result.WhichOneof("result") for result in done.results] == names
    decided, began, completed, owed, gate, timer, cancelled, _, charged, _ = done.results
    assert (decided.record_decision.seq, decided.record_decision.request_json) == (2, "")
    assert (began.begin_effect.seq, began.begin_effect.effect.tool_name) == (3, "t")
    assert completed.complete_effect.response_json == "7"
    assert owed.register_compensation.seq == 5
    assert (gate.await_signal.delivered, gate.await_signal.payload_json) == (False, "[2]")
    assert (timer.set_timer.timer_id, cancelled.cancel_timer.cancelled) == ("t", True)
    assert charged.charge_budget.usd_spent == 0.5
    found = await entries(rpc, run["run_id"])
    assert [entry.seq for entry in found] == list(range(1, 12))
    assert {entry.trace_id for entry in found[1:]} == {TRACE["trace_id"]}
    again = await rpc.ExtendRun(request)
    assert (again.first_seq, again.run) == (0, done.run)
    assert [result.WhichOneof("result") for result in again.results] == [None] * 9 + ["end_run"]
    assert len(await entries(rpc, run["run_id"])) == 11


async def test_all_or_none(rpc: Any, run: dict[str, Any]) -> None:
    good = pb.RunWrite(set_timer=pb.SetTimerRequest(timer_id="t", after_ms=60_000))
    taken = [
        pb.RunWrite(
            begin_effect=pb.BeginEffectRequest(tool_name="t", call_index=n, business_key="b")
        )
        for n in range(2)
    ]
    bad = pb.RunWrite(record_decision=pb.RecordDecisionRequest(request_json="{"))
    code = await refused(rpc.ExtendRun(pb.ExtendRunRequest(**run, writes=[good, *taken])))
    assert code == ("ALREADY_EXISTS", "BUSINESS_KEY_TAKEN")
    with pytest.raises(grpc.aio.AioRpcError, match=r"writes\[1\]\.request_json at position 1"):
        await rpc.ExtendRun(pb.ExtendRunRequest(**run, writes=[good, bad]))
    assert await fault(rpc.ExtendRun(pb.ExtendRunRequest(**run))) == "writes"
    assert await fault(rpc.ExtendRun(pb.ExtendRunRequest(**run, writes=[good] * 1_001))) == "writes"
    large = pb.RunWrite(
        record_decision=pb.RecordDecisionRequest(response_json='"' + "x" * 1_000_000 + '"')
    )
    too_much = rpc.ExtendRun(pb.ExtendRunRequest(**run, writes=[large] * 20))
    assert await refused(too_much) == ("RESOURCE_EXHAUSTED", "TOO_LARGE")
    assert len(await entries(rpc, run["run_id"])) == 1
    assert not (await rpc.ListTimers(pb.ListTimersRequest(run_id=run["run_id"]))).timers
