"""What is asked of runs and of what they wrote down in Postgres; see `ports.runs`."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from tape.model.budget import Budget
from tape.model.effect import DispatchMode, Effect, EffectStatus
from tape.model.entry import Entry
from tape.model.obligation import Obligation
from tape.model.run import Run
from tape.model.timer import Timer
from tape.ports.runs import PendingQuery, RecoverQuery, RunQuery
from tape.stores.postgres.pool import Pool
from tape.stores.postgres.turn import SQL
from tape.stores.run_rows import (
    EffectGroup,
    RunGroup,
    effect_groups,
    listing,
    listing_params,
    matching_groups,
    oldest_effects,
    oldest_obligations,
    recover_groups,
)

T = TypeVar("T")

_WAYS = tuple(DispatchMode)


class PostgresRuns:
    def __init__(self, reads: Pool) -> None:
        self._reads = reads

    async def get_run(self, run_id: str) -> Run | None:
        return _first(await self._rows(Run, "get_run", run_id))

    async def list_runs(self, query: RunQuery) -> list[Run]:
        last = await self.get_run(query.after) if query.after else None
        return await self._rows(Run, listing(query), *listing_params(query, last))

    async def list_runs_to_recover(self, query: RecoverQuery) -> list[Run]:
        groups = recover_groups(query)
        if groups is None:
            there = await self._rows(RunGroup, "read_recoverable")
            groups = matching_groups(query, there)
        if not groups:
            return []
        columns = zip(*groups, strict=True)
        return await self._rows(Run, "list_runs_to_recover", *columns, query.limit)

    async def get_decision(self, run_id: str, decision_index: int) -> Entry | None:
        return _first(await self._rows(Entry, "get_decision", run_id, decision_index))

    async def get_effect(self, run_id: str, idempotency_key: str) -> Effect | None:
        return _first(await self._rows(Effect, "get_effect", run_id, idempotency_key))

    async def list_pending_effects(self, query: PendingQuery) -> list[Effect]:
        there = await self._open_effects(query.connectors)
        found = list[Effect]()
        if query.include_unknown:
            groups = effect_groups(EffectStatus.UNKNOWN, _WAYS, query.connectors, there)
            found += await self._effects("list_claimable_effects", groups, query.limit)
        if query.include_pending:
            groups = effect_groups(EffectStatus.PENDING, _WAYS, query.connectors, there)
            found += await self._effects(
                "list_old_effects", groups, query.older_than_ms, query.limit
            )
        return oldest_effects(found, query.limit)

    async def list_effects_to_dispatch(self, connectors: Sequence[str], limit: int) -> list[Effect]:
        there = await self._open_effects(connectors)
        groups = effect_groups(EffectStatus.PENDING, [DispatchMode.OUTBOX], connectors, there)
        return await self._effects("list_claimable_effects", groups, limit)

    async def list_obligations(self, run_id: str) -> list[Obligation]:
        return await self._rows(Obligation, "list_obligations", run_id)

    async def list_unresolved_obligations(
        self, limit: int, *, include_stuck: bool
    ) -> list[Obligation]:
        names = ["list_top_obligations", "list_lone_obligations"]
        if include_stuck:
            names.append("list_stuck_obligations")
        found = [row for name in names for row in await self._rows(Obligation, name, limit)]
        return oldest_obligations(found, limit)

    async def get_budget(self, run_id: str) -> Budget | None:
        return _first(await self._rows(Budget, "get_budget", run_id))

    async def list_timers(self, run_id: str) -> list[Timer]:
        return await self._rows(Timer, "list_timers", run_id)

    async def list_due_timers(self, limit: int) -> list[Timer]:
        return await self._rows(Timer, "list_due_timers", limit)

    async def next_timer_in_ms(self) -> int | None:
        (in_ms,) = await self._rows(lambda in_ms: in_ms, "read_next_timer")
        return None if in_ms is None else max(0, in_ms)

    async def _open_effects(self, connectors: Sequence[str]) -> list[EffectGroup]:
        """Looked for only if no connectors are asked for."""
        return [] if connectors else await self._rows(EffectGroup, "read_open_effects")

    async def _effects(
        self, name: str, groups: Sequence[EffectGroup], *params: object
    ) -> list[Effect]:
        if not groups:
            return []
        return await self._rows(Effect, name, *zip(*groups, strict=True), *params)

    async def _rows(self, make: Callable[..., T], name: str, *params: object) -> list[T]:
        rows = await self._reads.use(
            lambda connection: connection.fetch(SQL[name], *params), again=True
        )
        return [make(*row) for row in rows]


def _first(found: list[T]) -> T | None:
    return found[0] if found else None
