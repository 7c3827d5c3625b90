"""What is asked of runs and of what they wrote down in a SQLite file; see `ports.runs`."""

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import product

from tape.model.effect import Effect
from tape.model.obligation import Obligation
from tape.model.run import Run
from tape.model.timer import Timer
from tape.ports.clock import Clock
from tape.ports.runs import (
    MOST_COUNTED,
    MOST_WAITING_GROUPS,
    OLDEST_COMPARED,
    PendingQuery,
    RecoverQuery,
    RunQuery,
    WaitingRuns,
)
from tape.stores.run_rows import (
    PENDING,
    TO_DISPATCH,
    UNDRIVEN,
    UNKNOWN,
    EffectGroup,
    RunGroup,
    listing,
    listing_params,
    longest_waiting,
    oldest_effects,
    oldest_obligations,
    oldest_runs,
)
from tape.stores.sqlite.turn import SQL, maker


def get_run(db: sqlite3.Connection, run_id: str) -> Run | None:
    row = db.execute(SQL["get_run"], (run_id,)).fetchone()
    return Run(*row) if row else None


def list_runs(db: sqlite3.Connection, query: RunQuery) -> list[Run]:
    last = get_run(db, query.after) if query.after else None
    return [Run(*row) for row in db.execute(SQL[listing(query)], listing_params(query, last))]


def list_runs_to_recover(db: sqlite3.Connection, query: RecoverQuery, clock: Clock) -> list[Run]:
    now = clock()
    found = [
        Run(*row)
        for group, status in product(_groups_to_recover(db, query), UNDRIVEN)
        for row in db.execute(SQL["list_runs_to_recover"], (*group, status, now, query.limit))
    ]
    return oldest_runs(found, query.limit)


def list_waiting_runs(
    db: sqlite3.Connection, older_than_ms: int, clock: Clock
) -> list[WaitingRuns]:
    now = clock()
    groups = _groups_to_recover(db, RecoverQuery())[:MOST_WAITING_GROUPS]
    bounds = (now, now - older_than_ms, MOST_COUNTED, OLDEST_COMPARED)
    return longest_waiting(
        WaitingRuns(*row)
        for group in groups
        for row in db.execute(SQL["list_waiting_runs"], (*group, *bounds))
    )


def _groups_to_recover(db: sqlite3.Connection, query: RecoverQuery) -> list[RunGroup]:
    pools = [query.pool] if query.pool else _names(db, "read_pools_to_recover")
    return [
        RunGroup(pool, app)
        for pool in pools
        for app in dict.fromkeys(query.app_names) or _names(db, "read_apps_to_recover", pool)
    ]


def list_effects_to_dispatch(
    db: sqlite3.Connection, connectors: Sequence[str], limit: int, clock: Clock
) -> list[Effect]:
    groups = _effect_groups(db, TO_DISPATCH, connectors)
    return oldest_effects(_effects(db, "list_claimable_effects", groups, clock(), limit), limit)


def list_pending_effects(db: sqlite3.Connection, query: PendingQuery, clock: Clock) -> list[Effect]:
    now, found = clock(), list[Effect]()
    if query.include_unknown:
        groups = _effect_groups(db, UNKNOWN, query.connectors)
        found += _effects(db, "list_claimable_effects", groups, now, query.limit)
    if query.include_pending:
        groups = _effect_groups(db, PENDING, query.connectors)
        found += _effects(db, "list_old_effects", groups, now - query.older_than_ms, query.limit)
    return oldest_effects(found, query.limit)


def _effect_groups(
    db: sqlite3.Connection, kinds: Iterable[tuple[int, int]], connectors: Sequence[str]
) -> list[EffectGroup]:
    return [
        EffectGroup(*kind, connector)
        for kind in kinds
        for connector in dict.fromkeys(connectors) or _names(db, "read_open_connectors", *kind)
    ]


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


def _names(db: sqlite3.Connection, statement: str, *params: object) -> list[str]:
    return [name for (name,) in db.execute(SQL[statement], params)]
