"""Claiming effects, for the reactors that dispatch and that reconcile them."""

from collections.abc import Iterable

from tape.model.effect import Effect, EffectStatus
from tape.model.effect_claim import ClaimEffect, RecordDispatchAttempt, RenewClaim
from tape.runs.declare import EffectSpec
from tape.runs.operations import RunOperations
from tape.runs.reactors.claims import ClaimKeeper, ClaimRules, WorkClaim
from tape.settings import ReactorSettings


def effect_claims(
    reactor: str, runs: RunOperations, settings: ReactorSettings, owner: str
) -> ClaimKeeper[Effect]:
    rules = ClaimRules[Effect](
        take=lambda row, ttl_ms: ClaimEffect(row.idempotency_key, owner, ttl_ms),
        renew=lambda row, ttl_ms: RenewClaim(row.idempotency_key, row.claim_token, ttl_ms),
        expires_at_ms=lambda row: row.dispatch_claim_expires_at_ms,
        describe=lambda row: f"effect {row.idempotency_key}",
    )
    return ClaimKeeper(reactor, runs, rules, settings)


def connectors(specs: Iterable[EffectSpec]) -> tuple[str, ...]:
    """What their effects are asked for by."""
    return tuple(sorted({spec.connector or spec.name for spec in specs}))


async def is_still(
    status: EffectStatus, claim: WorkClaim[Effect], claims: ClaimKeeper[Effect]
) -> bool:
    """Whether a claimed effect is what it was listed as; if not, its claim is given back.

    One claim serves dispatch and reconciliation, and a list may be older than the claim: what was
    to be dispatched may be in doubt by now, and whoever dispatched it then would do it twice.
    """
    row = claim.row
    if row.status == status:
        return True
    words = f"claimed as {status.name.lower()}, but its status had changed"
    await claims.write(
        claim,
        RecordDispatchAttempt(row.idempotency_key, row.claim_token, words, claim.taken_at_ms),
    )
    return False
