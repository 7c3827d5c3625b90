"""Drivers, reactors and people at two runs at once, in any order, with fresh and stale tokens.

A parent and its child are driven, let go of, cancelled, signalled, dispatched for, reconciled and
unwound by whoever happens to come, while the clock moves. After every move the laws of `run_laws`
are checked; whoever is stale must not change anything; a repeat must be answered and change
nothing; and in the end, once everything that can be done has been done, nobody is left behind.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tape.errors import TapeError
from tape.model.budget import ChargeBudget, SetBudget
from tape.model.decision import RecordDecision
from tape.model.effect import (
    EFFECTS,
    SETTLED,
    BeginEffect,
    CompleteEffect,
    DispatchMode,
    Effect,
    EffectStatus,
    Semantics,
)
from tape.model.effect_claim import (
    STUCK_PAUSE_MS,
    ClaimEffect,
    ReconcileEffect,
    RecordDispatchAttempt,
    RecordExternalObservation,
    RenewClaim,
    Resolution,
)
from tape.model.gate import GATES, AwaitSignal, SendSignal
from tape.model.lease import WHOEVER
from tape.model.move import Table
from tape.model.obligation import (
    ALONE,
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
from tape.model.run import RUNS, Run, RunStatus
from tape.model.run_end import BY_DRIVER, FOR_GOOD, CancelRun, EndRun
from tape.model.run_write import RunWrite
from tape.model.timer import GATE_TIMEOUT, REDRIVE, TIMERS, CancelTimer, FireTimer, SetTimer
from tests.unit.model.run_laws import check_journal, check_state, check_step, has_come
from tests.unit.model.run_world import CHILD, CHILD_GATE, CHILD_NAME, NAME, RUN, TTL, World

OWNERS = st.sampled_from("ab")
CLAIMERS = st.sampled_from("de")
WHICH = st.integers(0, 99)
BEHIND = st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2])
"""How many tokens somebody is behind: mostly none."""
SELDOM = st.sampled_from([False, False, False, False, True])
INLINE, OUTBOX, ONCE = "inline", "outbox", "once"
DOING: dict[str, dict[str, Any]] = {
    INLINE: {},
    OUTBOX: {"dispatch_mode": DispatchMode.OUTBOX},
    ONCE: {"dispatch_mode": DispatchMode.OUTBOX, "semantics": Semantics.NON_IDEMPOTENT},
}
BEGIN = [BeginEffect(0, "pay", 0, custom_key=key, **how) for key, how in DOING.items()]
UNDO, SECOND = "undo", "undo the second"


def undo(key: str, kind: str = UNDO) -> RegisterCompensation:
    return RegisterCompensation(key, kind, max_attempts=2)


DONE_INLINE = CompleteEffect(INLINE, EffectStatus.CONFIRMED, compensation=undo(INLINE))
WRITES: list[Any] = [
    *BEGIN,
    RecordDecision(0, "m"),
    undo("another"),
    undo(ONCE),
    undo("another", SECOND)._replace(alone=True),
    AwaitSignal("g"),
    AwaitSignal(CHILD_GATE),
    SetTimer("t", after_ms=TTL // 2),
    SetTimer("u", kind=GATE_TIMEOUT, payload_json='{"gate": "g"}', after_ms=TTL),
    CancelTimer("t"),
    SetBudget(1.0, 5),
    ChargeBudget(0.5, 1, "charge"),
]
OUTCOMES: list[Any] = [
    DONE_INLINE,
    DONE_INLINE,
    CompleteEffect(INLINE, EffectStatus.FAILED),
    CompleteEffect(INLINE, EffectStatus.UNKNOWN),
    CompleteEffect(OUTBOX, EffectStatus.CONFIRMED),
]


def given_some(table: Table[Any, Any], rather: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A rule that is of interest only while there is such a row."""
    return precondition(
        lambda self: any(rather(row) for (t, _), row in self.world.rows.items() if t is table)
    )


class View(NamedTuple):
    """What a driver saw when it looked: the number it was at, and what had not come yet."""

    run_id: str
    token: int
    seq: int
    missing: list[str]


class Runs(RuleBasedStateMachine):
    views: Bundle[View] = Bundle("views")

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.in_doubt: dict[tuple[str, str], set[int]] = {}
        """For each effect the claims under which it may have been done."""

    def attempt(self, play: Callable[[], Any], *, may: bool = True, observed: bool = False) -> Any:
        """Play and check; None for a refusal, which changes nothing. `may`: it is not stale."""
        before, entries = dict(self.world.rows), len(self.world.entries)
        try:
            reply = play()
        except TapeError:
            assert self.world.rows == before
            assert len(self.world.entries) == entries
            return None
        if not may:
            assert self.world.rows == before, "a stale token has changed something"
        check_step(before, self.world, observed=observed)
        return reply

    def twice(self, play: Callable[[], Any], *, may: bool = True, observed: bool = False) -> Any:
        """What was accepted is answered again, and changes nothing."""
        reply = self.attempt(play, may=may, observed=observed)
        if reply is not None:
            before, entries = dict(self.world.rows), len(self.world.entries)
            play()
            assert self.world.rows == before
            assert len(self.world.entries) == entries
        return reply

    def change(
        self, run_id: str, write: RunWrite, *, may: bool = True, observed: bool = False
    ) -> Any:
        return self.twice(lambda: self.world.change(write, run_id), may=may, observed=observed)

    def parent_of(self, run_id: str) -> str:
        return self.world.run(run_id).parent_run_id

    def pick(self, table: Table[Any, Any], which: int, rather: Callable[[Any], Any]) -> Any:
        """A row, mostly one that is of interest; None if there is none at all."""
        rows = [row for run_id in (RUN, CHILD) for row in self.world.all(table, run_id)]
        if which % 8:
            rows = [row for row in rows if rather(row)] or rows
        return rows[which % len(rows)] if rows else None

    def driver(self, which: int, behind: int) -> tuple[str, int, bool]:
        """A run, a token for it, and whether that is the one its lease is held with."""
        run: Run = self.pick(RUNS, which, lambda run: run.lease_owner)
        return run.run_id, run.fencing_token - behind, bool(run.lease_owner) and not behind

    @initialize(begun=st.lists(st.sampled_from(WRITES), max_size=4))
    def begin(self, begun: list[Any]) -> None:
        self.world.begin("a", NAME)
        self.world.begin("b", CHILD_NAME, parent=RUN, parent_token=1)
        self.world.drive(*begun, BEGIN[0])
        self.world.drive(BEGIN[2], *begun, run_id=CHILD)

    @rule(ms=st.sampled_from([1, TTL // 2, TTL, STUCK_PAUSE_MS]))
    def time_passes(self, ms: int) -> None:
        self.world.now_ms += ms

    # Those who want to drive.

    @given_some(RUNS, lambda run: run.is_open)
    @rule(which=WHICH, owner=OWNERS, expected=st.sampled_from([WHOEVER, WHOEVER, 1, 2]))
    def resume(self, which: int, owner: str, expected: int) -> None:
        run = self.pick(RUNS, which, lambda run: run.is_open and not run.lease_owner)
        self.attempt(lambda: self.world.resume(owner, run.run_id, expected))

    @rule(which=WHICH, owner=OWNERS)
    def begin_again(self, which: int, owner: str) -> None:
        run = self.pick(RUNS, which, lambda run: run.status == RunStatus.WAITING)
        begun = self.attempt(lambda: self.world.begin(owner, run.name))
        assert begun.fencing_token in (0, self.world.run(run.run_id).fencing_token)

    @given_some(RUNS, lambda run: run.status in (RunStatus.STUCK, RunStatus.WAITING))
    @rule(which=WHICH)
    def put_back(self, which: int) -> None:
        run = self.pick(RUNS, which, lambda run: run.status == RunStatus.STUCK)
        self.twice(lambda: self.world.resume("", run.run_id))

    # Those who drive, or believe that they do.

    @given_some(RUNS, lambda run: run.lease_owner)
    @rule(which=WHICH, behind=BEHIND)
    def heartbeat(self, which: int, behind: int) -> None:
        run_id, token, may = self.driver(which, behind)
        renewed = self.twice(lambda: self.world.heartbeat(token, run_id), may=may)
        assert (renewed is not None) == may

    @given_some(RUNS, lambda run: run.lease_owner)
    @rule(which=WHICH, behind=BEHIND, writes=st.lists(st.sampled_from(WRITES), min_size=1))
    def write(self, which: int, behind: int, writes: list[Any]) -> None:
        run_id, token, may = self.driver(which, behind)
        play = self.twice if len(writes) == 1 else self.attempt
        extended = play(lambda: self.world.extend(token, *writes, run_id=run_id), may=may)
        assert may or extended is None

    @given_some(RUNS, lambda run: run.lease_owner)
    @rule(which=WHICH, behind=BEHIND, outcome=st.sampled_from(OUTCOMES))
    def complete(self, which: int, behind: int, outcome: CompleteEffect) -> None:
        self.write(which, behind, [outcome])

    @given_some(RUNS, lambda run: run.lease_owner)
    @rule(
        which=WHICH,
        behind=BEHIND,
        last=st.lists(st.sampled_from([*WRITES, DONE_INLINE]), max_size=1),
        status=st.sampled_from([*BY_DRIVER, RunStatus.FAILED, None, None]),
    )
    def end(self, which: int, behind: int, last: list[Any], status: RunStatus | None) -> None:
        run_id, token, may = self.driver(which, behind)
        if status is not None:
            writes = [*last, EndRun(status, "1", self.parent_of(run_id))]
            self.twice(lambda: self.world.extend(token, *writes, run_id=run_id), may=may)

    @given_some(RUNS, lambda run: run.lease_owner)
    @rule(target=views, which=WHICH, behind=BEHIND)
    def look(self, which: int, behind: int) -> View:
        """See what is there; whatever comes after this must not be slept through."""
        run_id, token, _ = self.driver(which, behind)
        waits = [f"effect {row.idempotency_key}" for row in self.world.all(EFFECTS, run_id)]
        waits += [f"gate {row.gate_name}" for row in self.world.all(GATES, run_id) if row.awaited]
        timers = [row for row in self.world.all(TIMERS, run_id) if row.kind == REDRIVE]
        waits += [f"timer {row.timer_id}" for row in timers if not row.cancelled]
        missing = [what for what in waits if not has_come(self.world, run_id, what)]
        return View(run_id, token, self.world.run(run_id).seq_cursor, missing)

    @rule(view=consumes(views), which=WHICH)
    def let_go(self, view: View, which: int) -> None:
        run_id, token, seen, missing = view
        on = missing[which % len(missing)] if missing else ""
        run = self.world.run(run_id)
        self.twice(
            lambda: self.world.release(token, run_id, waiting_on=on, seen_seq=seen),
            may=run.fencing_token == token and bool(run.lease_owner),
        )

    # Those who come from outside.

    @rule(which=WHICH, gate=st.sampled_from(["g", "g", "g", CHILD_GATE]))
    def signal(self, which: int, gate: str) -> None:
        run = self.pick(RUNS, which, lambda run: run.status == RunStatus.WAITING)
        self.change(run.run_id, SendSignal(gate, "1"))

    @given_some(RUNS, lambda run: run.may_go_on)
    @rule(which=WHICH, seldom=SELDOM)
    def cancel(self, which: int, seldom: bool) -> None:
        run = self.pick(RUNS, which, lambda run: run.may_go_on)
        if seldom or run.is_leased(self.world.now_ms):
            self.change(run.run_id, CancelRun("enough", run.parent_run_id))

    @given_some(TIMERS, lambda timer: not timer.fired)
    @rule(which=WHICH)
    def fire(self, which: int) -> None:
        timer = self.pick(TIMERS, which, lambda timer: not timer.fired)
        self.change(timer.run_id, FireTimer(timer))

    # Those who dispatch and reconcile.

    def is_free(self, row: Effect) -> bool:
        now_ms = self.world.now_ms
        living = row.dispatch_claimed_by and row.dispatch_claim_expires_at_ms > now_ms
        return not (row.is_settled or living or row.next_dispatch_at_ms > now_ms)

    @given_some(EFFECTS, lambda row: not row.is_settled)
    @rule(which=WHICH, claimer=CLAIMERS)
    def claim_effect(self, which: int, claimer: str) -> None:
        row = self.pick(EFFECTS, which, self.is_free)
        key, doubts = row.idempotency_key, self.doubts(row)
        claim = ClaimEffect(key, claimer, TTL)
        got = self.attempt(lambda: self.world.change(claim, row.run_id))
        if got is not None and got.status == EffectStatus.PENDING:
            assert key == OUTBOX or (key == ONCE and not doubts), "done again unseen"
            assert self.world.run(row.run_id).may_go_on
            doubts.add(got.claim_token)
        failed = self.world.effect(key, row.run_id).status == EffectStatus.FAILED
        if failed and not row.is_settled:
            assert not doubts, "it may have happened"
            assert key != INLINE

    def dispatcher(self, which: int, behind: int) -> tuple[Effect, int, bool]:
        """An effect, a token for it, and whether that is the living claim's."""
        row = self.pick(EFFECTS, which, lambda row: row.dispatch_claimed_by)
        return row, row.claim_token - behind, bool(row.dispatch_claimed_by) and not behind

    def doubts(self, row: Effect) -> set[int]:
        return self.in_doubt.setdefault((row.run_id, row.idempotency_key), set())

    @given_some(EFFECTS, lambda row: row.dispatch_claimed_by)
    @rule(which=WHICH, behind=BEHIND)
    def renew_claim(self, which: int, behind: int) -> None:
        row, token, may = self.dispatcher(which, behind)
        self.change(row.run_id, RenewClaim(row.idempotency_key, token, TTL), may=may)

    @given_some(EFFECTS, lambda row: row.dispatch_claimed_by)
    @rule(which=WHICH, behind=BEHIND, pause_ms=st.sampled_from([None, 0, 5, TTL]))
    def fail_to_act(self, which: int, behind: int, pause_ms: int | None) -> None:
        next_ms = 0 if pause_ms is None else self.world.now_ms + pause_ms
        row, token, may = self.dispatcher(which, behind)
        write = RecordDispatchAttempt(row.idempotency_key, token, "no", next_ms)
        after = self.change(row.run_id, write, may=may)
        if may and after.status == EffectStatus.PENDING:
            self.doubts(row).discard(token)

    @given_some(EFFECTS, lambda row: row.dispatch_claimed_by)
    @rule(which=WHICH, behind=BEHIND, resolution=st.sampled_from(list(Resolution)))
    def observe(self, which: int, behind: int, resolution: Resolution) -> None:
        row, token, may = self.dispatcher(which, behind)
        key = row.idempotency_key
        write = RecordExternalObservation(
            key,
            token,
            resolution,
            error_json='"e"',
            compensation=undo(key),
            on_duplicate=undo(key, SECOND),
            parent_run_id=self.parent_of(row.run_id),
        )
        self.change(row.run_id, write, may=may, observed=may)
        if may and resolution == Resolution.ABSENT:
            self.doubts(row).clear()

    @given_some(EFFECTS, lambda row: row.dispatch_claimed_by)
    @rule(which=WHICH, behind=BEHIND, status=st.sampled_from(SETTLED))
    def reconcile(self, which: int, behind: int, status: EffectStatus) -> None:
        row, token, may = self.dispatcher(which, behind)
        write = ReconcileEffect(row.idempotency_key, token, status)
        self.change(row.run_id, write, may=may, observed=may)

    # Those who compensate.

    def is_due(self, row: Obligation) -> bool:
        run = self.world.run(row.run_id)
        unwinding = run.status == RunStatus.COMPENSATING and run.top_obligation == row.seq
        return row.status != ObligationStatus.COMPENSATED and (unwinding or row.below == ALONE)

    @given_some(OBLIGATIONS, lambda row: row.status != ObligationStatus.COMPENSATED)
    @rule(which=WHICH, claimer=CLAIMERS)
    def claim_obligation(self, which: int, claimer: str) -> None:
        row = self.pick(OBLIGATIONS, which, self.is_due)
        claim = ClaimObligation(key_of(row), claimer, TTL)
        self.attempt(lambda: self.world.change(claim, row.run_id))

    def compensator(self, which: int, behind: int) -> tuple[Obligation, int, bool]:
        row = self.pick(OBLIGATIONS, which, lambda row: row.claimed_by)
        return row, row.claim_token - behind, bool(row.claimed_by) and not behind

    @given_some(OBLIGATIONS, lambda row: row.claimed_by)
    @rule(which=WHICH, behind=BEHIND)
    def renew_obligation(self, which: int, behind: int) -> None:
        row, token, may = self.compensator(which, behind)
        self.change(row.run_id, RenewObligationClaim(key_of(row), token, TTL), may=may)

    @given_some(OBLIGATIONS, lambda row: row.claimed_by)
    @rule(which=WHICH, behind=BEHIND, stuck=SELDOM)
    def resolve(self, which: int, behind: int, stuck: bool) -> None:
        status = ObligationStatus.STUCK if stuck else ObligationStatus.COMPENSATED
        row, token, may = self.compensator(which, behind)
        parent = self.parent_of(row.run_id)
        write = ResolveObligation(key_of(row), token, status, "1", parent)
        self.change(row.run_id, write, may=may)

    @given_some(OBLIGATIONS, lambda row: row.claimed_by)
    @rule(which=WHICH, behind=BEHIND, pause_ms=st.sampled_from([None, 0, TTL]))
    def fail_to_compensate(self, which: int, behind: int, pause_ms: int | None) -> None:
        next_ms = 0 if pause_ms is None else self.world.now_ms + pause_ms
        row, token, may = self.compensator(which, behind)
        write = RecordObligationAttempt(key_of(row), token, "no", next_ms)
        self.change(row.run_id, write, may=may)

    @invariant()
    def laws(self) -> None:
        check_state(self.world)

    # And in the end.

    def teardown(self) -> None:
        if not self.world.rows:
            return
        check_journal(self.world)
        self.settle()
        for run_id in (CHILD, RUN):
            if self.world.run(run_id).is_open:
                self.world.resume("z", run_id)
                self.world.drive(
                    EndRun(RunStatus.FAILED, "1", self.parent_of(run_id)), run_id=run_id
                )
        self.settle()
        check_state(self.world)
        check_journal(self.world)
        for run_id in (CHILD, RUN):
            assert self.world.run(run_id).status in FOR_GOOD
            assert all(row.is_settled for row in self.world.all(EFFECTS, run_id))
            for row in self.world.all(OBLIGATIONS, run_id):
                done = row.status == ObligationStatus.COMPENSATED
                assert done or self.world.run(run_id).status == RunStatus.TERMINAL

    def settle(self) -> None:
        """Do what reactors and operators would, until there is nothing more to do."""
        for _ in range(20):
            self.world.now_ms += STUCK_PAUSE_MS + TTL
            before = len(self.world.entries)
            for run_id in (CHILD, RUN):
                self._settle(run_id)
            if len(self.world.entries) == before:
                return
        pytest.fail("it never comes to rest")

    def _settle(self, run_id: str) -> None:
        world = self.world
        if world.run(run_id).status in (RunStatus.STUCK, RunStatus.WAITING):
            world.resume("", run_id)
        if world.run(run_id).status == RunStatus.RUNNING:
            self._drive(run_id)
        for timer in world.all(TIMERS, run_id):
            world.change(FireTimer(timer), run_id)
        for row in world.all(EFFECTS, run_id):
            got: Effect | None = world.change(ClaimEffect(row.idempotency_key, "z", TTL), run_id)
            if got is not None:
                world.change(
                    RecordExternalObservation(
                        got.idempotency_key,
                        got.claim_token,
                        Resolution.CONFIRMED,
                        compensation=undo(got.idempotency_key),
                    ),
                    run_id,
                )
        for owed in world.all(OBLIGATIONS, run_id):
            key = key_of(owed)
            claimed = world.change(ClaimObligation(key, "z", TTL), run_id)
            if claimed is not None:
                parent = self.parent_of(run_id)
                done = ObligationStatus.COMPENSATED
                write = ResolveObligation(key, claimed.claim_token, done, "1", parent)
                world.change(write, run_id)

    def _drive(self, run_id: str) -> None:
        """What an inline effect waits for is its driver."""
        world = self.world
        token = world.resume("z", run_id).fencing_token
        for row in world.all(EFFECTS, run_id):
            if (row.idempotency_key, row.status) == (INLINE, EffectStatus.PENDING):
                with suppress(TapeError):
                    world.extend(token, DONE_INLINE, run_id=run_id)
        world.release(token, run_id)


def key_of(row: Obligation) -> ObligationKey:
    return ObligationKey(row.effect_key, row.kind)


def play(examples: int, steps: int) -> None:
    how = settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    run_state_machine_as_test(Runs, settings=how)


def test_any_order_of_moves() -> None:
    play(120, 80)


@pytest.mark.long
def test_very_many_orders_of_moves() -> None:
    play(5_000, 100)
