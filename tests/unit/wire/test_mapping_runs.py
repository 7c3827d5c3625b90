"""Runs and what they write down come back from the wire as they were."""

import types
import typing
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.calls import extend_run
from tape.calls.run_changes import CHANGES, observation_from_wire
from tape.calls.run_records import connectors_from_wire, pending_from_wire
from tape.calls.run_writes import (
    begun_effect_from_wire,
    begun_effect_to_wire,
    complete_from_wire,
)
from tape.calls.runs import RUN_QUERY, TAKER
from tape.errors import InvalidArgument
from tape.model.budget import BudgetRow, ChargeBudget, SetBudget
from tape.model.decision import DRAWN, DecisionPlace, RecordDecision
from tape.model.effect import BeginEffect, CompleteEffect, Effect
from tape.model.effect_claim import (
    ClaimEffect,
    ReconcileEffect,
    RecordDispatchAttempt,
    RecordExternalObservation,
    RenewClaim,
)
from tape.model.entry import NO_TRACE, Entry, Trace
from tape.model.gate import AwaitSignal, Gate, SendSignal, Signalled
from tape.model.lease import WHOEVER, Begun, NewRun, Taker
from tape.model.obligation import (
    ClaimObligation,
    Obligation,
    ObligationKey,
    RecordObligationAttempt,
    RegisterCompensation,
    RenewObligationClaim,
    ResolveObligation,
)
from tape.model.run import Run, RunName
from tape.model.run_end import CancelRun, EndRun
from tape.model.run_write import Extended, RunEntryDraft, RunWrite
from tape.model.timer import CancelTimer, SetTimer, Timer
from tape.ports.runs import PendingQuery, RecoverQuery, RunQuery
from tape.runs.operations import RunOperations
from tape.settings import Limits
from tape.wire import mapping_decisions, records
from tape.wire.v1 import tape_pb2 as pb
from tests.unit.wire.by_row import answered, asked, heard, sent, told

CHANGE = {row.name: row for row in CHANGES}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
floats = st.floats(allow_nan=False)
INT32 = (
    "status", "ending", "semantics", "dispatch_mode", "resolution", "resolved_status", "call_index",
    "dispatch_attempts", "attempts", "max_attempts", "limit", "run_status", "schema_version",
)  # fmt: skip
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: texts, int: int64s, bool: st.booleans(), float: floats,
}  # fmt: skip


def rows(row: type, **special: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    chosen = dict.fromkeys(INT32, int32s) | special
    fields = {
        name: chosen[name] if name in chosen else of_type(kind)
        for name, kind in typing.get_type_hints(row).items()
    }
    return st.builds(row, **fields)


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    if kind in BY_TYPE:
        return BY_TYPE[kind]
    if isinstance(kind, types.UnionType):
        return st.one_of(*map(of_type, typing.get_args(kind)))
    if kind is types.NoneType:
        return st.none()
    return rows(kind, effect_key=names) if kind is RegisterCompensation else rows(kind)


# The parent is found out by the server.
nobody = st.none()
runs = rows(Run)
WRITES: dict[type, Any] = {
    RecordDecision: rows(DecisionPlace),
    BeginEffect: rows(Effect),
    CompleteEffect: rows(Effect),
    RegisterCompensation: rows(Obligation),
    AwaitSignal: rows(Gate),
    SetTimer: rows(Timer),
    CancelTimer: st.booleans(),
    SetBudget: rows(BudgetRow),
    ChargeBudget: rows(BudgetRow),
    EndRun: st.none(),
}
writes = st.one_of(*map(rows, WRITES))
json_texts = st.recursive(
    st.sampled_from(["null", "1", "-1.50", "1e3", '"é"', '" {\\"a\\": [1, 2]} "', "9" * 30, " 7 "]),
    lambda inner: st.one_of(
        inner.map(lambda text: f"[ {text},{text}]"), inner.map(lambda text: f'{{"k" : {text} }}')
    ),
    max_leaves=4,
)


def replies_to(write: RunWrite, run: Run) -> st.SearchStrategy[Any]:
    if isinstance(write, EndRun):
        return st.just(run)
    if isinstance(write, AwaitSignal):
        return rows(
            Gate,
            run_id=st.just(run.run_id),
            gate_name=st.just(write.gate_name),
            awaited=st.just(True),
        )
    replies: st.SearchStrategy[Any] = WRITES[type(write)]
    return replies


@given(runs)
def test_runs(run: Run) -> None:
    message = sent(records.RUN.to_wire(run))
    assert records.RUN.from_wire(message) == run
    assert (message.waiting_on_gate, message.fencing_token) == (run.waiting_on, run.fencing_token)
    assert records.RUN.all_from_wire([message, message]) == [run, run]


@given(
    rows(NewRun, name=rows(RunName), trace=rows(Trace)),
    rows(Taker, reactor=names),
    st.lists(writes, max_size=3),
)
def test_beginning(new: NewRun, taker: Taker, chosen: list[RunWrite]) -> None:
    request = sent(extend_run.begin_to_wire(new, taker, chosen))
    there = [
        write._replace(parent_run_id=new.parent_run_id)
        if isinstance(write, EndRun) and write.parent_run_id is None
        else write
        for write in chosen
    ]
    assert extend_run.begin_from_wire(request) == (new, taker._replace(pool=""), there)


@given(st.data(), runs.filter(lambda run: run.seq_cursor < 2**63 - 1), st.booleans(), int64s)
def test_begun(data: st.DataObject, run: Run, resumed: bool, token: int) -> None:
    chosen = data.draw(st.lists(writes, max_size=3))
    replies = [data.draw(replies_to(write, run)) for write in chosen]
    for extended in (None, Extended(run, 2, replies) if chosen else None):
        begun = Begun(run, resumed, token, extended)
        message = sent(extend_run.begun_to_wire(begun, chosen))
        assert extend_run.begun_from_wire(message, chosen) == begun
        assert (message.run_id, message.next_seq) == (run.run_id, run.seq_cursor + 1)
        assert message.status == run.status


@given(texts, rows(Taker, reactor=names), st.one_of(st.just(WHOEVER), st.just(0), int64s))
def test_resuming(run_id: str, taker: Taker, expected: int) -> None:
    request = asked(RunOperations.resume_run, run_id, taker, expected_token=expected)
    assert request.run_id == run_id
    assert heard(RunOperations.resume_run, request) == [run_id, taker, expected]


def test_who_names_no_reactor_is_the_recovery() -> None:
    assert TAKER.from_wire(pb.ResumeRunRequest(lease_owner="w")) == Taker("w", ttl_ms=0)


@given(rows(RunQuery, session=st.none() | st.tuples(texts, texts)))
def test_queries(query: RunQuery) -> None:
    assert RUN_QUERY.from_wire(sent(RUN_QUERY.to_wire(query))) == query


@given(rows(RecoverQuery, app_names=st.tuples(texts, texts)))
def test_queries_of_recovery(query: RecoverQuery) -> None:
    assert records.RECOVER_QUERY.from_wire(sent(records.RECOVER_QUERY.to_wire(query))) == query


@given(st.data(), texts, int64s, rows(Trace), runs, int64s)
def test_a_driver_writes(
    data: st.DataObject, run_id: str, token: int, trace: Trace, run: Run, first_seq: int
) -> None:
    chosen = data.draw(st.lists(writes, max_size=4))
    request = sent(extend_run.extend_to_wire(run_id, token, chosen, trace))
    assert (request.run_id, request.fencing_token) == (run_id, token)
    assert (request.trace_id, request.span_id, request.parent_span_id) == trace
    assert extend_run.writes_of_extend(request) == chosen
    replies = [data.draw(st.none() | replies_to(write, run)) for write in chosen]
    extended = Extended(run, first_seq, replies)
    answer = sent(extend_run.extended_to_wire(extended, chosen))
    assert extend_run.extended_from_wire(answer, chosen) == extended


def test_every_kind_of_write_has_a_name() -> None:
    """So that one which is added to the message without a mapping is found out."""
    fields = pb.RunWrite.DESCRIPTOR.fields
    assert [field.name for field in fields] == [
        field.name for field in pb.RunWriteResult.DESCRIPTOR.fields
    ]
    for field in fields:
        message = pb.ExtendRunRequest()
        getattr(message.writes.add(), field.name).SetInParent()
        (write,) = extend_run.writes_of_extend(sent(message))
        assert type(write) in WRITES
        assert field.message_type is not None
        assert type(write).__name__ + "Request" == field.message_type.name


def test_what_is_no_write_of_a_driver() -> None:
    outside: list[RunWrite] = [SetTimer("t"), CancelRun("because")]
    with pytest.raises(InvalidArgument) as refused:
        extend_run.extend_to_wire("r", 1, outside, NO_TRACE)
    assert refused.value.field == "writes[1]"


@pytest.mark.parametrize(
    ("write", "field"),
    [
        (pb.RunWrite(), "writes[0]"),
        (pb.RunWrite(cancel_timer=pb.CancelTimerRequest(run_id="q")), "writes[0].run_id"),
        (
            pb.RunWrite(cancel_timer=pb.CancelTimerRequest(run_id="r", fencing_token=2)),
            "writes[0].fencing_token",
        ),
    ],
)
def test_a_write_of_another_run(write: pb.RunWrite, field: str) -> None:
    request = pb.ExtendRunRequest(run_id="r", fencing_token=1, writes=[write])
    with pytest.raises(InvalidArgument) as refused:
        extend_run.writes_of_extend(request)
    assert refused.value.field == field


def entry_of(place: DecisionPlace, line: RunEntryDraft) -> Entry:
    return Entry(
        7,
        place.run_id,
        place.seq,
        *line,
        1,
        "",
        "",
        "",
        place.ts_ms,
        "e",
        "",
        "",
        "",
        "",
        "",
        0,
        "",
    )


@given(rows(RecordDecision, request_json=json_texts, response_json=json_texts), st.integers(0, 9))
def test_a_decision_is_read_from_its_entry_letter_for_letter(
    write: RecordDecision, index: int
) -> None:
    write = write._replace(decision_index=index, model=write.model.replace("\0", ""))
    write = write._replace(policy_version=write.policy_version.replace("\0", ""), verb=DRAWN)
    write = write.checked(Limits())
    written = write.write(_Empty(), _a_run())
    place, (line,) = written.reply, written.lines
    entry = entry_of(place, line)
    record = sent(mapping_decisions.decision_to_wire(entry))
    fresh = sent(mapping_decisions.recorded_to_wire(place, write))
    for name in ("request_json", "response_json"):
        assert getattr(record, name) == getattr(write, name).strip()
        setattr(fresh, name, getattr(fresh, name).strip())
    assert record == fresh
    assert records.DECISION_PLACE.from_wire(record) == place
    orjson.loads(record.request_json)


def test_a_decision_that_was_looked_for() -> None:
    written = RecordDecision(3, "m", '{"a": 1}').write(_Empty(), _a_run())
    entry = entry_of(written.reply, written.lines[0])
    found = mapping_decisions.found_to_wire(entry, as_entry=False)
    assert (found.found, found.decision.request_json) == (True, '{"a": 1}')
    assert not found.HasField("entry")
    found = sent(mapping_decisions.found_to_wire(entry, as_entry=True))
    assert (found.found, found.HasField("decision")) == (True, False)
    assert mapping_decisions.found_from_wire(found) == entry
    none = sent(mapping_decisions.found_to_wire(None, as_entry=True))
    assert (none.found, mapping_decisions.found_from_wire(none)) == (False, None)


@given(rows(Effect))
def test_effects(row: Effect) -> None:
    record = sent(records.EFFECT.to_wire(row))
    assert records.EFFECT.from_wire(record) == row
    assert records.EFFECT.all_from_wire([record]) == [row]
    assert record.fencing_token == row.claim_token
    begun = sent(begun_effect_to_wire(row))
    assert begun_effect_from_wire(begun) == row
    assert (begun.seq, begun.idempotency_key, begun.status) == (
        row.seq,
        row.idempotency_key,
        row.status,
    )
    for found in (row, None):
        answer = answered(RunOperations.get_effect, found)
        assert told(RunOperations.get_effect, answer) == found
        claimed = sent(CHANGE["ClaimEffectDispatch"].reply.to_wire(found))
        assert CHANGE["ClaimEffectDispatch"].reply.from_wire(claimed) == found
        assert claimed.fencing_token == (row.claim_token if found else 0)


@given(
    texts,
    rows(ClaimEffect),
    rows(RenewClaim),
    rows(RecordDispatchAttempt),
    rows(RecordExternalObservation, parent_run_id=nobody),
    rows(ReconcileEffect),
)
def test_writes_under_a_claim(
    run_id: str,
    claim: ClaimEffect,
    renewal: RenewClaim,
    attempt: RecordDispatchAttempt,
    observation: RecordExternalObservation,
    short: ReconcileEffect,
) -> None:
    asked = sent(records.CLAIM_EFFECT.to_wire(claim, run_id=run_id))
    assert (asked.run_id, asked.idempotency_key, asked.claimer, asked.lease_ttl_ms) == (
        run_id,
        *claim,
    )
    kept = sent(records.RENEW_EFFECT.to_wire(renewal, run_id=run_id))
    assert (kept.run_id, kept.idempotency_key, kept.fencing_token, kept.lease_ttl_ms) == (
        run_id,
        *renewal,
    )
    tried = sent(records.EFFECT_ATTEMPT.to_wire(attempt, run_id=run_id))
    assert records.EFFECT_ATTEMPT.from_wire(tried) == attempt
    seen = sent(records.OBSERVATION.to_wire(observation, run_id=run_id))
    assert observation_from_wire(seen) == observation
    shortly = sent(records.RECONCILE_EFFECT.to_wire(short, run_id=run_id))
    assert records.RECONCILE_EFFECT.from_wire(shortly) == short
    assert {asked.run_id, tried.run_id, seen.run_id, shortly.run_id} == {run_id}
    assert tried.fencing_token == attempt.claim_token
    assert seen.fencing_token == observation.claim_token
    assert shortly.fencing_token == short.claim_token


def test_a_duplicate_is_compensated_with_what_the_counterparty_said() -> None:
    request = pb.RecordExternalObservationRequest(
        idempotency_key="k", compensate_on_duplicate_kind="refund", response_json='{"id": 2}'
    )
    observation = observation_from_wire(request)
    assert observation.on_duplicate == RegisterCompensation("k", "refund", '{"id": 2}')
    request.on_duplicate.kind = "return"
    observation = observation_from_wire(request)
    assert observation.on_duplicate == RegisterCompensation("k", "return", "")
    assert observation.compensation is None


def test_a_compensation_is_of_its_effect() -> None:
    request = pb.CompleteEffectRequest(
        idempotency_key="k", compensation=pb.Compensation(kind="refund", max_attempts=3)
    )
    write = complete_from_wire(request)
    assert write.compensation == RegisterCompensation("k", "refund", "", max_attempts=3)


@given(rows(PendingQuery, connectors=st.tuples(texts)))
def test_queries_of_effects(query: PendingQuery) -> None:
    if not query.include_pending:
        query = query._replace(include_unknown=True)
    assert pending_from_wire(sent(records.PENDING_QUERY.to_wire(query))) == query


def test_what_waits_is_by_default_what_is_unknown() -> None:
    query = pending_from_wire(pb.ListPendingEffectsRequest())
    assert (query.include_pending, query.include_unknown) == (False, True)
    query = pending_from_wire(pb.ListPendingEffectsRequest(include_pending=True))
    assert (query.include_pending, query.include_unknown) == (True, False)


def test_connectors_by_either_name() -> None:
    request = pb.ListEffectsToDispatchRequest(connector="a", connectors=["b", ""])
    assert connectors_from_wire(request) == ("a", "b")
    assert connectors_from_wire(pb.ListEffectsToDispatchRequest()) == ()


@given(
    texts,
    rows(Obligation),
    rows(ClaimObligation),
    rows(RenewObligationClaim),
    rows(RecordObligationAttempt, parent_run_id=nobody),
    rows(ResolveObligation, parent_run_id=nobody),
)
def test_obligations(
    run_id: str,
    row: Obligation,
    claim: ClaimObligation,
    renewal: RenewObligationClaim,
    attempt: RecordObligationAttempt,
    end: ResolveObligation,
) -> None:
    record = sent(records.OBLIGATION.to_wire(row))
    assert records.OBLIGATION.from_wire(record) == row
    assert records.OBLIGATION.all_from_wire([record]) == [row]
    assert record.fencing_token == row.claim_token
    for found in (row, None):
        claimed = sent(CHANGE["ClaimObligation"].reply.to_wire(found))
        assert CHANGE["ClaimObligation"].reply.from_wire(claimed) == found
        assert claimed.fencing_token == (row.claim_token if found else 0)
    asked = sent(records.CLAIM_OBLIGATION.to_wire(claim, run_id=run_id))
    assert ClaimObligation(_key(asked), asked.claimer, asked.lease_ttl_ms) == claim
    kept = sent(records.RENEW_OBLIGATION.to_wire(renewal, run_id=run_id))
    assert RenewObligationClaim(_key(kept), kept.fencing_token, kept.lease_ttl_ms) == renewal
    assert kept.run_id == run_id
    tried = sent(records.OBLIGATION_ATTEMPT.to_wire(attempt, run_id=run_id))
    assert records.OBLIGATION_ATTEMPT.from_wire(tried) == attempt
    resolved = sent(records.RESOLVE_OBLIGATION.to_wire(end, run_id=run_id))
    assert records.RESOLVE_OBLIGATION.from_wire(resolved) == end
    assert {asked.run_id, tried.run_id, resolved.run_id} == {run_id}


@given(texts, rows(SendSignal), runs, st.booleans())
def test_signals(run_id: str, write: SendSignal, run: Run, accepted: bool) -> None:
    request = sent(records.SEND_SIGNAL.to_wire(write, run_id=run_id))
    assert (request.run_id, records.SEND_SIGNAL.from_wire(request)) == (run_id, write)
    answer = sent(CHANGE["SendSignal"].reply.to_wire(Signalled(accepted, run)))
    assert records.SIGNALLED.from_wire(answer) == Signalled(accepted, run)
    assert (answer.run_id, answer.run_status) == (run.run_id, run.status)


@given(rows(Timer))
def test_timers(timer: Timer) -> None:
    record = sent(records.TIMER.to_wire(timer))
    assert records.TIMER.from_wire(record) == timer
    assert records.TIMER.all_from_wire([record]) == [timer]


@given(rows(BudgetRow))
def test_budgets(budget: BudgetRow) -> None:
    message = sent(records.BUDGET.to_wire(budget))
    assert records.BUDGET.from_wire(message) == budget


def _key(request: Any) -> ObligationKey:
    return ObligationKey(request.effect_key, request.kind)


def _a_run() -> Run:
    return Run("r", "a", "u", "s", "i", "shared", 2, 4, "w", "recovery", 9, 1, 0, 0)


class _Empty:
    """A state in which there is nothing yet."""

    now_ms = 1_000

    def get(self, *_: object) -> None:
        return None
