"""What is asked of runs and of what they wrote down in Postgres; see `ports.runs`."""

from collections.abc import Iterable, Sequence

from tape.model.budget import BudgetRow
from tape.model.effect import Effect
from tape.model.entry import Entry
from tape.model.obligation import Obligation
from tape.model.run import Run
from tape.model.timer import Timer
from tape.ports.runs import (
    MOST_COUNTED,
    MOST_WAITING_GROUPS,
    OLDEST_COMPARED,
    PendingQuery,
    RecoverQuery,
    RunQuery,
    WaitingRuns,
)
from tape.stores.postgres.pool import PostgresPool
from tape.stores.postgres.turn import SQL
from tape.stores.run_rows import (
    PENDING,
    TO_DISPATCH,
    UNKNOWN,
    EffectGroup,
    RunGroup,
    listing,
    listing_params,
    longest_waiting,
    oldest_effects,
    oldest_obligations,
)


class PostgresRuns:
    has_draw_subjects = False

    def __init__(self, reads: PostgresPool) -> None:
        self._reads = reads

    async def get_run(self, run_id: str) -> Run | None:
        return await self._reads.row(Run, "get_run", run_id)

    async def list_runs(self, query: RunQuery) -> list[Run]:
        last = await self.get_run(query.after) if query.after else None
        return await self._reads.rows(Run, listing(query), *listing_params(query, last))

    async def list_runs_to_recover(self, query: RecoverQuery) -> list[Run]:
        groups = await self._groups_to_recover(query)
        if not groups:
            return []
        columns = zip(*groups, strict=True)
        return await self._reads.rows(Run, "list_runs_to_recover", *columns, query.limit)

    async def list_waiting_runs(self, older_than_ms: int) -> list[WaitingRuns]:
        groups = (await self._groups_to_recover(RecoverQuery()))[:MOST_WAITING_GROUPS]
        if not groups:
            return []
        params = (*zip(*groups, strict=True), older_than_ms, MOST_COUNTED, OLDEST_COMPARED)
        return longest_waiting(await self._reads.rows(WaitingRuns, "list_waiting_runs", *params))

    async def _groups_to_recover(self, query: RecoverQuery) -> list[RunGroup]:
        pools = [query.pool] if query.pool else await self._reads.rows(str, "read_pools_to_recover")
        return [
            RunGroup(pool, app)
            for pool in pools
            for app in dict.fromkeys(query.app_names)
            or await self._reads.rows(str, "read_apps_to_recover", pool)
        ]

    async def get_decision(self, run_id: str, decision_index: int) -> Entry | None:
        return await self._reads.row(Entry, "get_decision", run_id, decision_index)

    async def get_effect(self, run_id: str, idempotency_key: str) -> Effect | None:
        return await self._reads.row(Effect, "get_effect", run_id, idempotency_key)

    async def list_pending_effects(self, query: PendingQuery) -> list[Effect]:
        found = list[Effect]()
        if query.include_unknown:
            groups = await self._effect_groups(UNKNOWN, query.connectors)
            found += await self._effects("list_claimable_effects", groups, query.limit)
        if query.include_pending:
            groups = await self._effect_groups(PENDING, query.connectors)
            found += await self._effects(
                "list_old_effects", groups, query.older_than_ms, query.limit
            )
        return oldest_effects(found, query.limit)

    async def list_effects_to_dispatch(self, connectors: Sequence[str], limit: int) -> list[Effect]:
        groups = await self._effect_groups(TO_DISPATCH, connectors)
        return await self._effects("list_claimable_effects", groups, limit)

    async def list_obligations(self, run_id: str) -> list[Obligation]:
        return await self._reads.rows(Obligation, "list_obligations", run_id)

    async def list_unresolved_obligations(
        self, limit: int, *, include_stuck: bool = False
    ) -> list[Obligation]:
        names = ["list_top_obligations", "list_lone_obligations"]
        if include_stuck:
            names.append("list_stuck_obligations")
        found = [row for name in names for row in await self._reads.rows(Obligation, name, limit)]
        return oldest_obligations(found, limit)

    async def get_budget(self, run_id: str) -> BudgetRow | None:
        return await self._reads.row(BudgetRow, "get_budget", run_id)

    async def list_timers(self, run_id: str) -> list[Timer]:
        return await self._reads.rows(Timer, "list_timers", run_id)

    async def list_due_timers(self, limit: int) -> list[Timer]:
        return await self._reads.rows(Timer, "list_due_timers", limit)

    async def next_timer_in_ms(self) -> int | None:
        in_ms = await self._reads.use(
            lambda connection: connection.fetchval(SQL["read_next_timer"]), again=True
        )
        return None if in_ms is None else max(0, in_ms)

    async def _effect_groups(
        self, kinds: Iterable[tuple[int, int]], connectors: Sequence[str]
    ) -> list[EffectGroup]:
        return [
            EffectGroup(*kind, connector)
            for kind in kinds
            for connector in dict.fromkeys(connectors)
            or await self._reads.rows(str, "read_open_connectors", *kind)
        ]

    async def _effects(
        self, name: str, groups: Sequence[EffectGroup], *params: object
    ) -> list[Effect]:
        if not groups:
            return []
        return await self._reads.rows(Effect, name, *zip(*groups, strict=True), *params)
