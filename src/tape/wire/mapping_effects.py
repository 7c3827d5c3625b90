"""Effects, where more than names is mapped."""

from tape.model.effect import CompleteEffect, Effect
from tape.model.effect_claim import RecordExternalObservation
from tape.model.obligation import RegisterCompensation
from tape.ports.runs import PendingQuery
from tape.wire.records import COMPLETE_EFFECT, EFFECT, OBSERVATION, PENDING_QUERY
from tape.wire.v1 import tape_pb2 as pb


def found_to_wire(row: Effect | None) -> pb.GetEffectResponse:
    if row is None:
        return pb.GetEffectResponse()
    return pb.GetEffectResponse(found=True, effect=EFFECT.to_wire(row))


def found_from_wire(message: pb.GetEffectResponse) -> Effect | None:
    return EFFECT.from_wire(message.effect) if message.found else None


def begun_to_wire(row: Effect) -> pb.BeginEffectResponse:
    """What an effect came to is beside its record, not in it once more."""
    record = EFFECT.to_wire(row._replace(response_json="", error_json=""))
    return pb.BeginEffectResponse(
        seq=row.seq,
        idempotency_key=row.idempotency_key,
        status=record.status,
        response_json=row.response_json,
        error_json=row.error_json,
        effect=record,
    )


def begun_from_wire(message: pb.BeginEffectResponse) -> Effect:
    return EFFECT.from_wire(message.effect)._replace(
        response_json=message.response_json, error_json=message.error_json
    )


def complete_from_wire(request: pb.CompleteEffectRequest) -> CompleteEffect:
    write = COMPLETE_EFFECT.from_wire(request)
    return write._replace(compensation=_of_effect(write.compensation, write.idempotency_key))


def claimed_to_wire(row: Effect | None) -> pb.ClaimEffectDispatchResponse:
    if row is None:
        return pb.ClaimEffectDispatchResponse()
    return pb.ClaimEffectDispatchResponse(
        acquired=True, effect=EFFECT.to_wire(row), fencing_token=row.claim_token
    )


def claimed_from_wire(message: pb.ClaimEffectDispatchResponse) -> Effect | None:
    return EFFECT.from_wire(message.effect) if message.acquired else None


def observation_from_wire(
    request: pb.RecordExternalObservationRequest,
) -> RecordExternalObservation:
    write = OBSERVATION.from_wire(request)
    key, on_duplicate = write.idempotency_key, write.on_duplicate
    if on_duplicate is None and request.compensate_on_duplicate_kind:
        on_duplicate = RegisterCompensation(
            key, request.compensate_on_duplicate_kind, request.response_json
        )
    return write._replace(
        compensation=_of_effect(write.compensation, key), on_duplicate=_of_effect(on_duplicate, key)
    )


def pending_from_wire(request: pb.ListPendingEffectsRequest) -> PendingQuery:
    query = PENDING_QUERY.from_wire(request)
    return query._replace(include_unknown=query.include_unknown or not query.include_pending)


def connectors_from_wire(request: pb.ListEffectsToDispatchRequest) -> tuple[str, ...]:
    named = (request.connector, *request.connectors)
    return tuple(connector for connector in named if connector)


def _of_effect(write: RegisterCompensation | None, key: str) -> RegisterCompensation | None:
    """A compensation that names no effect is for the one that it comes with."""
    return write if write is None or write.effect_key else write._replace(effect_key=key)
