"""What is asked of runs and of what they wrote down in a SQLite file; see `ports.runs`."""

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import product

from tape.model.budget import BudgetRow
from tape.model.effect import Effect
from tape.model.entry import Entry
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
from tape.stores.sqlite.pool import SqlitePool
from tape.stores.sqlite.turn import SQL


class SqliteRuns:
    has_draw_subjects = False

    def __init__(self, reads: SqlitePool, clock: Clock) -> None:
        self._reads = reads
        self._clock = clock

    async def get_run(self, run_id: str) -> Run | None:
        return await self._reads.row(Run, "get_run", run_id)

    async def list_runs(self, query: RunQuery) -> list[Run]:
        def read(db: sqlite3.Connection) -> list[Run]:
            row = db.execute(SQL["get_run"], (query.after,)).fetchone() if query.after else None
            params = listing_params(query, Run(*row) if row else None)
            return [Run(*row) for row in db.execute(SQL[listing(query)], params)]

        return await self._reads.use(read)

    async def list_runs_to_recover(self, query: RecoverQuery) -> list[Run]:
        def read(db: sqlite3.Connection) -> list[Run]:
            now, statement = self._clock(), SQL["list_runs_to_recover"]
            found = [
                Run(*row)
                for group, status in product(_groups_to_recover(db, query), UNDRIVEN)
                for row in db.execute(statement, (*group, status, now, query.limit))
            ]
            return oldest_runs(found, query.limit)

        return await self._reads.at_once(read)

    async def list_waiting_runs(self, older_than_ms: int) -> list[WaitingRuns]:
        def read(db: sqlite3.Connection) -> list[WaitingRuns]:
            now = self._clock()
            groups = _groups_to_recover(db, RecoverQuery())[:MOST_WAITING_GROUPS]
            bounds = (now, now - older_than_ms, MOST_COUNTED, OLDEST_COMPARED)
            return longest_waiting(
                WaitingRuns(*row)
                for group in groups
                for row in db.execute(SQL["list_waiting_runs"], (*group, *bounds))
            )

        return await self._reads.at_once(read)

    async def get_decision(self, run_id: str, decision_index: int) -> Entry | None:
        return await self._reads.row(Entry, "get_decision", run_id, decision_index)

    async def get_effect(self, run_id: str, idempotency_key: str) -> Effect | None:
        return await self._reads.row(Effect, "get_effect", run_id, idempotency_key)

    async def list_pending_effects(self, query: PendingQuery) -> list[Effect]:
        def read(db: sqlite3.Connection) -> list[Effect]:
            now, found = self._clock(), list[Effect]()
            if query.include_unknown:
                groups = _effect_groups(db, UNKNOWN, query.connectors)
                found += _effects(db, "list_claimable_effects", groups, now, query.limit)
            if query.include_pending:
                groups = _effect_groups(db, PENDING, query.connectors)
                latest = now - query.older_than_ms
                found += _effects(db, "list_old_effects", groups, latest, query.limit)
            return oldest_effects(found, query.limit)

        return await self._reads.at_once(read)

    async def list_effects_to_dispatch(self, connectors: Sequence[str], limit: int) -> list[Effect]:
        def read(db: sqlite3.Connection) -> list[Effect]:
            groups = _effect_groups(db, TO_DISPATCH, connectors)
            found = _effects(db, "list_claimable_effects", groups, self._clock(), limit)
            return oldest_effects(found, limit)

        return await self._reads.at_once(read)

    async def list_obligations(self, run_id: str) -> list[Obligation]:
        return await self._reads.rows(Obligation, "list_obligations", run_id)

    async def list_unresolved_obligations(
        self, limit: int, *, include_stuck: bool = False
    ) -> list[Obligation]:
        def read(db: sqlite3.Connection) -> list[Obligation]:
            now = self._clock()
            rows = [
                *db.execute(SQL["list_top_obligations"], (now, limit)),
                *db.execute(SQL["list_lone_obligations"], (now, limit)),
            ]
            if include_stuck:
                rows += db.execute(SQL["list_stuck_obligations"], (limit,))
            return oldest_obligations((Obligation(*row) for row in rows), limit)

        return await self._reads.at_once(read)

    async def get_budget(self, run_id: str) -> BudgetRow | None:
        return await self._reads.row(BudgetRow, "get_budget", run_id)

    async def list_timers(self, run_id: str) -> list[Timer]:
        return await self._reads.rows(Timer, "list_timers", run_id)

    async def list_due_timers(self, limit: int) -> list[Timer]:
        return await self._reads.rows(Timer, "list_due_timers", self._clock(), limit)

    async def next_timer_in_ms(self) -> int | None:
        def read(db: sqlite3.Connection) -> int | None:
            (fire_at_ms,) = db.execute(SQL["read_next_timer"]).fetchone()
            return None if fire_at_ms is None else max(0, fire_at_ms - self._clock())

        return await self._reads.use(read)


def _groups_to_recover(db: sqlite3.Connection, query: RecoverQuery) -> list[RunGroup]:
    pools = [query.pool] if query.pool else _names(db, "read_pools_to_recover")
    return [
        RunGroup(pool, app)
        for pool in pools
        for app in dict.fromkeys(query.app_names) or _names(db, "read_apps_to_recover", pool)
    ]


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


def _names(db: sqlite3.Connection, statement: str, *params: object) -> list[str]:
    return [name for (name,) in db.execute(SQL[statement], params)]
