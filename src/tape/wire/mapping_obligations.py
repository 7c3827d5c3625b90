"""Obligations. A row's `claim_token` is the `fencing_token` of its record."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from tape.model.obligation import (
    ClaimObligation,
    Obligation,
    ObligationKey,
    RecordObligationAttempt,
    RegisterCompensation,
    RenewObligationClaim,
    ResolveObligation,
)
from tape.wire.v1 import tape_pb2 as pb

_NAMES = tuple("fencing_token" if name == "claim_token" else name for name in Obligation._fields)
_obligation_fields = attrgetter(*_NAMES)
_register_fields = attrgetter(*RegisterCompensation._fields)

Keyed = (
    pb.ClaimObligationRequest
    | pb.RenewObligationClaimRequest
    | pb.RecordObligationAttemptRequest
    | pb.ResolveObligationRequest
)


def obligation_to_wire(row: Obligation) -> pb.ObligationRecord:
    fields: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    return pb.ObligationRecord(**fields)


def obligation_from_wire(message: pb.ObligationRecord) -> Obligation:
    return Obligation._make(_obligation_fields(message))


def obligations_from_wire(messages: Iterable[pb.ObligationRecord]) -> list[Obligation]:
    return [obligation_from_wire(message) for message in messages]


def register_to_wire(write: RegisterCompensation) -> pb.RegisterCompensationRequest:
    return pb.RegisterCompensationRequest(**write._asdict())


def register_from_wire(request: pb.RegisterCompensationRequest) -> RegisterCompensation:
    return RegisterCompensation._make(_register_fields(request))


def compensation_to_wire(write: RegisterCompensation) -> pb.Compensation:
    return pb.Compensation(**write._asdict())


def compensation_from_wire(message: pb.Compensation, effect_key: str) -> RegisterCompensation:
    write = RegisterCompensation._make(_register_fields(message))
    return write if write.effect_key else write._replace(effect_key=effect_key)


def claim_to_wire(run_id: str, write: ClaimObligation) -> pb.ClaimObligationRequest:
    return pb.ClaimObligationRequest(
        run_id=run_id,
        **write.key._asdict(),
        claimer=write.claimer,
        lease_ttl_ms=write.lease_ttl_ms,
    )


def claimed_to_wire(row: Obligation | None) -> pb.ClaimObligationResponse:
    if row is None:
        return pb.ClaimObligationResponse()
    return pb.ClaimObligationResponse(
        acquired=True, obligation=obligation_to_wire(row), fencing_token=row.claim_token
    )


def claimed_from_wire(message: pb.ClaimObligationResponse) -> Obligation | None:
    return obligation_from_wire(message.obligation) if message.acquired else None


def renewal_to_wire(run_id: str, write: RenewObligationClaim) -> pb.RenewObligationClaimRequest:
    return pb.RenewObligationClaimRequest(
        run_id=run_id,
        **write.key._asdict(),
        fencing_token=write.claim_token,
        lease_ttl_ms=write.lease_ttl_ms,
    )


def attempt_to_wire(
    run_id: str, write: RecordObligationAttempt
) -> pb.RecordObligationAttemptRequest:
    return pb.RecordObligationAttemptRequest(
        run_id=run_id,
        **write.key._asdict(),
        fencing_token=write.claim_token,
        error=write.error,
        next_attempt_at_ms=write.next_attempt_at_ms,
        traceback=write.traceback,
    )


def attempt_from_wire(
    request: pb.RecordObligationAttemptRequest, key: ObligationKey
) -> RecordObligationAttempt:
    return RecordObligationAttempt(
        key,
        request.fencing_token,
        request.error,
        request.next_attempt_at_ms,
        traceback=request.traceback,
    )


def resolve_to_wire(run_id: str, write: ResolveObligation) -> pb.ResolveObligationRequest:
    request = pb.ResolveObligationRequest(
        run_id=run_id,
        **write.key._asdict(),
        fencing_token=write.claim_token,
        result_json=write.result_json,
    )
    # Stubs know enums by their own type, the model by their number.
    request.status = write.status  # type: ignore[assignment]
    return request


def resolve_from_wire(
    request: pb.ResolveObligationRequest, key: ObligationKey
) -> ResolveObligation:
    return ResolveObligation(key, request.fencing_token, request.status, request.result_json)
