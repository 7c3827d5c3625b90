"""Effects and obligations under a claim: dispatched, looked up, compensated, and settled once."""

from typing import Any

import pytest

from tape.wire.v1 import tape_pb2 as pb
from tests.integration.grpc.running import (
    begun,
    claimed_effect,
    claimed_obligation,
    fault,
    refused,
    subjects,
    taken_over,
)


@pytest.fixture
async def run_id(rpc: Any) -> str:
    run_id: str = (await begun(rpc)).run_id
    return run_id


async def begin_effect(rpc: Any, run_id: str, key: str = "k", **fields: Any) -> None:
    settings: dict[str, Any] = {"tool_name": "pay", "dispatch_mode": 2, "semantics": 2} | fields
    await rpc.BeginEffect(
        pb.BeginEffectRequest(run_id=run_id, fencing_token=1, custom_key=key, **settings)
    )


async def test_dispatching(rpc: Any, run_id: str) -> None:
    await begin_effect(rpc, run_id)
    await begin_effect(rpc, run_id, "other", connector="post")

    async def to_dispatch(**query: Any) -> list[str]:
        request = pb.ListEffectsToDispatchRequest(now_ms=1, **query)
        return [e.idempotency_key for e in (await rpc.ListEffectsToDispatch(request)).effects]

    assert await to_dispatch() == await to_dispatch(connectors=["post", "pay"]) == ["k", "other"]
    assert await to_dispatch(limit=1) == await to_dispatch(connector="pay") == ["k"]
    assert await to_dispatch(connector="post", connectors=["none"]) == ["other"]
    claim = await claimed_effect(rpc, run_id, "k")
    assert (claim.fencing_token, claim.effect.fencing_token) == (1, 1)
    assert (claim.effect.dispatch_claimed_by, claim.effect.dispatch_attempts) == ("c", 1)
    assert await to_dispatch() == ["other"]
    second = pb.ClaimEffectDispatchRequest(run_id=run_id, idempotency_key="k", claimer="d")
    answer = await rpc.ClaimEffectDispatch(second)
    assert (answer.acquired, answer.fencing_token, answer.HasField("effect")) == (False, 0, False)
    attempt = pb.RecordDispatchAttemptRequest(
        run_id=run_id, idempotency_key="k", fencing_token=1, error="a\0way", next_dispatch_at_ms=1
    )
    tried = await rpc.RecordDispatchAttempt(attempt)
    assert (tried.status, tried.last_dispatch_error) == (pb.EFFECT_STATUS_PENDING, "a\\0way")
    assert sorted(await to_dispatch()) == ["k", "other"]
    claim = await claimed_effect(rpc, run_id, "k")
    seen = pb.RecordExternalObservationRequest(
        run_id=run_id,
        idempotency_key="k",
        fencing_token=claim.fencing_token,
        resolution=pb.EFFECT_RESOLUTION_CONFIRMED,
        external_ref="ref",
        response_json='{"id": 1}',
        compensation=pb.Compensation(kind="refund"),
    )
    done = await rpc.RecordExternalObservation(seen)
    assert (done.status, done.external_ref) == (pb.EFFECT_STATUS_CONFIRMED, "ref")
    assert (done.response_json, done.dispatch_claimed_by) == ('{"id": 1}', "")
    assert await rpc.RecordExternalObservation(seen) == done
    (owed,) = (await rpc.ListObligations(pb.ListObligationsRequest(run_id=run_id))).obligations
    assert (owed.effect_key, owed.kind) == ("k", "refund")
    unknown = pb.ClaimEffectDispatchRequest(run_id=run_id, idempotency_key="none", claimer="c")
    assert await refused(rpc.ClaimEffectDispatch(unknown)) == ("NOT_FOUND", "NOT_FOUND")


async def test_keeping_a_claim(rpc: Any, run_id: str) -> None:
    await begin_effect(rpc, run_id)
    claim = await claimed_effect(rpc, run_id, "k", lease_ttl_ms=60_000)
    renew = pb.RenewEffectClaimRequest(
        run_id=run_id, idempotency_key="k", fencing_token=1, lease_ttl_ms=600_000
    )
    kept = await rpc.RenewEffectClaim(renew)
    before = claim.effect.dispatch_claim_expires_at_ms
    assert kept.dispatch_claim_expires_at_ms >= before + 500_000
    renew.lease_ttl_ms = 10**12
    assert await fault(rpc.RenewEffectClaim(renew)) == "lease_ttl_ms"


async def test_reconciling(rpc: Any, run_id: str) -> None:
    await begin_effect(rpc, run_id)
    await begin_effect(rpc, run_id, "inline", dispatch_mode=1, semantics=1)

    async def waiting(**query: Any) -> list[str]:
        request = pb.ListPendingEffectsRequest(**query)
        return [e.idempotency_key for e in (await rpc.ListPendingEffects(request)).effects]

    assert await waiting() == await waiting(include_unknown=True) == []
    assert await waiting(include_pending=True) == ["k", "inline"]
    assert await waiting(include_pending=True, older_than_ms=3_600_000) == []
    claim = await claimed_effect(rpc, run_id, "k")
    attempt = pb.RecordDispatchAttemptRequest(
        run_id=run_id, idempotency_key="k", fencing_token=claim.fencing_token, error="no answer"
    )
    assert (await rpc.RecordDispatchAttempt(attempt)).status == pb.EFFECT_STATUS_UNKNOWN
    assert await waiting() == await waiting(connectors=["pay"]) == ["k"]
    assert await waiting(connectors=["post"]) == []
    claim = await claimed_effect(rpc, run_id, "k")
    settle = pb.ReconcileEffectRequest(
        run_id=run_id,
        idempotency_key="k",
        fencing_token=claim.fencing_token,
        resolved_status=pb.EFFECT_STATUS_FAILED,
        error_json='"declined"',
    )
    done = await rpc.ReconcileEffect(settle)
    assert (done.status, done.error_json) == (pb.EFFECT_STATUS_FAILED, '"declined"')
    assert done.response_json == "null"
    assert await rpc.ReconcileEffect(settle) == done
    settle.resolved_status = pb.EFFECT_STATUS_UNKNOWN
    assert await fault(rpc.ReconcileEffect(settle)) == "resolved_status"
    negative = pb.ListPendingEffectsRequest(older_than_ms=-1)
    assert await fault(rpc.ListPendingEffects(negative)) == "older_than_ms"


async def test_what_happened_once_too_often(rpc: Any, run_id: str) -> None:
    await begin_effect(rpc, run_id)
    claim = await claimed_effect(rpc, run_id, "k")
    seen = pb.RecordExternalObservationRequest(
        run_id=run_id,
        idempotency_key="k",
        fencing_token=claim.fencing_token,
        resolution=pb.EFFECT_RESOLUTION_DUPLICATE,
        response_json='{"twice": [1, 2]}',
        compensate_on_duplicate_kind="refund",
    )
    assert (await rpc.RecordExternalObservation(seen)).status == pb.EFFECT_STATUS_CONFIRMED
    (owed,) = (await rpc.ListObligations(pb.ListObligationsRequest(run_id=run_id))).obligations
    assert (owed.kind, owed.payload_json, owed.below) == ("refund", '{"twice": [1, 2]}', -1)
    due = (await rpc.ListUnresolvedObligations(pb.ListUnresolvedObligationsRequest())).obligations
    assert list(due) == [owed]
    seen.resolution = 9  # type: ignore[assignment]
    assert await fault(rpc.RecordExternalObservation(seen)) == "resolution"


async def failed_run(rpc: Any, run_id: str, *kinds: str) -> list[int]:
    """A run that is unwinding; the seqs of its obligations, newest first."""
    for kind in kinds:
        await rpc.RegisterCompensation(
            pb.RegisterCompensationRequest(
                run_id=run_id, fencing_token=1, effect_key="k", kind=kind, max_attempts=2
            )
        )
    end = pb.EndRunRequest(run_id=run_id, fencing_token=1, status=pb.RUN_STATUS_FAILED)
    assert (await rpc.EndRun(end)).run.status == pb.RUN_STATUS_COMPENSATING
    listed = await rpc.ListObligations(pb.ListObligationsRequest(run_id=run_id))
    return [row.seq for row in listed.obligations]


async def unresolved(rpc: Any, **query: Any) -> list[tuple[str, int]]:
    request = pb.ListUnresolvedObligationsRequest(**query)
    found = (await rpc.ListUnresolvedObligations(request)).obligations
    return [(row.kind, row.status) for row in found]


async def test_compensating(rpc: Any, run_id: str) -> None:
    top, below = await failed_run(rpc, run_id, "first", "last")
    pending, committed = pb.OBLIGATION_STATUS_PENDING, pb.OBLIGATION_STATUS_COMMITTED
    assert (
        await unresolved(rpc)
        == await unresolved(rpc, include_pending=True, now_ms=1)
        == [("last", pending)]
    )
    assert await unresolved(rpc, include_stuck=True) == []
    too_low = pb.ClaimObligationRequest(run_id=run_id, obligation_seq=below, claimer="c")
    assert not (await rpc.ClaimObligation(too_low)).acquired
    claim = await claimed_obligation(rpc, run_id, top, lease_ttl_ms=1)
    assert (claim.fencing_token, claim.obligation.fencing_token) == (1, 1)
    assert (claim.obligation.status, claim.obligation.attempts) == (committed, 1)
    while await unresolved(rpc, include_committed_expired=True) != [("last", committed)]:
        pass
    claim = await claimed_obligation(rpc, run_id, top)
    resolve = pb.ResolveObligationRequest(
        run_id=run_id,
        obligation_seq=top,
        fencing_token=claim.fencing_token,
        status=pb.OBLIGATION_STATUS_COMPENSATED,
        result_json="[1]",
    )
    done = await rpc.ResolveObligation(resolve)
    assert (done.status, done.result_json) == (pb.OBLIGATION_STATUS_COMPENSATED, "[1]")
    assert await rpc.ResolveObligation(resolve) == done
    left = pb.ListObligationsRequest(run_id=run_id, only_unresolved=True)
    assert [row.seq for row in (await rpc.ListObligations(left)).obligations] == [below]
    by_name = pb.ClaimObligationRequest(run_id=run_id, effect_key="k", kind="first", claimer="c")
    claim = await rpc.ClaimObligation(by_name)
    assert (claim.acquired, claim.obligation.seq) == (True, below)
    resolve.obligation_seq = below
    resolve.fencing_token = claim.fencing_token
    await rpc.ResolveObligation(resolve)
    run = await rpc.GetRun(pb.GetRunRequest(run_id=run_id))
    assert (run.status, run.top_obligation) == (pb.RUN_STATUS_FAILED, 0)
    assert (await subjects(rpc, run_id))[-2:] == ["obligation/compensated", "run/failed"]


async def test_a_compensation_that_does_not_work(rpc: Any, run_id: str) -> None:
    (seq,) = await failed_run(rpc, run_id, "refund")
    await claimed_obligation(rpc, run_id, seq)
    renew = pb.RenewObligationClaimRequest(run_id=run_id, obligation_seq=seq, fencing_token=1)
    assert (await rpc.RenewObligationClaim(renew)).claimed_by == "c"
    attempt = pb.RecordObligationAttemptRequest(
        run_id=run_id, obligation_seq=seq, fencing_token=1, error="a\0way", next_attempt_at_ms=1
    )
    tried = await rpc.RecordObligationAttempt(attempt)
    assert (tried.status, tried.last_error) == (pb.OBLIGATION_STATUS_PENDING, "a\\0way")
    claim = await claimed_obligation(rpc, run_id, seq)
    attempt.fencing_token = claim.fencing_token
    attempt.next_attempt_at_ms = 0
    assert (await rpc.RecordObligationAttempt(attempt)).status == pb.OBLIGATION_STATUS_STUCK
    run = await rpc.GetRun(pb.GetRunRequest(run_id=run_id))
    assert (run.status, run.ending) == (pb.RUN_STATUS_STUCK, pb.RUN_STATUS_FAILED)
    assert await unresolved(rpc) == []
    assert await unresolved(rpc, include_stuck=True) == [("refund", pb.OBLIGATION_STATUS_STUCK)]
    back = await rpc.ResumeRun(pb.ResumeRunRequest(run_id=run_id))
    assert back.run.status == pb.RUN_STATUS_COMPENSATING


async def test_obligations_that_are_not_there(rpc: Any, run_id: str) -> None:
    (seq,) = await failed_run(rpc, run_id, "refund")
    for wrong in (seq + 1, 0):
        claim = pb.ClaimObligationRequest(run_id=run_id, obligation_seq=wrong, claimer="c")
        assert await refused(rpc.ClaimObligation(claim)) == ("NOT_FOUND", "NOT_FOUND")
    claim = pb.ClaimObligationRequest(run_id=run_id, effect_key="k", claimer="c")
    assert await fault(rpc.ClaimObligation(claim)) == "kind"
    claim.kind = "refund"
    claim.obligation_seq = seq
    assert await fault(rpc.ClaimObligation(claim)) == "obligation_seq"
    resolve = pb.ResolveObligationRequest(run_id=run_id, obligation_seq=seq, fencing_token=1)
    assert await fault(rpc.ResolveObligation(resolve)) == "status"
    attempt = pb.RecordObligationAttemptRequest(
        run_id=run_id, obligation_seq=seq, next_attempt_at_ms=-1
    )
    assert await fault(rpc.RecordObligationAttempt(attempt)) == "next_attempt_at_ms"


async def test_a_claim_outlives_the_lease_of_its_run(rpc: Any, run_id: str) -> None:
    await begin_effect(rpc, run_id)
    claim = await claimed_effect(rpc, run_id, "k")
    await rpc.HeartbeatRun(pb.HeartbeatRunRequest(run_id=run_id, fencing_token=1, lease_ttl_ms=1))
    await taken_over(rpc, run_id)
    settle = pb.ReconcileEffectRequest(
        run_id=run_id,
        idempotency_key="k",
        fencing_token=claim.fencing_token,
        resolved_status=pb.EFFECT_STATUS_CONFIRMED,
    )
    assert (await rpc.ReconcileEffect(settle)).status == pb.EFFECT_STATUS_CONFIRMED
