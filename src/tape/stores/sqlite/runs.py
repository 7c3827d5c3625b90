"""What is asked of runs and of what they wrote down in a SQLite file; see `ports.runs`."""

import sqlite3
from collections.abc import Sequence
from itertools import product

from tape.model.effect import DispatchMode, Effect, EffectStatus
from tape.model.obligation import Obligation
from tape.model.run import Run
from tape.model.timer import Timer
from tape.ports.clock import Clock
from tape.ports.runs import PendingQuery, RecoverQuery, RunQuery
from tape.stores.run_rows import (
    UNDRIVEN,
    EffectGroup,
    RunGroup,
    effect_groups,
    listing,
    listing_params,
    matching_groups,
    oldest_effects,
    oldest_obligations,
    oldest_runs,
    recover_groups,
)
from tape.stores.sqlite.turn import SQL, maker

_WAYS = tuple(DispatchMode)


def get_run(db: sqlite3.Connection, run_id: str) -> Run | None:
    row = db.execute(SQL["get_run"], (run_id,)).fetchone()
    return Run(*row) if row else None


def list_runs(db: sqlite3.Connection, query: RunQuery) -> list[Run]:
    last = get_run(db, query.after) if query.after else None
    return [Run(*row) for row in db.execute(SQL[listing(query)], listing_params(query, last))]


def list_runs_to_recover(db: sqlite3.Connection, query: RecoverQuery, clock: Clock) -> list[Run]:
    groups = recover_groups(query)
    if groups is None:
        there = [RunGroup(*row) for row in db.execute(SQL["read_recoverable"])]
        groups = matching_groups(query, there)
    now = clock()
    found = [
        Run(*row)
        for group, status in product(groups, UNDRIVEN)
        for row in db.execute(SQL["list_runs_to_recover"], (*group, status, now, query.limit))
    ]
    return oldest_runs(found, query.limit)


def list_effects_to_dispatch(
    db: sqlite3.Connection, connectors: Sequence[str], limit: int, clock: Clock
) -> list[Effect]:
    groups = effect_groups(
        EffectStatus.PENDING, [DispatchMode.OUTBOX], connectors, _open_effects(db, connectors)
    )
    return oldest_effects(_effects(db, "list_claimable_effects", groups, clock(), limit), limit)


def list_pending_effects(db: sqlite3.Connection, query: PendingQuery, clock: Clock) -> list[Effect]:
    there = _open_effects(db, query.connectors)
    now, found = clock(), list[Effect]()
    if query.include_unknown:
        groups = effect_groups(EffectStatus.UNKNOWN, _WAYS, query.connectors, there)
        found += _effects(db, "list_claimable_effects", groups, now, query.limit)
    if query.include_pending:
        groups = effect_groups(EffectStatus.PENDING, _WAYS, query.connectors, there)
        by_then = now - query.older_than_ms
        found += _effects(db, "list_old_effects", groups, by_then, query.limit)
    return oldest_effects(found, query.limit)


def _open_effects(db: sqlite3.Connection, connectors: Sequence[str]) -> list[EffectGroup]:
    """Looked for only if no connectors are asked for."""
    if connectors:
        return []
    return [EffectGroup(*row) for row in db.execute(SQL["read_open_effects"])]


def _effects(
    db: sqlite3.Connection, name: str, groups: Sequence[EffectGroup], moment: int, limit: int
) -> list[Effect]:
    return [
        Effect(*row) for group in groups for row in db.execute(SQL[name], (*group, moment, limit))
    ]


def list_unresolved_obligations(
    db: sqlite3.Connection, limit: int, clock: Clock, *, include_stuck: bool
) -> list[Obligation]:
    now = clock()
    rows = [
        *db.execute(SQL["list_top_obligations"], (now, limit)),
        *db.execute(SQL["list_lone_obligations"], (now, limit)),
    ]
    if include_stuck:
        rows += db.execute(SQL["list_stuck_obligations"], (limit,))
    return oldest_obligations((Obligation(*row) for row in rows), limit)


def list_due_timers(db: sqlite3.Connection, limit: int, clock: Clock) -> list[Timer]:
    rows = db.execute(SQL["list_due_timers"], (clock(), limit))
    return [maker(Timer)(*row) for row in rows]


def next_timer_in_ms(db: sqlite3.Connection, clock: Clock) -> int | None:
    (fire_at_ms,) = db.execute(SQL["read_next_timer"]).fetchone()
    return None if fire_at_ms is None else max(0, fire_at_ms - clock())
