"""Obligations, where more than names is mapped."""

from tape.model.obligation import Obligation
from tape.wire.records import OBLIGATION
from tape.wire.v1 import tape_pb2 as pb

Keyed = (
    pb.ClaimObligationRequest
    | pb.RenewObligationClaimRequest
    | pb.RecordObligationAttemptRequest
    | pb.ResolveObligationRequest
)


def claimed_to_wire(row: Obligation | None) -> pb.ClaimObligationResponse:
    if row is None:
        return pb.ClaimObligationResponse()
    return pb.ClaimObligationResponse(
        acquired=True, obligation=OBLIGATION.to_wire(row), fencing_token=row.claim_token
    )


def claimed_from_wire(message: pb.ClaimObligationResponse) -> Obligation | None:
    return OBLIGATION.from_wire(message.obligation) if message.acquired else None
