"""What must hold of runs whatever is played on them: after each move, and at any time."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tape.model.decision import DECISIONS
from tape.model.effect import EFFECTS, DispatchMode, Effect, EffectStatus, Semantics
from tape.model.gate import GATES, Gate
from tape.model.obligation import ALONE, OBLIGATIONS, Obligation, ObligationStatus
from tape.model.run import RUNS, Run, RunStatus
from tape.model.run_end import FOR_GOOD, child_gate
from tape.model.timer import TIMERS, Timer
from tests.unit.model.run_world import Rows, World

ENDINGS = (RunStatus.FAILED, RunStatus.CANCELLED)
RENEWED = {"lease_expires_at_ms", "dispatch_claim_expires_at_ms", "claim_expires_at_ms"}
"""What changes without an entry."""


def check_step(before: Rows, world: World, *, observed: bool) -> None:
    """`observed` is whether the move was an observation of the counterparty."""
    changed = {name: row for name, row in world.rows.items() if before.get(name) != row}
    assert before.keys() <= world.rows.keys()
    for name, after in changed.items():
        table, was = name[0], before.get(name)
        if table is RUNS:
            _check_run_step(_as(Run, was), _as(Run, after), world, before)
        elif table is EFFECTS and was is not None:
            _check_effect_step(_as(Effect, was), _as(Effect, after), observed=observed)
        elif table is OBLIGATIONS and was is not None:
            top = before[RUNS, after[0]][Run._fields.index("top_obligation")]
            _check_obligation_step(_as(Obligation, was), _as(Obligation, after), top)
        elif table is GATES and was is not None:
            opened, gate = _as(Gate, was), _as(Gate, after)
            if opened.released:
                assert gate == opened._replace(awaited=gate.awaited, payload_json=gate.payload_json)
        elif table is TIMERS and was is not None:
            assert not _as(Timer, was).fired
            assert not _as(Timer, was).cancelled
        _check_entry(was, after, before, world)


def _check_run_step(was: Run | None, run: Run, world: World, before: Rows) -> None:
    if was is None:
        return
    assert run.fencing_token >= was.fencing_token
    if run.fencing_token > was.fencing_token:
        assert run.fencing_token == was.fencing_token + 1
        assert not was.is_leased(world.now_ms) or was.lease_owner == run.lease_owner
        assert was.is_open
    assert was.cancel_reason == "" or run.cancel_reason != ""
    assert (run.name, run.parent_run_id) == (was.name, was.parent_run_id)
    if was.status == run.status:
        return
    assert was.status != RunStatus.TERMINAL, "success is for good"
    if was.status in ENDINGS:
        assert (run.status, run.ending) == (RunStatus.COMPENSATING, was.status)
        assert (OBLIGATIONS, _key_of_top(world, run)) not in before, "only for something new"
    if was.status == RunStatus.COMPENSATING:
        assert run.status in (was.ending, RunStatus.STUCK)
    if was.status == RunStatus.STUCK:
        on = {RunStatus.COMPENSATING} if was.ending else {
            RunStatus.RUNNABLE, RunStatus.CANCELLED, RunStatus.COMPENSATING,
        }  # fmt: skip
        assert run.status in on


def _check_effect_step(was: Effect, row: Effect, *, observed: bool) -> None:
    assert not was.is_settled, "what is settled never changes"
    assert 0 <= row.claim_token - was.claim_token <= 1
    assert (row.seq, row.semantics, row.request_json) == (was.seq, was.semantics, was.request_json)
    if was.status == EffectStatus.UNKNOWN and row.status != was.status:
        assert observed, "what is unknown is settled by looking"
    if row.is_settled:
        assert not row.dispatch_claimed_by
    if row.semantics == Semantics.NON_IDEMPOTENT:
        assert row.dispatch_mode == DispatchMode.OUTBOX


def _check_obligation_step(was: Obligation, row: Obligation, top: int) -> None:
    assert was.status != ObligationStatus.COMPENSATED, "what is compensated never changes"
    assert 0 <= row.claim_token - was.claim_token <= 1
    assert row.below == was.below
    assert row.attempts <= row.max_attempts
    if row.below != ALONE and row.status in (
        ObligationStatus.COMPENSATED,
        ObligationStatus.COMMITTED,
    ):
        assert row.seq == top, "newest first"


def _check_entry(was: Any, row: Any, before: Rows, world: World) -> None:
    """Whoever has seen a run at its last number has seen all there is."""
    if was is None:
        return
    fields = {name for name, a, b in zip(row._fields, was, row, strict=True) if a != b}
    run_id = getattr(row, "run_id", "")
    if fields - RENEWED:
        cursor = Run._fields.index("seq_cursor")
        assert world.run(run_id).seq_cursor > before[RUNS, run_id][cursor]


def check_state(world: World) -> None:
    for (table, _), row in world.rows.items():
        if table is RUNS:
            _check_run(world, _as(Run, row))


def _check_run(world: World, run: Run) -> None:
    assert bool(run.lease_owner) == (run.status == RunStatus.RUNNING)
    assert bool(run.ended_at_ms) == (run.status in (*FOR_GOOD, RunStatus.STUCK))
    assert bool(run.waiting_on) == (run.status == RunStatus.WAITING)
    if run.status == RunStatus.WAITING:
        assert not run.cancel_reason
        assert not has_come(world, run.run_id, run.waiting_on), "a wake was lost"
    open_ones = _unresolved(world, run)
    assert list(_stack(world, run)) == sorted(open_ones, reverse=True)
    if run.status in ENDINGS:
        assert not open_ones
    if run.status == RunStatus.COMPENSATING:
        assert open_ones
        assert run.ending in ENDINGS
    parent = world.get(RUNS, run.parent_run_id)
    if parent is not None and parent.may_go_on and run.status in FOR_GOOD:
        gate = world.gate(child_gate(run.run_id), parent.run_id)
        assert gate is not None, "its parent was not told"
        assert gate.released


def has_come(world: World, run_id: str, waiting_on: str) -> bool:
    """Whether what a run waits for is there."""
    what, name = waiting_on.split(" ", 1)
    if what == "gate":
        gate = world.gate(name, run_id)
        return gate is not None and gate.released
    if what == "effect":
        return world.effect(name, run_id).is_settled
    return world.timer(name, run_id).fired


def check_journal(world: World) -> None:
    """Each thing has begun once, where its row says, and each gate was opened once."""
    for run_id in {draft.run_id for draft in world.entries if draft.run_id}:
        begun = {
            ("decision", "recorded"): {row.seq for row in world.all(DECISIONS, run_id)},
            ("effect", "pending"): {row.seq for row in world.all(EFFECTS, run_id)},
            ("obligation", "registered"): {row.seq for row in world.all(OBLIGATIONS, run_id)},
        }
        for verb, seqs in begun.items():
            at = [d.seq for d in world.entries if d.run_id == run_id and _verb(d.subject) == verb]
            assert sorted(seqs) == at
        opened = Counter(
            d.subject
            for d in world.entries
            if d.run_id == run_id and _verb(d.subject) == ("gate", "released")
        )
        assert set(opened.values()) <= {1}


def _verb(subject: str) -> tuple[str, str]:
    _, _, kind, verb, *_ = subject.split("/")
    return kind, verb


def _unresolved(world: World, run: Run) -> list[int]:
    return [
        row.seq
        for row in world.all(OBLIGATIONS, run.run_id)
        if row.below != ALONE and row.status != ObligationStatus.COMPENSATED
    ]


def _stack(world: World, run: Run) -> Iterator[int]:
    """From the top down."""
    by_seq = {row.seq: row for row in world.all(OBLIGATIONS, run.run_id)}
    seq = run.top_obligation
    while seq:
        yield seq
        seq = by_seq[seq].below


def _key_of_top(world: World, run: Run) -> tuple[str, str, str]:
    (top,) = [r for r in world.all(OBLIGATIONS, run.run_id) if r.seq == run.top_obligation]
    return top.run_id, top.effect_key, top.kind


def _as(kind: Any, row: Any) -> Any:
    assert row is None or isinstance(row, kind)
    return row
