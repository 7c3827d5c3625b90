"""Obligations: a stack that is unwound from its top, and what stands beside it."""

from typing import Any

import pytest

from tape.errors import InvalidArgument, NotFound, StaleLease, TooLarge
from tape.model.lease import MOST_TTL_MS
from tape.model.move import Need
from tape.model.obligation import (
    ALONE,
    DEFAULT_ATTEMPTS,
    OBLIGATIONS,
    ClaimObligation,
    Obligation,
    ObligationKey,
    ObligationStatus,
    RecordObligationAttempt,
    RegisterCompensation,
    RenewObligationClaim,
    ResolveObligation,
)
from tape.model.run import RunStatus
from tape.model.run_end import CancelRun, EndRun
from tests.unit.model.run_world import (
    CHILD,
    CHILD_GATE,
    LIMITS,
    NOW,
    RUN,
    TTL,
    World,
    driven,
    faulty,
    refused,
    unchanged,
    with_child,
)

PENDING, COMMITTED, COMPENSATED, STUCK = ObligationStatus
A, B, C = (ObligationKey(f"effect {letter}", "undo") for letter in "abc")
ALONE_KEY = ObligationKey("effect z", "undo twice")


def owing(*keys: ObligationKey, max_attempts: int = 0) -> World:
    """A run that failed with these obligations, the last one on top."""
    world = driven()
    register(world, *keys, max_attempts=max_attempts)
    world.drive(EndRun(RunStatus.FAILED, '"why"', ""))
    return world


def register(world: World, *keys: ObligationKey, **rest: Any) -> None:
    for key in keys:
        world.drive(RegisterCompensation(*key, **rest))


def claim(world: World, key: ObligationKey, claimer: str = "c") -> Obligation | None:
    claimed: Obligation | None = world.change(ClaimObligation(key, claimer, TTL))
    return claimed


def resolve(world: World, key: ObligationKey, status: int = COMPENSATED, token: int = 0) -> Any:
    token = token or world.obligation(key).claim_token
    return world.change(ResolveObligation(key, token, status, '"r"', ""))


def attempt(world: World, key: ObligationKey, next_ms: int = 0, token: int = 0) -> Any:
    token = token or world.obligation(key).claim_token
    return world.change(RecordObligationAttempt(key, token, "no", next_ms, ""))


class TestRegistering:
    def test_it_is_written_down(self) -> None:
        world = driven()
        row = world.drive(RegisterCompensation(*A, '{"x": 1}', "refund", 3))
        assert row == world.obligation(A) == Obligation(
            RUN, "effect a", "undo", 2, '{"x": 1}', PENDING, NOW, "refund", 0, 3, 0, "", "", 0, 0,
            "null", 0,
        )  # fmt: skip
        assert world.run().top_obligation == 2
        assert world.entries[-1].subject == f"/tape/obligation/registered/undo/{RUN}"
        assert world.payload() == {
            "obligation_seq": 2, "effect_key": "effect a", "kind": "undo",
            "compensator_ref": "refund", "payload": {"x": 1}, "attempts": 0, "claimed_by": "",
            "last_error": "", "result": None,
        }  # fmt: skip

    def test_what_is_left_out(self) -> None:
        row = driven().drive(RegisterCompensation(*A, ""))
        assert (row.compensator_ref, row.max_attempts) == ("undo", DEFAULT_ATTEMPTS)
        assert row.payload_json == "null"

    def test_each_lies_on_the_one_before(self) -> None:
        world = driven()
        register(world, A, B, C)
        assert [world.obligation(key).seq for key in (A, B, C)] == [2, 3, 4]
        assert [world.obligation(key).below for key in (A, B, C)] == [0, 2, 3]
        assert world.run().top_obligation == 4

    def test_a_repeat_is_answered(self) -> None:
        world = driven()
        register(world, A, B)
        with unchanged(world):
            row = world.drive(RegisterCompensation(*A, '"else"', "else", 9))
        assert row == world.obligation(A)

    def test_one_that_stands_alone_is_no_part_of_the_stack(self) -> None:
        world = driven()
        register(world, A)
        register(world, ALONE_KEY, alone=True)
        assert world.obligation(ALONE_KEY).below == ALONE
        assert world.run().top_obligation == world.obligation(A).seq

    def test_only_the_driver_does(self) -> None:
        world = driven()
        for token in (0, 2):
            with refused(world, StaleLease):
                world.extend(token, RegisterCompensation(*A))

    def test_one_that_is_to_be_cancelled_may(self) -> None:
        world = driven()
        world.change(CancelRun("enough", ""))
        register(world, A)
        assert world.run().top_obligation


class TestClaiming:
    def test_the_top_is_the_claimers_for_a_while(self) -> None:
        world = owing(A, B)
        before = world.obligation(B)
        got = claim(world, B)
        assert got == world.obligation(B) == before._replace(
            status=COMMITTED, attempts=1, claimed_by="c", claim_expires_at_ms=NOW + TTL,
            claim_token=1,
        )  # fmt: skip
        assert world.verbs()[-1] == "obligation committed"
        assert (world.payload()["attempts"], world.payload()["claimed_by"]) == (1, "c")
        world.now_ms += TTL - 1
        for claimer in ("c", "d"):
            with unchanged(world):
                assert claim(world, B, claimer) is None

    def test_what_lies_below_waits(self) -> None:
        world = owing(A, B)
        with unchanged(world):
            assert claim(world, A) is None
        claim(world, B)
        with unchanged(world):
            assert claim(world, A) is None
        resolve(world, B)
        assert claim(world, A) is not None

    def test_a_claim_that_ran_out_is_taken_over(self) -> None:
        world = owing(A)
        claim(world, A)
        world.now_ms += TTL
        claim(world, A, "d")
        row = world.obligation(A)
        assert (row.claimed_by, row.claim_token, row.attempts) == ("d", 2, 2)

    def test_one_that_takes_its_claimers_down_gets_stuck(self) -> None:
        world = owing(A, max_attempts=2)
        claim(world, A)
        world.now_ms += TTL
        claim(world, A)
        world.now_ms += TTL
        assert claim(world, A) is None
        row = world.obligation(A)
        assert (row.status, row.attempts, row.claimed_by) == (STUCK, 2, "")
        assert row.last_error == "the claim ran out"
        assert world.run().status == RunStatus.STUCK
        assert world.verbs()[-2:] == ["obligation stuck", "run stuck"]

    def test_not_while_the_run_may_still_succeed(self) -> None:
        world = driven()
        register(world, A)
        with unchanged(world):
            assert claim(world, A) is None
        world.drive(EndRun(RunStatus.TERMINAL, "1", ""))
        with unchanged(world):
            assert claim(world, A) is None

    def test_not_before_the_next_attempt_is_due(self) -> None:
        world = owing(A)
        claim(world, A)
        attempt(world, A, NOW + 50)
        world.now_ms += 49
        with unchanged(world):
            assert claim(world, A) is None
        world.now_ms += 1
        assert claim(world, A) is not None

    def test_what_is_resolved_or_never_was_cannot_be_had(self) -> None:
        world = owing(A)
        claim(world, A)
        resolve(world, A)
        world.now_ms += 10 * TTL
        with unchanged(world):
            assert claim(world, A) is None
            assert claim(world, B) is None

    @pytest.mark.parametrize("end", [None, RunStatus.TERMINAL, RunStatus.FAILED, RunStatus.STUCK])
    def test_what_stands_alone_is_due_however_its_run_goes(self, end: RunStatus | None) -> None:
        world = driven()
        register(world, ALONE_KEY, alone=True)
        if end is not None:
            world.drive(EndRun(end, "1", ""))
        assert world.run().status != RunStatus.COMPENSATING
        before = world.run()
        assert claim(world, ALONE_KEY) is not None
        resolve(world, ALONE_KEY)
        assert world.obligation(ALONE_KEY).status == COMPENSATED
        assert world.run() == before._replace(seq_cursor=before.seq_cursor + 2)
        with unchanged(world):
            assert claim(world, ALONE_KEY) is None


class TestRenewing:
    def test_a_claim_lasts_longer_without_an_entry(self) -> None:
        world = owing(A)
        claim(world, A)
        before, entries = world.obligation(A), len(world.entries)
        world.now_ms += TTL + 5
        after = world.change(RenewObligationClaim(A, 1, 70))
        assert after == before._replace(claim_expires_at_ms=NOW + TTL + 75) == world.obligation(A)
        assert len(world.entries) == entries
        with unchanged(world):
            assert claim(world, A, "d") is None

    def test_not_with_another_token_nor_once_it_was_let_go_of(self) -> None:
        world = owing(A)
        claim(world, A)
        for token in (0, 2):
            with refused(world, StaleLease):
                world.change(RenewObligationClaim(A, token, TTL))
        resolve(world, A)
        with refused(world, StaleLease):
            world.change(RenewObligationClaim(A, 1, TTL))
        with refused(world, NotFound):
            world.change(RenewObligationClaim(B, 1, TTL))


class TestResolving:
    def test_the_last_one_ends_the_run(self) -> None:
        world = owing(A, B)
        claim(world, B)
        row = resolve(world, B)
        assert row == world.obligation(B)
        assert (row.status, row.result_json, row.claimed_by) == (COMPENSATED, '"r"', "")
        assert world.run().status == RunStatus.COMPENSATING
        assert world.run().top_obligation == world.obligation(A).seq
        assert world.verbs()[-1] == "obligation compensated"
        assert world.payload()["result"] == "r"
        claim(world, A)
        world.now_ms += 3
        resolve(world, A)
        run = world.run()
        assert (run.status, run.top_obligation, run.ending) == (RunStatus.FAILED, 0, 0)
        assert (run.outcome_json, run.ended_at_ms) == ('"why"', NOW + 3)
        assert world.verbs()[-2:] == ["obligation compensated", "run failed"]

    def test_a_repeat_is_answered(self) -> None:
        world = owing(A, B)
        claim(world, B)
        row = resolve(world, B)
        with unchanged(world):
            assert resolve(world, B) == row
        claim(world, A)
        resolve(world, A, STUCK)
        with unchanged(world):
            assert resolve(world, A, STUCK).status == STUCK

    def test_another_word_after_it_is_stale(self) -> None:
        world = owing(A)
        claim(world, A)
        attempt(world, A, NOW)
        claim(world, A)
        resolve(world, A)
        with refused(world, StaleLease):
            resolve(world, A, STUCK)
        with refused(world, StaleLease):
            attempt(world, A, NOW)
        with refused(world, StaleLease):
            resolve(world, A, token=1)

    @pytest.mark.parametrize("status", [COMPENSATED, STUCK])
    def test_not_with_another_token_or_without_a_claim(self, status: int) -> None:
        world = owing(A)
        with refused(world, StaleLease):
            world.change(ResolveObligation(A, 0, status, "1", ""))
        claim(world, A)
        for token in (0, 2):
            with refused(
                world, StaleLease, match="claimed by another worker, or its claim was released"
            ):
                world.change(ResolveObligation(A, token, status, "1", ""))
        world.now_ms += TTL
        claim(world, A, "d")
        with refused(world, StaleLease):
            resolve(world, A, status, 1)

    def test_the_token_is_good_until_another_takes_over(self) -> None:
        world = owing(A)
        claim(world, A)
        world.now_ms += 10 * TTL
        assert resolve(world, A).status == COMPENSATED

    def test_one_that_never_was(self) -> None:
        world = owing(A)
        with refused(world, NotFound, match="no obligation 'undo' for 'effect b'"):
            world.change(ResolveObligation(B, 1, COMPENSATED, "1", ""))
        with refused(world, NotFound):
            world.change(RecordObligationAttempt(B, 1, "no"))

    def test_the_end_is_told_to_the_parent(self) -> None:
        world = with_child()
        world.drive(RegisterCompensation(*A), run_id=CHILD)
        world.drive(EndRun(RunStatus.FAILED, "7", RUN), run_id=CHILD)
        world.change(ClaimObligation(A, "c", TTL), CHILD)
        for named in (None, "", "another"):
            with refused(world, InvalidArgument, "parent_run_id"):
                world.change(ResolveObligation(A, 1, COMPENSATED, "1", named), CHILD)
        world.change(ResolveObligation(A, 1, COMPENSATED, "1", RUN), CHILD)
        gate = world.gate(CHILD_GATE)
        assert gate is not None
        assert gate.resolution_json == '{"status":"failed","outcome":7}'


class TestFailingToCompensate:
    def test_it_is_tried_again_then(self) -> None:
        world = owing(A)
        claim(world, A)
        row = attempt(world, A, NOW + 50)
        assert row == world.obligation(A)
        assert (row.status, row.claimed_by, row.attempts) == (PENDING, "", 1)
        assert (row.next_attempt_at_ms, row.last_error) == (NOW + 50, "no")
        assert world.verbs()[-1] == "obligation attempted"
        assert world.run().status == RunStatus.COMPENSATING

    def test_no_more_often_than_it_may(self) -> None:
        world = owing(A, max_attempts=2)
        claim(world, A)
        attempt(world, A, NOW)
        claim(world, A)
        row = attempt(world, A, NOW)
        assert (row.status, row.attempts, row.next_attempt_at_ms) == (STUCK, 2, 0)

    @pytest.mark.parametrize("how", [attempt, lambda w, k: resolve(w, k, STUCK)])
    def test_its_run_is_stuck_until_somebody_looks(self, how: Any) -> None:
        world = owing(A, B)
        claim(world, B)
        world.now_ms += 3
        row = how(world, B)
        assert row == world.obligation(B)
        assert (row.status, row.claimed_by) == (STUCK, "")
        run = world.run()
        assert (run.status, run.ending) == (RunStatus.STUCK, RunStatus.FAILED)
        assert (run.outcome_json, run.ended_at_ms) == ('"why"', NOW + 3)
        assert run.top_obligation == row.seq
        assert world.verbs()[-2:] == ["obligation stuck", "run stuck"]
        with unchanged(world):
            assert claim(world, B) is None
            assert claim(world, A) is None

    def test_put_back_it_goes_on_unwinding_where_it_was(self) -> None:
        world = owing(A, B, max_attempts=1)
        claim(world, B)
        attempt(world, B)
        run = world.resume()
        with unchanged(world):
            assert world.resume() == run
        assert (run.status, run.ended_at_ms) == (RunStatus.COMPENSATING, 0)
        with unchanged(world):
            assert claim(world, A) is None
        claim(world, B)
        assert (world.obligation(B).attempts, world.obligation(B).claim_token) == (1, 2)
        resolve(world, B)
        claim(world, A)
        resolve(world, A)
        assert (world.run().status, world.run().outcome_json) == (RunStatus.FAILED, '"why"')

    def test_a_repeat_is_answered(self) -> None:
        world = owing(A, max_attempts=2)
        claim(world, A)
        row = attempt(world, A, NOW)
        with unchanged(world):
            assert attempt(world, A, NOW) == row
        claim(world, A)
        row = attempt(world, A, NOW)
        assert row.status == STUCK
        with unchanged(world):
            assert attempt(world, A, NOW) == row

    def test_what_only_looks_like_a_repeat_is_stale(self) -> None:
        world = owing(A)
        claim(world, A)
        attempt(world, A, NOW + 50)
        for other in (
            RecordObligationAttempt(A, 1, "else", NOW + 50),
            RecordObligationAttempt(A, 1, "no", NOW + 51),
            RecordObligationAttempt(A, 1, "no"),
            RecordObligationAttempt(A, 0, "no", NOW + 50),
            RecordObligationAttempt(A, 2, "no", NOW + 50),
        ):
            with refused(world, StaleLease):
                world.change(other)

    def test_not_with_another_token(self) -> None:
        world = owing(A)
        with refused(world, StaleLease):
            world.change(RecordObligationAttempt(A, 0, ""))
        claim(world, A)
        for token in (0, 2):
            with refused(world, StaleLease):
                world.change(RecordObligationAttempt(A, token, "no"))
        world.now_ms += TTL
        claim(world, A)
        with refused(world, StaleLease):
            attempt(world, A, NOW, 1)

    @pytest.mark.parametrize("how", [attempt, lambda w, k: resolve(w, k, STUCK)])
    def test_one_that_stands_alone_is_stuck_alone(self, how: Any) -> None:
        world = driven()
        register(world, ALONE_KEY, alone=True)
        claim(world, ALONE_KEY)
        before = world.run()
        how(world, ALONE_KEY)
        assert world.obligation(ALONE_KEY).status == STUCK
        assert world.run() == before._replace(seq_cursor=before.seq_cursor + 1)
        claim(world, ALONE_KEY)
        assert world.obligation(ALONE_KEY).attempts == 1


def test_what_they_look_at_and_weigh() -> None:
    own = Need(OBLIGATIONS, (RUN, *A))
    for write in (
        RegisterCompensation(*A),
        ClaimObligation(A, "c", 1),
        RenewObligationClaim(A, 1, 1),
        ResolveObligation(A, 1, COMPENSATED),
        RecordObligationAttempt(A, 1, "no"),
    ):
        assert (list(write.needs(RUN)), write.size > 0) == ([own], True)
    told = ResolveObligation(A, 1, COMPENSATED, "12", RUN)
    assert [need.key for need in told.needs(CHILD)] == [(CHILD, *A), RUN, (RUN, CHILD_GATE)]
    assert told.size == 2


NUL = ObligationKey("\0", "undo")
NO_KIND = ObligationKey("effect a", "")


@pytest.mark.parametrize(
    ("write", "error", "field"),
    [
        (RegisterCompensation("", "undo"), InvalidArgument, "effect_key"),
        (RegisterCompensation("\0", "undo"), InvalidArgument, "effect_key"),
        (RegisterCompensation("e", ""), InvalidArgument, "kind"),
        (RegisterCompensation("e", "x" * 513), TooLarge, "kind"),
        (RegisterCompensation("e", "k", "{"), InvalidArgument, "payload_json"),
        (RegisterCompensation("e", "k", "1", "\0"), InvalidArgument, "compensator_ref"),
        (RegisterCompensation("e", "k", "1", "", -1), InvalidArgument, "max_attempts"),
        (RegisterCompensation("e", "k", "1", "", 1001), InvalidArgument, "max_attempts"),
        (ClaimObligation(A, "", 1), InvalidArgument, "claimer"),
        (ClaimObligation(A, "\0", 1), InvalidArgument, "claimer"),
        (ClaimObligation(A, "c", 0), InvalidArgument, "lease_ttl_ms"),
        (ClaimObligation(A, "c", MOST_TTL_MS + 1), InvalidArgument, "lease_ttl_ms"),
        (ClaimObligation(NUL, "c", 1), InvalidArgument, "effect_key"),
        (ClaimObligation(NO_KIND, "c", 1), InvalidArgument, "kind"),
        (RenewObligationClaim(A, 1, 0), InvalidArgument, "lease_ttl_ms"),
        (RenewObligationClaim(A, 1, MOST_TTL_MS + 1), InvalidArgument, "lease_ttl_ms"),
        (RenewObligationClaim(NUL, 1, 1), InvalidArgument, "effect_key"),
        (ResolveObligation(A, 1, PENDING), InvalidArgument, "status"),
        (ResolveObligation(A, 1, COMMITTED), InvalidArgument, "status"),
        (ResolveObligation(A, 1, 0), InvalidArgument, "status"),
        (ResolveObligation(A, 1, COMPENSATED, "{"), InvalidArgument, "result_json"),
        (ResolveObligation(NUL, 1, COMPENSATED), InvalidArgument, "effect_key"),
        (ResolveObligation(NO_KIND, 1, COMPENSATED), InvalidArgument, "kind"),
        (RecordObligationAttempt(NUL, 1, ""), InvalidArgument, "effect_key"),
        (RecordObligationAttempt(A, 1, "", -1), InvalidArgument, "next_attempt_at_ms"),
        (RecordObligationAttempt(A, 1, "", 2**62), InvalidArgument, "next_attempt_at_ms"),
    ],
)
def test_bad_input_is_refused_with_its_field(
    write: Any, error: type[InvalidArgument], field: str
) -> None:
    faulty(write, error, field)


def test_json_that_is_left_out_is_null() -> None:
    assert ResolveObligation(A, 1, COMPENSATED, "").checked(LIMITS).result_json == "null"


@pytest.mark.parametrize(
    ("given", "kept"), [("x" * 600, "x" * 512), ("a\0b", "a\\0b"), ("a\ud800", "a?")]
)
def test_an_error_is_kept_as_far_as_it_can_be(given: str, kept: str) -> None:
    world = owing(A)
    claim(world, A)
    assert world.change(RecordObligationAttempt(A, 1, given, NOW)).last_error == kept
