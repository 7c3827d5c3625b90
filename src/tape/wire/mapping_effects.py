"""Effects: what a run's driver writes of them, and what whoever claims them does.

A row's `claim_token` is the `fencing_token` of its record.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from tape.model.effect import BeginEffect, CompleteEffect, Effect
from tape.model.effect_claim import (
    ClaimEffect,
    ReconcileEffect,
    RecordDispatchAttempt,
    RecordExternalObservation,
    RenewClaim,
)
from tape.model.obligation import RegisterCompensation
from tape.ports.runs import PendingQuery
from tape.wire.mapping_obligations import compensation_from_wire, compensation_to_wire
from tape.wire.v1 import tape_pb2 as pb

_NAMES = (*Effect._fields[:-1], "fencing_token")
_effect_fields = attrgetter(*_NAMES)
_begin_fields = attrgetter(*BeginEffect._fields)

Compensated = pb.CompleteEffectRequest | pb.RecordExternalObservationRequest


def effect_to_wire(row: Effect) -> pb.EffectRecord:
    fields: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    return pb.EffectRecord(**fields)


def effect_from_wire(message: pb.EffectRecord) -> Effect:
    return Effect._make(_effect_fields(message))


def effects_from_wire(messages: Iterable[pb.EffectRecord]) -> list[Effect]:
    return [effect_from_wire(message) for message in messages]


def found_to_wire(row: Effect | None) -> pb.GetEffectResponse:
    if row is None:
        return pb.GetEffectResponse()
    return pb.GetEffectResponse(found=True, effect=effect_to_wire(row))


def found_from_wire(message: pb.GetEffectResponse) -> Effect | None:
    return effect_from_wire(message.effect) if message.found else None


def begin_to_wire(write: BeginEffect) -> pb.BeginEffectRequest:
    return pb.BeginEffectRequest(**write._asdict())


def begin_from_wire(request: pb.BeginEffectRequest) -> BeginEffect:
    return BeginEffect._make(_begin_fields(request))


def begun_to_wire(row: Effect) -> pb.BeginEffectResponse:
    """What an effect came to is beside its record, not in it once more."""
    record = effect_to_wire(row._replace(response_json="", error_json=""))
    return pb.BeginEffectResponse(
        seq=row.seq,
        idempotency_key=row.idempotency_key,
        status=record.status,
        response_json=row.response_json,
        error_json=row.error_json,
        effect=record,
    )


def begun_from_wire(message: pb.BeginEffectResponse) -> Effect:
    return effect_from_wire(message.effect)._replace(
        response_json=message.response_json, error_json=message.error_json
    )


def complete_to_wire(write: CompleteEffect) -> pb.CompleteEffectRequest:
    fields = write._asdict() | {"compensation": _compensation(write.compensation)}
    return pb.CompleteEffectRequest(**fields)


def complete_from_wire(request: pb.CompleteEffectRequest) -> CompleteEffect:
    return CompleteEffect(
        request.idempotency_key,
        request.status,
        request.response_json,
        request.error_json,
        _compensation_of(request),
    )


def claim_to_wire(run_id: str, write: ClaimEffect) -> pb.ClaimEffectDispatchRequest:
    return pb.ClaimEffectDispatchRequest(run_id=run_id, **write._asdict())


def claimed_to_wire(row: Effect | None) -> pb.ClaimEffectDispatchResponse:
    if row is None:
        return pb.ClaimEffectDispatchResponse()
    return pb.ClaimEffectDispatchResponse(
        acquired=True, effect=effect_to_wire(row), fencing_token=row.claim_token
    )


def claimed_from_wire(message: pb.ClaimEffectDispatchResponse) -> Effect | None:
    return effect_from_wire(message.effect) if message.acquired else None


def renewal_to_wire(run_id: str, write: RenewClaim) -> pb.RenewEffectClaimRequest:
    return pb.RenewEffectClaimRequest(
        run_id=run_id,
        idempotency_key=write.idempotency_key,
        fencing_token=write.claim_token,
        lease_ttl_ms=write.lease_ttl_ms,
    )


def attempt_to_wire(run_id: str, write: RecordDispatchAttempt) -> pb.RecordDispatchAttemptRequest:
    return pb.RecordDispatchAttemptRequest(
        run_id=run_id,
        idempotency_key=write.idempotency_key,
        fencing_token=write.claim_token,
        error=write.error,
        next_dispatch_at_ms=write.next_dispatch_at_ms,
        traceback=write.traceback,
    )


def attempt_from_wire(request: pb.RecordDispatchAttemptRequest) -> RecordDispatchAttempt:
    return RecordDispatchAttempt(
        request.idempotency_key,
        request.fencing_token,
        request.error,
        request.next_dispatch_at_ms,
        request.traceback,
    )


def observation_to_wire(
    run_id: str, write: RecordExternalObservation
) -> pb.RecordExternalObservationRequest:
    request = pb.RecordExternalObservationRequest(
        run_id=run_id,
        idempotency_key=write.idempotency_key,
        fencing_token=write.claim_token,
        external_ref=write.external_ref,
        response_json=write.response_json,
        error_json=write.error_json,
        compensation=_compensation(write.compensation),
        on_duplicate=_compensation(write.on_duplicate),
    )
    # Stubs know enums by their own type, the model by their number.
    request.resolution = write.resolution  # type: ignore[assignment]
    return request


def observation_from_wire(
    request: pb.RecordExternalObservationRequest,
) -> RecordExternalObservation:
    key = request.idempotency_key
    on_duplicate = None
    if request.HasField("on_duplicate"):
        on_duplicate = compensation_from_wire(request.on_duplicate, key)
    elif request.compensate_on_duplicate_kind:
        on_duplicate = RegisterCompensation(
            key, request.compensate_on_duplicate_kind, request.response_json
        )
    return RecordExternalObservation(
        key,
        request.fencing_token,
        request.resolution,
        request.external_ref,
        request.response_json,
        request.error_json,
        _compensation_of(request),
        on_duplicate,
    )


def reconcile_to_wire(run_id: str, write: ReconcileEffect) -> pb.ReconcileEffectRequest:
    request = pb.ReconcileEffectRequest(
        run_id=run_id,
        idempotency_key=write.idempotency_key,
        fencing_token=write.claim_token,
        response_json=write.response_json,
        error_json=write.error_json,
    )
    request.resolved_status = write.resolved_status  # type: ignore[assignment]  # as above
    return request


def reconcile_from_wire(request: pb.ReconcileEffectRequest) -> ReconcileEffect:
    return ReconcileEffect(
        request.idempotency_key,
        request.fencing_token,
        request.resolved_status,
        request.response_json,
        request.error_json,
    )


def pending_to_wire(query: PendingQuery) -> pb.ListPendingEffectsRequest:
    return pb.ListPendingEffectsRequest(**query._asdict())


def pending_from_wire(request: pb.ListPendingEffectsRequest) -> PendingQuery:
    return PendingQuery(
        request.older_than_ms,
        request.limit,
        request.include_pending,
        request.include_unknown or not request.include_pending,
        tuple(request.connectors),
    )


def connectors_from_wire(request: pb.ListEffectsToDispatchRequest) -> tuple[str, ...]:
    named = (request.connector, *request.connectors)
    return tuple(connector for connector in named if connector)


def _compensation(write: RegisterCompensation | None) -> pb.Compensation | None:
    return None if write is None else compensation_to_wire(write)


def _compensation_of(request: Compensated) -> RegisterCompensation | None:
    if not request.HasField("compensation"):
        return None
    return compensation_from_wire(request.compensation, request.idempotency_key)
