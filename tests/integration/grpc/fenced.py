"""A request for every call that is fenced, and the run that all of them are for."""

from itertools import count
from typing import Any

from tape.wire.v1 import tape_pb2 as pb
from tests.integration.grpc.running import begun, claimed_effect, claimed_obligation

STALE, LIVING = 1, 2
_NUMBERS = count(1)
SESSION: dict[str, Any] = {"app_name": "app", "user_id": "u", "session_id": "s"}


def driven(request: Any, /, **fields: Any) -> Any:
    """A request of the run's driver."""
    return lambda run_id, token: request(run_id=run_id, fencing_token=token, **fields)


def events(run_id: str, token: int) -> pb.RecordEventsRequest:
    mine = pb.NewEvent(event_type="a", run_id=run_id, fencing_token=token)
    return pb.RecordEventsRequest(events=[pb.NewEvent(event_type="b"), mine])


def child(run_id: str, token: int) -> pb.BeginRunRequest:
    return pb.BeginRunRequest(
        **SESSION, invocation_id="child", parent_run_id=run_id, parent_fencing_token=token
    )


def extension(run_id: str, token: int) -> pb.ExtendRunRequest:
    write = pb.RunWrite(set_timer=pb.SetTimerRequest(timer_id="new"))
    return pb.ExtendRunRequest(run_id=run_id, fencing_token=token, writes=[write])


FENCED: dict[str, Any] = {
    "RecordEvents": events,
    "RecordEventStream": events,
    "WriteValue": driven(
        pb.WriteValueRequest, namespace="n", key="k", value_json="2", if_version=-1
    ),
    "DeleteValue": driven(pb.DeleteValueRequest, namespace="n", key="k"),
    "AppendEvent": driven(pb.AppendEventRequest, **SESSION),
    "BeginRun": child,
    "HeartbeatRun": driven(pb.HeartbeatRunRequest, lease_ttl_ms=60_000),
    "ReleaseRun": driven(pb.ReleaseRunRequest),
    "EndRun": driven(pb.EndRunRequest, status=pb.RUN_STATUS_TERMINAL),
    "ExtendRun": extension,
    "RecordDecision": driven(pb.RecordDecisionRequest, decision_index=0),
    "BeginEffect": driven(pb.BeginEffectRequest, tool_name="t"),
    "CompleteEffect": driven(
        pb.CompleteEffectRequest, idempotency_key="inline", status=pb.EFFECT_STATUS_CONFIRMED
    ),
    "RenewEffectClaim": driven(pb.RenewEffectClaimRequest, idempotency_key="outbox"),
    "RecordDispatchAttempt": driven(pb.RecordDispatchAttemptRequest, idempotency_key="outbox"),
    "RecordExternalObservation": driven(
        pb.RecordExternalObservationRequest,
        idempotency_key="outbox",
        resolution=pb.EFFECT_RESOLUTION_CONFIRMED,
    ),
    "ReconcileEffect": driven(
        pb.ReconcileEffectRequest,
        idempotency_key="outbox",
        resolved_status=pb.EFFECT_STATUS_CONFIRMED,
    ),
    "RegisterCompensation": driven(pb.RegisterCompensationRequest, effect_key="k", kind="undo"),
    "RenewObligationClaim": driven(pb.RenewObligationClaimRequest, effect_key="k", kind="alone"),
    "RecordObligationAttempt": driven(
        pb.RecordObligationAttemptRequest, effect_key="k", kind="alone"
    ),
    "ResolveObligation": driven(
        pb.ResolveObligationRequest,
        effect_key="k",
        kind="alone",
        status=pb.OBLIGATION_STATUS_COMPENSATED,
    ),
    "SetBudget": driven(pb.SetBudgetRequest, usd_cap=1.0),
    "ChargeBudget": driven(pb.ChargeBudgetRequest, usd=1.0),
    "AwaitSignal": driven(pb.AwaitSignalRequest, gate_name="g"),
    "SetTimer": driven(pb.SetTimerRequest, timer_id="new"),
    "CancelTimer": driven(pb.CancelTimerRequest, timer_id="old"),
}


async def run_in_second_hands(rpc: Any) -> str:
    """A run with all that a call could change; its lease and both claims were taken over.

    Session and value are shared by all such runs of a server.
    """
    invocation = f"fenced {next(_NUMBERS)}"
    first = await begun(rpc, invocation_id=invocation)
    run: dict[str, Any] = {"run_id": first.run_id, "fencing_token": first.fencing_token}
    outbox: dict[str, Any] = {"custom_key": "outbox", "dispatch_mode": 2, "semantics": 1}
    if not (await rpc.GetSession(pb.GetSessionRequest(**SESSION))).found:
        await rpc.CreateSession(pb.CreateSessionRequest(**SESSION))
    value: dict[str, Any] = {"namespace": "n", "key": "k", "value_json": "1", "if_version": -1}
    await rpc.WriteValue(pb.WriteValueRequest(**value))
    await rpc.BeginEffect(pb.BeginEffectRequest(**run, tool_name="t", custom_key="inline"))
    await rpc.BeginEffect(pb.BeginEffectRequest(**run, tool_name="t", **outbox))
    await rpc.SetTimer(pb.SetTimerRequest(**run, timer_id="old", after_ms=3_600_000))
    owed = await rpc.RegisterCompensation(
        pb.RegisterCompensationRequest(**run, effect_key="k", kind="alone", alone=True)
    )
    for ttl_ms in (1, 60_000):
        await claimed_effect(rpc, first.run_id, "outbox", lease_ttl_ms=ttl_ms)
        await claimed_obligation(rpc, first.run_id, owed.seq, lease_ttl_ms=ttl_ms)
    assert (await begun(rpc, invocation_id=invocation)).fencing_token == LIVING
    found: str = first.run_id
    return found
