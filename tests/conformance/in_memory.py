"""Moves played on plain dictionaries, and what the lists of `ports.runs` should find there."""

from collections.abc import Hashable, Iterable
from typing import Any

from tape.journal.batch import decide_all, settle
from tape.model.effect import EFFECTS, DispatchMode, Effect, EffectStatus
from tape.model.entry import EntryDraft
from tape.model.move import EntryPlace, Move, State, Table
from tape.model.obligation import ALONE, OBLIGATIONS, Obligation, ObligationStatus
from tape.model.run import RUNS, Run, RunStatus
from tape.model.timer import TIMERS, Timer
from tape.ports.runs import PendingQuery, RecoverQuery, RunQuery


class Memory:
    """Rows and entries with no database below. One move at a time, whatever came in one batch."""

    def __init__(self) -> None:
        self.rows: dict[Table[Any, Any], dict[Hashable, Any]] = {}
        self.entries: list[EntryDraft] = []

    def play(self, move: Move[Any], now_ms: int) -> Any:
        """The reply, or the refusal."""
        state = State(now_ms, len(self.entries) + 1)
        for table, rows in self.rows.items():
            state.put_loaded(table, rows.values())
        runs = dict(self.rows.get(RUNS, {}))
        (verdict,) = decide_all([move], state)
        for table, saved in state.saves.items():
            self.rows.setdefault(table, {}).update(saved)
        self.entries += state.entries
        for before in runs.values():
            expect_one_holder(before, self.rows[RUNS][before.run_id], now_ms)
        place = EntryPlace(state.next_global_seq, now_ms)
        return verdict if isinstance(verdict, Exception) else settle(verdict, place)

    def get(self, table: Table[Any, Any], key: Hashable) -> Any:
        return self.rows.get(table, {}).get(key)

    def all(self, table: Table[Any, Any]) -> list[Any]:
        return list(self.rows.get(table, {}).values())

    def journal_of(self, run_id: str) -> list[EntryDraft]:
        return [draft for draft in self.entries if draft.run_id == run_id]


def expect_one_holder(before: Run, after: Run, now_ms: int) -> None:
    """A lease is granted with the next token, and not while another's lives."""
    if after.fencing_token != before.fencing_token:
        assert after.fencing_token == before.fencing_token + 1
        assert not before.is_leased(now_ms) or before.lease_owner == after.lease_owner


def runs_listed(runs: Iterable[Run], query: RunQuery) -> list[Run]:
    found = [
        run
        for run in runs
        if query.status in (0, run.status)
        and query.app_name in ("", run.app_name)
        and query.pool in ("", run.pool)
        and query.parent_run_id in ("", run.parent_run_id)
        and query.session in (None, (run.user_id, run.session_id))
    ]
    return sorted(found, key=lambda run: (run.started_at_ms, run.run_id), reverse=True)


def runs_to_recover(memory: Memory, query: RecoverQuery, now_ms: int) -> list[Run]:
    found = [
        run
        for run in memory.all(RUNS)
        if query.pool in ("", run.pool)
        and (not query.app_names or run.app_name in query.app_names)
        and (
            run.status == RunStatus.RUNNABLE
            or (run.status == RunStatus.RUNNING and not run.is_leased(now_ms))
        )
    ]
    return sorted(found, key=lambda run: (run.started_at_ms, run.run_id))


def effects_to_dispatch(memory: Memory, now_ms: int) -> list[Effect]:
    return _oldest(
        row
        for row in memory.all(EFFECTS)
        if row.status == EffectStatus.PENDING
        and row.dispatch_mode == DispatchMode.OUTBOX
        and _is_free(row, now_ms)
    )


def effects_pending(memory: Memory, query: PendingQuery, now_ms: int) -> list[Effect]:
    return _oldest(
        row
        for row in memory.all(EFFECTS)
        if (query.include_unknown and row.status == EffectStatus.UNKNOWN and _is_free(row, now_ms))
        or (
            query.include_pending
            and row.status == EffectStatus.PENDING
            and row.ts_ms <= now_ms - query.older_than_ms
        )
    )


def _is_free(row: Effect, now_ms: int) -> bool:
    claimed = row.dispatch_claimed_by and row.dispatch_claim_expires_at_ms > now_ms
    return not claimed and row.next_dispatch_at_ms <= now_ms


def obligations_unresolved(memory: Memory, now_ms: int, *, include_stuck: bool) -> list[Obligation]:
    def is_due(row: Obligation) -> bool:
        run = memory.get(RUNS, row.run_id)
        stuck = row.status == ObligationStatus.STUCK
        on_top = run.status == RunStatus.COMPENSATING and run.top_obligation == row.seq
        claimed = row.status == ObligationStatus.COMMITTED and row.claim_expires_at_ms > now_ms
        if row.status == ObligationStatus.COMPENSATED or claimed:
            return False
        if stuck and include_stuck:
            return True
        return (on_top or (row.below == ALONE and not stuck)) and row.next_attempt_at_ms <= now_ms

    return _oldest(row for row in memory.all(OBLIGATIONS) if is_due(row))


def timers_due(memory: Memory, now_ms: int) -> list[Timer]:
    found = [
        timer
        for timer in memory.all(TIMERS)
        if not timer.fired and not timer.cancelled and timer.fire_at_ms <= now_ms
    ]
    return sorted(found, key=lambda timer: (timer.fire_at_ms, timer.run_id, timer.timer_id))


def _oldest(rows: Iterable[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: (row.ts_ms, row.run_id, row.seq))
