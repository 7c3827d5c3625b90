"""What an observation of the counterparty makes of an effect and of its run."""

from typing import Any

import pytest

from tape.errors import RunEnded, StaleLease
from tape.model.effect import (
    EFFECTS,
    BeginEffect,
    CompleteEffect,
    EffectStatus,
)
from tape.model.effect_claim import (
    STUCK_PAUSE_MS,
    ReconcileEffect,
    RecordExternalObservation,
    Resolution,
)
from tape.model.move import Need
from tape.model.obligation import (
    ALONE,
    OBLIGATIONS,
    ClaimObligation,
    ObligationKey,
    ObligationStatus,
    RegisterCompensation,
    ResolveObligation,
)
from tape.model.run import RunStatus
from tests.unit.model.effect_world import (
    AGAIN,
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
    NOW,
    RUN,
    TTL,
    refused,
    unchanged,
)


class TestObserving:
    @pytest.mark.parametrize("effect", BOTH)
    @pytest.mark.parametrize(
        ("resolution", "status"),
        [
            (Resolution.CONFIRMED, CONFIRMED),
            (Resolution.DUPLICATE, CONFIRMED),
            (Resolution.FAILED, FAILED),
        ],
    )
    def test_a_dispatch_is_settled(
        self, effect: BeginEffect, resolution: Resolution, status: EffectStatus
    ) -> None:
        world = claimed(effect)
        fields: dict[str, Any] = {
            "external_ref": "x-1", "response_json": "8", "error_json": '"e"',
        }  # fmt: skip
        after = observe(world, resolution, **fields)
        assert after == world.effect("k")
        assert (after.status, after.dispatch_claimed_by) == (status, "")
        assert (after.external_ref, after.response_json, after.error_json) == ("x-1", "8", '"e"')
        assert world.verbs()[-1] == f"effect {status.name.lower()}"
        assert world.payload()["external_ref"] == "x-1"

    @pytest.mark.parametrize("effect", [INLINE, OUTBOX, ONCE])
    @pytest.mark.parametrize(
        ("resolution", "status"),
        [
            (Resolution.CONFIRMED, CONFIRMED),
            (Resolution.DUPLICATE, CONFIRMED),
            (Resolution.FAILED, FAILED),
            (Resolution.ABSENT, PENDING),
        ],
    )
    def test_what_was_unknown_is_reconciled(
        self, effect: BeginEffect, resolution: Resolution, status: EffectStatus
    ) -> None:
        world = unknown(effect)
        got = claim(world)
        assert got is not None
        assert got.dispatch_attempts == (effect is not INLINE)
        assert observe(world, resolution).status == status
        assert world.verbs()[-1] == "effect reconciled"
        assert world.payload()["status"] == status.name.lower()

    @pytest.mark.parametrize("effect", BOTH)
    def test_what_is_absent_may_be_dispatched_again(self, effect: BeginEffect) -> None:
        world = unknown(effect)
        claim(world)
        observe(world, Resolution.ABSENT)
        got = claim(world)
        assert got is not None
        assert (got.claim_token, got.dispatch_attempts, got.status) == (3, 2, PENDING)

    def test_an_absent_one_is_not_begun_anew_on_the_journal(self) -> None:
        """Whoever replays the run must find it begun once."""
        world = claimed(ONCE)
        observe(world, Resolution.ABSENT)
        assert world.verbs().count("effect pending") == 1
        assert world.verbs()[-1] == "effect reconciled"

    @pytest.mark.parametrize("effect", [INLINE, OUTBOX, ONCE])
    def test_of_a_run_that_is_gone_it_has_failed(self, effect: BeginEffect) -> None:
        world = unknown(effect)
        end(world)
        claim(world)
        after = observe(world, Resolution.ABSENT)
        assert (after.status, after.error_json) == (FAILED, '{"error":"its run has ended"}')

    def test_of_a_stuck_run_it_is_pending(self) -> None:
        world = unknown()
        end(world, RunStatus.STUCK)
        claim(world)
        assert observe(world, Resolution.ABSENT).status == PENDING

    @pytest.mark.parametrize("resolution", [r for r in Resolution if r != Resolution.STUCK])
    def test_a_run_that_waits_is_woken(self, resolution: Resolution) -> None:
        world = unknown()
        world.wait("effect k")
        claim(world)
        observe(world, resolution)
        assert (world.run().status, world.run().waiting_on) == (RunStatus.RUNNABLE, "")
        assert world.payload()["because"] == "effect k"

    def test_a_run_about_to_wait_does_not(self) -> None:
        world = begun(ONCE)
        seen = world.run().seq_cursor
        claim(world)
        observe(world, Resolution.CONFIRMED)
        run = world.release(1, waiting_on="effect k", seen_seq=seen)
        assert run.status == RunStatus.RUNNABLE

    @pytest.mark.parametrize("resolution", list(Resolution))
    def test_a_repeat_is_answered(self, resolution: Resolution) -> None:
        world = unknown()
        claim(world)
        fields: dict[str, Any] = {"error_json": '"e"', "compensation": UNDO, "on_duplicate": AGAIN}
        after = observe(world, resolution, 2, **fields)
        with unchanged(world):
            assert observe(world, resolution, 2, **fields) == after

    @pytest.mark.parametrize("resolution", list(Resolution))
    def test_what_is_settled_never_changes(self, resolution: Resolution) -> None:
        world = claimed(ONCE)
        after = observe(world, Resolution.FAILED)
        with unchanged(world):
            assert observe(world, resolution, 1, compensation=UNDO) == after
        for token in (0, 2):
            with refused(world, StaleLease):
                observe(world, resolution, token)

    @pytest.mark.parametrize("resolution", list(Resolution))
    def test_no_token_is_stale_even_if_there_never_was_one(self, resolution: Resolution) -> None:
        world = begun(INLINE)
        world.drive(CompleteEffect("k", CONFIRMED))
        with refused(world, StaleLease):
            observe(world, resolution, 0)

    @pytest.mark.parametrize("resolution", list(Resolution))
    def test_not_without_the_claim(self, resolution: Resolution) -> None:
        world = unknown()
        with refused(world, StaleLease):
            observe(world, resolution, 1)
        claim(world)
        for token in (0, 1, 3):
            with refused(world, StaleLease):
                observe(world, resolution, token)

    def test_an_earlier_reference_is_kept(self) -> None:
        world = claimed(ONCE)
        observe(world, Resolution.ABSENT, external_ref="x-1")
        claim(world)
        assert observe(world, Resolution.CONFIRMED).external_ref == "x-1"


class TestObligationsOfWhatHappened:
    @pytest.mark.parametrize("resolution", [Resolution.CONFIRMED, Resolution.DUPLICATE])
    def test_its_compensation_is_registered_with_it(self, resolution: Resolution) -> None:
        world = unknown()
        claim(world)
        observe(world, resolution, compensation=UNDO)
        obligation = world.obligation(ObligationKey("k", "undo"))
        assert obligation.seq == world.run().top_obligation == world.entries[-1].seq
        assert world.verbs()[-2:] == ["effect reconciled", "obligation registered"]

    @pytest.mark.parametrize("resolution", [Resolution.FAILED, Resolution.ABSENT, Resolution.STUCK])
    def test_what_did_not_leaves_none(self, resolution: Resolution) -> None:
        world = unknown()
        claim(world)
        observe(world, resolution, compensation=UNDO, on_duplicate=AGAIN)
        assert world.all(OBLIGATIONS) == []

    def test_what_happened_too_often_is_due_at_once(self) -> None:
        world = unknown()
        world.wait("effect k")
        claim(world)
        observe(world, Resolution.DUPLICATE, compensation=UNDO, on_duplicate=AGAIN)
        own, second = world.all(OBLIGATIONS)
        assert (own.kind, own.below, world.run().top_obligation) == ("undo", 0, own.seq)
        assert (second.kind, second.below) == ("undo the second", ALONE)
        assert world.verbs()[-4:] == [
            "effect reconciled", "run runnable", "obligation registered", "obligation registered",
        ]  # fmt: skip
        assert [world.payload(-2)["obligation_seq"], world.payload(-1)["obligation_seq"]] == [
            own.seq, second.seq,
        ]  # fmt: skip
        assert world.change(ClaimObligation(ObligationKey("k", "undo"), "c", TTL)) is None
        due = ObligationKey("k", "undo the second")
        assert world.change(ClaimObligation(due, "c", TTL)) is not None

    def test_a_confirmed_one_needs_no_undoing_of_a_second(self) -> None:
        world = unknown()
        claim(world)
        observe(world, Resolution.CONFIRMED, on_duplicate=AGAIN)
        assert world.all(OBLIGATIONS) == []

    @pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.CANCELLED])
    def test_a_run_that_has_ended_is_unwound_after_all(self, status: RunStatus) -> None:
        world = claimed(ONCE)
        end(world, status)
        observe(world, Resolution.CONFIRMED, compensation=UNDO)
        run = world.run()
        assert (run.status, run.ending, run.ended_at_ms) == (RunStatus.COMPENSATING, status, 0)
        assert world.verbs()[-3:] == [
            "effect confirmed", "obligation registered", "run compensating",
        ]  # fmt: skip
        key = ObligationKey("k", "undo")
        token = world.change(ClaimObligation(key, "c", TTL)).claim_token
        done = ObligationStatus.COMPENSATED
        world.change(ResolveObligation(key, token, done, "1", ""))
        assert (world.run().status, world.run().outcome_json) == (status, "1")

    def test_not_for_an_obligation_that_was_resolved_before(self) -> None:
        """There would be nothing to unwind, and no end to it."""
        world = claimed(ONCE)
        world.drive(UNDO)
        end(world)
        key = ObligationKey("k", "undo")
        token = world.change(ClaimObligation(key, "c", TTL)).claim_token
        done = ObligationStatus.COMPENSATED
        world.change(ResolveObligation(key, token, done, "1", ""))
        assert world.run().status == RunStatus.FAILED
        observe(world, Resolution.CONFIRMED, compensation=UNDO)
        assert world.run().status == RunStatus.FAILED

    def test_nor_for_what_happened_too_often(self) -> None:
        world = claimed(ONCE)
        end(world)
        observe(world, Resolution.DUPLICATE, on_duplicate=AGAIN)
        assert world.run().status == RunStatus.FAILED
        due = ObligationKey("k", "undo the second")
        assert world.change(ClaimObligation(due, "c", TTL)) is not None

    def test_one_that_succeeded_stays_so(self) -> None:
        world = claimed(ONCE)
        end(world, RunStatus.TERMINAL)
        observe(world, Resolution.CONFIRMED, compensation=UNDO)
        assert world.run().status == RunStatus.TERMINAL

    def test_while_a_run_is_unwound_it_stands_alone(self) -> None:
        world = claimed(ONCE)
        world.drive(RegisterCompensation("other", "undo"))
        end(world)
        top = world.run().top_obligation
        observe(world, Resolution.CONFIRMED, compensation=UNDO)
        assert world.run().top_obligation == top
        assert world.obligation(ObligationKey("k", "undo")).below == ALONE

    def test_of_a_run_stuck_in_unwinding_it_is_unwound_next(self) -> None:
        world = claimed(ONCE)
        other = ObligationKey("other", "undo")
        world.drive(RegisterCompensation(*other))
        end(world)
        token = world.change(ClaimObligation(other, "c", TTL)).claim_token
        world.change(ResolveObligation(other, token, ObligationStatus.STUCK, "1", ""))
        observe(world, Resolution.CONFIRMED, compensation=UNDO)
        assert world.run().status == RunStatus.STUCK
        world.resume()
        assert world.change(ClaimObligation(other, "c", TTL)) is None
        assert world.change(ClaimObligation(ObligationKey("k", "undo"), "c", TTL)) is not None

    def test_they_are_looked_at(self) -> None:
        write = RecordExternalObservation(
            "k", 1, Resolution.DUPLICATE, "", "12", "345", UNDO, AGAIN, ""
        )
        assert list(write.needs(RUN)) == [
            Need(EFFECTS, (RUN, "k")),
            Need(OBLIGATIONS, (RUN, "k", "undo")),
            Need(OBLIGATIONS, (RUN, "k", "undo the second")),
        ]
        assert write.size == 5


class TestStuck:
    @pytest.mark.parametrize("effect", BOTH)
    def test_its_run_is_stuck_until_somebody_looks(self, effect: BeginEffect) -> None:
        world = claimed(effect)
        after = observe(world, Resolution.STUCK, error_json='"e"')
        assert after == world.effect("k")
        assert (after.status, after.dispatch_claimed_by, after.error_json) == (UNKNOWN, "", '"e"')
        assert after.next_dispatch_at_ms == NOW + STUCK_PAUSE_MS
        run = world.run()
        assert (run.status, run.lease_owner, run.ending) == (RunStatus.STUCK, "", 0)
        assert (run.outcome_json, run.ended_at_ms) == ('"e"', NOW)
        assert world.verbs()[-2:] == ["effect stuck", "run stuck"]

    def test_its_driver_is_out(self) -> None:
        world = claimed(ONCE)
        observe(world, Resolution.STUCK)
        with refused(world, RunEnded):
            world.extend(1, INLINE)

    def test_a_run_that_waits_is_stuck_too(self) -> None:
        world = unknown()
        world.wait("effect k")
        claim(world)
        observe(world, Resolution.STUCK)
        assert (world.run().status, world.run().waiting_on) == (RunStatus.STUCK, "")

    @pytest.mark.parametrize("status", [RunStatus.TERMINAL, RunStatus.FAILED, RunStatus.STUCK])
    def test_one_that_has_ended_stays_as_it_is(self, status: RunStatus) -> None:
        world = unknown()
        end(world, status)
        before = world.run()
        claim(world)
        observe(world, Resolution.STUCK)
        assert world.run() == before._replace(seq_cursor=before.seq_cursor + 2)
        assert world.verbs()[-1] == "effect stuck"

    def test_an_operator_may_say_what_happened_and_have_it_go_on(self) -> None:
        world = claimed(ONCE)
        observe(world, Resolution.STUCK)
        world.now_ms += STUCK_PAUSE_MS
        claim(world)
        observe(world, Resolution.CONFIRMED, response_json="8")
        assert world.run().status == RunStatus.STUCK
        assert world.resume().status == RunStatus.RUNNABLE
        world.resume("b")
        assert world.drive(ONCE).response_json == "8"

    def test_another_word_after_it_is_stale(self) -> None:
        world = claimed(ONCE)
        observe(world, Resolution.STUCK, error_json='"e"')
        with refused(world, StaleLease):
            observe(world, Resolution.STUCK, error_json='"f"')
        with refused(world, StaleLease):
            observe(world, Resolution.CONFIRMED)


class TestTheShortForm:
    @pytest.mark.parametrize("status", [CONFIRMED, FAILED])
    def test_an_unknown_effect_is_settled(self, status: EffectStatus) -> None:
        world = unknown()
        world.wait("effect k")
        claim(world)
        write = ReconcileEffect("k", 2, status, "8", '"e"')
        after = world.change(write)
        assert after == world.effect("k")
        assert (after.status, after.response_json, after.error_json) == (status, "8", '"e"')
        assert world.verbs()[-2:] == ["effect reconciled", "run runnable"]
        with unchanged(world):
            assert world.change(write) == after

    def test_not_without_the_claim(self) -> None:
        world = unknown()
        claim(world)
        for token in (0, 1, 3):
            with refused(world, StaleLease):
                world.change(ReconcileEffect("k", token, CONFIRMED))

    def test_json_that_is_left_out_is_null(self) -> None:
        world = unknown()
        claim(world)
        after = world.change(ReconcileEffect("k", 2, CONFIRMED, "", ""))
        assert (after.response_json, after.error_json) == ("null", "null")

    def test_what_it_looks_at_and_weighs(self) -> None:
        write = ReconcileEffect("k", 1, CONFIRMED, "12", "345")
        assert list(write.needs(RUN)) == [Need(EFFECTS, (RUN, "k"))]
        assert write.size == 5
