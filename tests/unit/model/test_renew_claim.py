"""Claims that are renewed while the work goes on, and what an obligation that comes late does."""

from tape.errors import InvalidArgument, NotFound, StaleLease
from tape.model.effect import BeginEffect, DispatchMode, Effect, Semantics
from tape.model.effect_claim import (
    STUCK_PAUSE_MS,
    ClaimEffect,
    RecordExternalObservation,
    RenewClaim,
    Resolution,
)
from tape.model.obligation import (
    ClaimObligation,
    Obligation,
    ObligationKey,
    ObligationStatus,
    RegisterCompensation,
    RenewObligationClaim,
    ResolveObligation,
)
from tape.model.run import RunStatus
from tape.model.run_end import EndRun
from tests.unit.model.run_world import RUN, TTL, World, driven, faulty, refused

KEY = f"{RUN}/decision-0/wire/0"
UNDO = ObligationKey(KEY, "undo")


def claimed_effect() -> tuple[World, Effect]:
    world = driven()
    world.drive(
        BeginEffect(
            0,
            "wire",
            0,
            semantics=Semantics.NON_IDEMPOTENT,
            dispatch_mode=DispatchMode.OUTBOX,
        )
    )
    return world, world.change(ClaimEffect(KEY, "a", TTL))


def claimed_obligation() -> tuple[World, Obligation]:
    world = driven()
    world.drive(RegisterCompensation(*UNDO))
    world.drive(EndRun(RunStatus.FAILED, parent_run_id=""))
    return world, world.change(ClaimObligation(UNDO, "a", TTL))


def test_an_effects_claim_lives_on_and_leaves_no_entry() -> None:
    world, claim = claimed_effect()
    entries = len(world.entries)
    world.now_ms += TTL - 1
    renewed = world.change(RenewClaim(KEY, claim.claim_token, TTL))
    assert renewed.dispatch_claim_expires_at_ms == world.now_ms + TTL
    assert renewed.claim_token == claim.claim_token
    world.now_ms += TTL - 1
    assert world.change(ClaimEffect(KEY, "b", TTL)) is None
    assert world.effect(KEY) == renewed
    assert len(world.entries) == entries


def test_a_claim_that_ran_out_is_renewed_until_another_takes_over() -> None:
    world, claim = claimed_effect()
    world.now_ms += 2 * TTL
    assert world.change(RenewClaim(KEY, claim.claim_token, TTL)).dispatch_claimed_by == "a"
    world.now_ms += 2 * TTL
    world.change(ClaimEffect(KEY, "b", TTL))
    with refused(world, StaleLease):
        world.change(RenewClaim(KEY, claim.claim_token, TTL))


def test_only_the_newest_claim_of_an_effect_is_renewed() -> None:
    world, claim = claimed_effect()
    for token in (claim.claim_token - 1, claim.claim_token + 1):
        with refused(world, StaleLease):
            world.change(RenewClaim(KEY, token, TTL))
    with refused(world, NotFound):
        world.change(RenewClaim("no such", 1, TTL))
    faulty(RenewClaim("", 1, TTL), InvalidArgument, "idempotency_key")
    faulty(RenewClaim(KEY, 1, 0), InvalidArgument, "lease_ttl_ms")


def test_an_obligations_claim_lives_on_and_leaves_no_entry() -> None:
    world, claim = claimed_obligation()
    entries = len(world.entries)
    world.now_ms += TTL - 1
    renewed = world.change(RenewObligationClaim(UNDO, claim.claim_token, TTL))
    assert renewed.claim_expires_at_ms == world.now_ms + TTL
    world.now_ms += TTL - 1
    assert world.change(ClaimObligation(UNDO, "b", TTL)) is None
    assert len(world.entries) == entries
    world.now_ms += 1
    world.change(ClaimObligation(UNDO, "b", TTL))
    with refused(world, StaleLease):
        world.change(RenewObligationClaim(UNDO, claim.claim_token, TTL))
    faulty(RenewObligationClaim(UNDO, 1, 0), InvalidArgument, "lease_ttl_ms")


def test_a_stuck_effect_is_left_alone_for_a_while() -> None:
    world, claim = claimed_effect()
    world.change(RecordExternalObservation(KEY, claim.claim_token, Resolution.STUCK))
    assert world.run().status == RunStatus.STUCK
    world.now_ms += STUCK_PAUSE_MS - 1
    assert world.change(ClaimEffect(KEY, "b", TTL)) is None
    world.now_ms += 1
    assert world.change(ClaimEffect(KEY, "b", TTL)) is not None


def test_what_is_confirmed_while_another_is_unwound_is_undone_too() -> None:
    """It must not be forgotten because it was not the top when the other was claimed."""
    world, effect = claimed_effect()
    other = ObligationKey("other", "undo")
    world.drive(RegisterCompensation(*other))
    world.drive(EndRun(RunStatus.FAILED, parent_run_id=""))
    top = world.change(ClaimObligation(other, "a", TTL))
    compensation = RegisterCompensation(*UNDO)
    world.change(
        RecordExternalObservation(
            KEY, effect.claim_token, Resolution.CONFIRMED, compensation=compensation
        )
    )
    world.change(_compensated(other, top))
    late = world.change(ClaimObligation(UNDO, "b", TTL))
    world.change(_compensated(UNDO, late))
    assert world.run().status == RunStatus.FAILED


def _compensated(key: ObligationKey, claim: Obligation) -> ResolveObligation:
    done = ObligationStatus.COMPENSATED
    return ResolveObligation(key, claim.claim_token, done, parent_run_id="")
