"""Effects under a claim: dispatched at most as often as is safe."""

from typing import Any

import pytest

from tape.errors import InvalidArgument, NotFound, RunEnded, StaleLease, TooLarge
from tape.model.effect import (
    EFFECTS,
    BeginEffect,
    CompleteEffect,
)
from tape.model.effect_claim import (
    ClaimEffect,
    ReconcileEffect,
    RecordDispatchAttempt,
    RecordExternalObservation,
    RenewClaim,
    Resolution,
)
from tape.model.lease import MOST_TTL_MS
from tape.model.move import Need
from tape.model.obligation import (
    ClaimObligation,
    ObligationKey,
    ObligationStatus,
    ResolveObligation,
)
from tape.model.run import RunStatus
from tape.model.run_end import CancelRun
from tests.unit.model.effect_world import (
    BOTH,
    CONFIRMED,
    FAILED,
    INLINE,
    ONCE,
    OUTBOX,
    PENDING,
    UNDO,
    UNKNOWN,
    begun,
    claim,
    claimed,
    end,
    observe,
    unknown,
)
from tests.unit.model.run_world import (
    LIMITS,
    NOW,
    RUN,
    TTL,
    driven,
    faulty,
    refused,
    unchanged,
)


class TestClaimingToDispatch:
    @pytest.mark.parametrize("effect", BOTH)
    def test_it_is_the_claimers_for_a_while(self, effect: BeginEffect) -> None:
        world = begun(effect)
        before = world.effect("k")
        got = claim(world)
        assert got == world.effect("k") == before._replace(
            dispatch_claimed_by="d", dispatch_claim_expires_at_ms=NOW + TTL,
            dispatch_attempts=1, claim_token=1,
        )  # fmt: skip
        assert world.entries[-1].subject == f"/tape/effect/claimed/pay/{RUN}"
        assert (world.payload()["claimer"], world.payload()["attempt"]) == ("d", 1)
        world.now_ms += TTL - 1
        for claimer in ("d", "e"):
            with unchanged(world):
                assert claim(world, claimer) is None

    def test_an_idempotent_one_is_tried_again_when_the_claim_ran_out(self) -> None:
        world = claimed(OUTBOX)
        world.now_ms += TTL
        got = claim(world, "e")
        assert got is not None
        assert (got.claim_token, got.dispatch_attempts) == (2, 2)
        assert (got.status, got.dispatch_claimed_by) == (PENDING, "e")

    def test_one_that_is_not_is_unknown_instead(self) -> None:
        world = claimed(ONCE)
        world.now_ms += TTL
        assert claim(world, "e") is None
        after = world.effect("k")
        assert (after.status, after.claim_token, after.dispatch_attempts) == (UNKNOWN, 1, 1)
        assert (after.dispatch_claimed_by, after.last_dispatch_error) == ("", "the claim ran out")
        assert world.verbs()[-1] == "effect unknown"

    def test_an_inline_one_is_its_drivers(self) -> None:
        world = begun(INLINE)
        world.now_ms += 10 * TTL
        with unchanged(world):
            assert claim(world) is None

    @pytest.mark.parametrize("effect", BOTH)
    def test_not_before_the_next_attempt_is_due(self, effect: BeginEffect) -> None:
        world = claimed(effect)
        world.change(RecordDispatchAttempt("k", 1, "refused", NOW + 50))
        world.now_ms += 49
        with unchanged(world):
            assert claim(world) is None
        world.now_ms += 1
        got = claim(world)
        assert got is not None
        assert got.claim_token == 2

    @pytest.mark.parametrize("resolution", [Resolution.CONFIRMED, Resolution.FAILED])
    def test_what_is_settled_is_nobodys(self, resolution: Resolution) -> None:
        world = claimed(ONCE)
        observe(world, resolution)
        world.now_ms += 10 * TTL
        with unchanged(world):
            assert claim(world) is None

    def test_an_unknown_effect_or_run(self) -> None:
        world = driven()
        with refused(world, NotFound):
            claim(world)
        with refused(world, NotFound):
            world.change(ClaimEffect("k", "d", TTL), "nobody")


class TestWhenTheRunIsGone:
    @pytest.mark.parametrize("effect", BOTH)
    @pytest.mark.parametrize("status", [RunStatus.TERMINAL, RunStatus.FAILED, RunStatus.CANCELLED])
    def test_what_was_never_tried_is_not_begun(
        self, effect: BeginEffect, status: RunStatus
    ) -> None:
        world = begun(effect)
        end(world, status)
        assert claim(world) is None
        assert world.effect("k").status == FAILED
        assert world.verbs()[-1] == "effect failed"
        assert world.payload()["error"] == {"error": "its run has ended"}

    def test_nor_while_it_is_unwound(self) -> None:
        world = begun(OUTBOX)
        world.drive(UNDO)
        end(world)
        assert claim(world) is None
        assert world.effect("k").status == FAILED

    def test_nor_is_what_certainly_failed_tried_again(self) -> None:
        world = claimed(OUTBOX)
        world.change(RecordDispatchAttempt("k", 1, "refused", NOW))
        end(world)
        assert claim(world) is None
        assert world.effect("k").status == FAILED

    @pytest.mark.parametrize("effect", BOTH)
    def test_what_was_tried_without_word_is_unknown(self, effect: BeginEffect) -> None:
        world = claimed(effect)
        end(world)
        with unchanged(world):
            assert claim(world) is None
        world.now_ms += TTL
        assert claim(world) is None
        assert world.effect("k").status == UNKNOWN

    def test_also_if_a_later_try_certainly_failed(self) -> None:
        """The claim before that one ran out: that act may have happened."""
        world = claimed(OUTBOX)
        world.now_ms += TTL
        claim(world)
        world.change(RecordDispatchAttempt("k", 2, "refused", world.now_ms))
        end(world)
        assert claim(world) is None
        assert world.effect("k").status == UNKNOWN

    def test_unless_it_was_looked_for_in_between(self) -> None:
        world = claimed(OUTBOX)
        world.now_ms += TTL
        claim(world)
        observe(world, Resolution.ABSENT)
        end(world)
        claim(world)
        assert world.effect("k").status == FAILED

    @pytest.mark.parametrize("status", [RunStatus.TERMINAL, RunStatus.FAILED])
    def test_an_inline_one_under_way_is_unknown(self, status: RunStatus) -> None:
        """Its driver can write no more, and somebody must be able to look."""
        world = begun(INLINE)
        end(world, status)
        assert claim(world) is None
        assert world.effect("k").status == UNKNOWN
        got = claim(world)
        assert got is not None
        assert (got.claim_token, got.dispatch_attempts) == (1, 0)

    def test_and_is_compensated_if_it_happened(self) -> None:
        world = begun(INLINE)
        world.now_ms += TTL
        world.change(CancelRun("enough", ""))
        with refused(world, RunEnded):
            world.extend(1, CompleteEffect("k", CONFIRMED, compensation=UNDO))
        claim(world)
        claim(world)
        observe(world, Resolution.CONFIRMED, compensation=UNDO)
        assert (world.run().status, world.run().ending) == (
            RunStatus.COMPENSATING, RunStatus.CANCELLED,
        )  # fmt: skip

    @pytest.mark.parametrize("effect", BOTH)
    def test_a_stuck_run_may_go_on_and_what_it_left_is_done(self, effect: BeginEffect) -> None:
        world = begun(effect)
        end(world, RunStatus.STUCK)
        assert claim(world) is not None
        assert world.effect("k").status == PENDING

    def test_what_a_stuck_run_did_itself_waits_for_its_next_driver(self) -> None:
        world = begun(INLINE)
        end(world, RunStatus.STUCK)
        with unchanged(world):
            assert claim(world) is None

    def test_one_that_is_stuck_in_unwinding_does_not_go_on(self) -> None:
        world = begun(OUTBOX)
        world.drive(UNDO)
        end(world)
        key = ObligationKey("k", "undo")
        token = world.change(ClaimObligation(key, "c", TTL)).claim_token
        world.change(ResolveObligation(key, token, ObligationStatus.STUCK, "1", ""))
        claim(world)
        assert world.effect("k").status == FAILED


class TestRenewing:
    @pytest.mark.parametrize("effect", BOTH)
    def test_a_claim_lasts_longer_without_an_entry(self, effect: BeginEffect) -> None:
        world = claimed(effect)
        before, entries = world.effect("k"), len(world.entries)
        world.now_ms += TTL + 5
        after = world.change(RenewClaim("k", 1, 70))
        assert after == before._replace(dispatch_claim_expires_at_ms=NOW + TTL + 75)
        assert after == world.effect("k")
        assert len(world.entries) == entries
        with unchanged(world):
            assert claim(world, "e") is None

    def test_not_with_another_token(self) -> None:
        world = claimed(ONCE)
        for token in (0, 2):
            with refused(world, StaleLease):
                world.change(RenewClaim("k", token, TTL))

    def test_not_once_it_was_let_go_of_taken_over_or_lost(self) -> None:
        world = claimed(OUTBOX)
        world.now_ms += TTL
        claim(world, "e")
        with refused(world, StaleLease):
            world.change(RenewClaim("k", 1, TTL))
        observe(world, Resolution.CONFIRMED)
        with refused(world, StaleLease):
            world.change(RenewClaim("k", 2, TTL))
        lost = claimed(ONCE)
        lost.now_ms += TTL
        claim(lost)
        with refused(lost, StaleLease):
            lost.change(RenewClaim("k", 1, TTL))


class TestAttempts:
    @pytest.mark.parametrize("effect", BOTH)
    def test_it_certainly_failed_and_is_tried_again_then(self, effect: BeginEffect) -> None:
        world = claimed(effect)
        after = world.change(RecordDispatchAttempt("k", 1, "refused", NOW + 50))
        assert after == world.effect("k")
        assert (after.status, after.dispatch_claimed_by) == (PENDING, "")
        assert (after.next_dispatch_at_ms, after.last_dispatch_error) == (NOW + 50, "refused")
        assert world.entries[-1].subject == f"/tape/effect/attempted/pay/{RUN}"
        assert world.payload()["error"] == "refused"

    @pytest.mark.parametrize("effect", BOTH)
    def test_it_may_have_happened(self, effect: BeginEffect) -> None:
        world = claimed(effect)
        after = world.change(RecordDispatchAttempt("k", 1, "lost"))
        assert after == world.effect("k")
        assert (after.status, after.dispatch_claimed_by) == (UNKNOWN, "")
        assert (after.next_dispatch_at_ms, after.last_dispatch_error) == (0, "lost")
        assert world.verbs()[-1] == "effect unknown"

    @pytest.mark.parametrize("next_ms", [0, NOW + 50])
    def test_what_is_unknown_stays_so(self, next_ms: int) -> None:
        world = unknown()
        claim(world)
        after = world.change(RecordDispatchAttempt("k", 2, "the bank is away", next_ms))
        assert (after.status, after.next_dispatch_at_ms) == (UNKNOWN, next_ms)

    @pytest.mark.parametrize("next_ms", [0, NOW + 50])
    def test_a_repeat_is_answered(self, next_ms: int) -> None:
        world = claimed(ONCE)
        write = RecordDispatchAttempt("k", 1, "lost", next_ms)
        after = world.change(write)
        with unchanged(world):
            assert world.change(write) == after

    def test_what_only_looks_like_a_repeat_is_stale(self) -> None:
        world = claimed(ONCE)
        world.change(RecordDispatchAttempt("k", 1, "lost", NOW + 50))
        for other in (
            RecordDispatchAttempt("k", 1, "lost", NOW + 51),
            RecordDispatchAttempt("k", 1, "lost"),
            RecordDispatchAttempt("k", 1, "else", NOW + 50),
            RecordDispatchAttempt("k", 0, "lost", NOW + 50),
        ):
            with refused(world, StaleLease):
                world.change(other)

    def test_not_with_another_token_or_without_a_claim(self) -> None:
        world = claimed(ONCE)
        for token in (0, 2):
            with refused(
                world, StaleLease, match="claimed by another worker, or its claim was released"
            ):
                world.change(RecordDispatchAttempt("k", token, "lost"))
        fresh = begun(ONCE)
        with refused(fresh, StaleLease):
            fresh.change(RecordDispatchAttempt("k", 0, ""))

    def test_the_token_is_good_until_another_takes_over(self) -> None:
        world = claimed(OUTBOX)
        world.now_ms += 10 * TTL
        world.change(RecordDispatchAttempt("k", 1, "refused", NOW))
        late = claimed(OUTBOX)
        late.now_ms += TTL
        claim(late, "e")
        with refused(late, StaleLease):
            late.change(RecordDispatchAttempt("k", 1, "refused", NOW))

    def test_whoever_is_late_with_one_that_became_unknown_says_no_more(self) -> None:
        world = claimed(ONCE)
        world.now_ms += TTL
        claim(world)
        with refused(world, StaleLease):
            world.change(RecordDispatchAttempt("k", 1, "refused", NOW))
        for resolution in Resolution:
            with refused(world, StaleLease):
                observe(world, resolution, 1)


def test_what_the_others_look_at_and_weigh() -> None:
    for write in (
        ClaimEffect("k", "d", 1), RenewClaim("k", 1, 1), RecordDispatchAttempt("k", 1, "words"),
    ):  # fmt: skip
        assert list(write.needs(RUN)) == [Need(EFFECTS, (RUN, "k"))]
        assert write.size > 0


@pytest.mark.parametrize(
    ("write", "error", "field"),
    [
        (ClaimEffect("", "d", 1), InvalidArgument, "idempotency_key"),
        (ClaimEffect("\0", "d", 1), InvalidArgument, "idempotency_key"),
        (ClaimEffect("k", "", 1), InvalidArgument, "claimer"),
        (ClaimEffect("k", "\0", 1), InvalidArgument, "claimer"),
        (ClaimEffect("k", "x" * 513, 1), TooLarge, "claimer"),
        (ClaimEffect("k", "d", 0), InvalidArgument, "lease_ttl_ms"),
        (ClaimEffect("k", "d", MOST_TTL_MS + 1), InvalidArgument, "lease_ttl_ms"),
        (RenewClaim("", 1, 1), InvalidArgument, "idempotency_key"),
        (RenewClaim("k", 1, -1), InvalidArgument, "lease_ttl_ms"),
        (RenewClaim("k", 1, MOST_TTL_MS + 1), InvalidArgument, "lease_ttl_ms"),
        (RecordDispatchAttempt("", 1, ""), InvalidArgument, "idempotency_key"),
        (RecordDispatchAttempt("\0", 1, ""), InvalidArgument, "idempotency_key"),
        (RecordDispatchAttempt("k", 1, "", -1), InvalidArgument, "next_dispatch_at_ms"),
        (RecordDispatchAttempt("k", 1, "", 2**62), InvalidArgument, "next_dispatch_at_ms"),
        (RecordExternalObservation("", 1, 1), InvalidArgument, "idempotency_key"),
        (RecordExternalObservation("\0", 1, 1), InvalidArgument, "idempotency_key"),
        (RecordExternalObservation("k", 1, 0), InvalidArgument, "resolution"),
        (RecordExternalObservation("k", 1, 6), InvalidArgument, "resolution"),
        (RecordExternalObservation("k", 1, 1, "\0"), InvalidArgument, "external_ref"),
        (RecordExternalObservation("k", 1, 1, "", "{"), InvalidArgument, "response_json"),
        (RecordExternalObservation("k", 1, 1, "", "", "{"), InvalidArgument, "error_json"),
        (
            RecordExternalObservation("k", 1, 1, compensation=UNDO._replace(kind="")),
            InvalidArgument,
            "kind",
        ),
        (
            RecordExternalObservation("k", 1, 1, on_duplicate=UNDO._replace(effect_key="")),
            InvalidArgument,
            "effect_key",
        ),
        (
            RecordExternalObservation("k", 1, 4, compensation=UNDO, on_duplicate=UNDO),
            InvalidArgument,
            "compensate_on_duplicate_kind",
        ),
        (ReconcileEffect("", 1, CONFIRMED), InvalidArgument, "idempotency_key"),
        (ReconcileEffect("k", 1, PENDING), InvalidArgument, "resolved_status"),
        (ReconcileEffect("k", 1, UNKNOWN), InvalidArgument, "resolved_status"),
        (ReconcileEffect("k", 1, CONFIRMED, "{"), InvalidArgument, "response_json"),
        (ReconcileEffect("k", 1, FAILED, "", "{"), InvalidArgument, "error_json"),
    ],
)
def test_bad_input_is_refused_with_its_field(
    write: Any, error: type[InvalidArgument], field: str
) -> None:
    faulty(write, error, field)


def test_a_day_is_not_too_long() -> None:
    ClaimEffect("k", "d", MOST_TTL_MS).checked(LIMITS)
    RenewClaim("k", 1, MOST_TTL_MS).checked(LIMITS)


@pytest.mark.parametrize(
    ("given", "kept"), [("x" * 600, "x" * 512), ("a\0b", "a\\0b"), ("a\ud800", "a?")]
)
def test_an_error_is_kept_as_far_as_it_can_be(given: str, kept: str) -> None:
    world = claimed(OUTBOX)
    after = world.change(RecordDispatchAttempt("k", 1, given, NOW))
    assert after.last_dispatch_error == kept
