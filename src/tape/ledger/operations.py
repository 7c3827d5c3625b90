"""The operations on the event ledger, the same in process and over gRPC.

`Ledger` does them on a store; `tape.client` does them at a server.
"""

from typing import Protocol

from tape.errors import InvalidArgument, NotFound
from tape.journal.follow import refuse_beyond_the_end
from tape.journal.ids import UlidFactory
from tape.journal.pacer import Pacer
from tape.journal.writer import Writer
from tape.ledger.drain import ENDED_BADLY, Drain, DrainRequest
from tape.ledger.drain_loop import DrainLoop
from tape.model.drainer import Drainer, DrainerState, DrainReport, check_drainer_id
from tape.model.drainer_operator import ResumeDrainer, SkipEvent
from tape.model.event_subscription import (
    DEFAULT_DRAINER,
    DeleteEventSubscription,
    EventSubscription,
    NewEventSubscription,
    PutEventSubscription,
)
from tape.model.names import check_name
from tape.ports.ledger import RecentEntries, RecentQuery
from tape.ports.store import Store
from tape.predicates import Checker
from tape.settings import Settings

MOST_SCANNED = 100_000
MOST_AWAIT_S = 3600.0
_FILTERS = (
    "prefix", "event_type", "entity_type", "entity_id", "run_id", "trace_id", "event_id",
    "caused_by", "source",
)  # fmt: skip


class LedgerOperations(Protocol):
    async def put_event_subscription(self, new: NewEventSubscription) -> EventSubscription:
        """Add an event subscription, or change one that is there; never a drainer's cursor."""

    async def delete_event_subscription(self, subscription_id: str) -> bool:
        """Remove it; False if there was none. Its runs go on."""

    async def list_event_subscriptions(self, drainer_id: str = "") -> list[EventSubscription]:
        """By id, of one drainer or of all."""

    async def drain(
        self, drainer_id: str = DEFAULT_DRAINER, *, limit: int = 0, await_s: float | None = None
    ) -> DrainReport:
        """One pass: dispatch the events after the cursor in order, at most `limit` of them, and
        wait for a run's end at most so long."""

    async def list_drainers(self) -> list[DrainerState]:
        """By id; those with a subscription, and those that have ever drained."""

    async def skip(self, drainer_id: str, event_id: str, *, reason: str, by: str) -> DrainerState:
        """Move past the event a drainer is halted on, or with whose run it waits; NotHalted if that
        is not the one. The run stays as it is."""

    async def resume(self, drainer_id: str, *, by: str) -> DrainerState:
        """Try a halted drainer's event again now; NotHalted if it is not halted."""

    async def recent(self, query: RecentQuery) -> RecentEntries:
        """The newest entries that pass the filters, newest first."""


class Ledger:
    """The operations on a store in this process."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        ids: UlidFactory,
        settings: Settings,
        *,
        pacer: Pacer,
        checker: Checker,
    ) -> None:
        self._store = store
        self._writer = writer
        self._ids = ids
        self._limits = settings.limits
        self._settings = settings.drainers
        self._checker = checker
        self._drain = Drain(store, writer, ids, settings.drainers, settings.limits, pacer=pacer)

    async def put_event_subscription(self, new: NewEventSubscription) -> EventSubscription:
        move = PutEventSubscription(new, next(self._ids), self._limits)
        await self._checker.checked(new.filter_expr, field="filter_expr")
        return await self._writer.submit(move)

    async def delete_event_subscription(self, subscription_id: str) -> bool:
        move = DeleteEventSubscription(subscription_id, next(self._ids), self._limits)
        return await self._writer.submit(move)

    async def list_event_subscriptions(self, drainer_id: str = "") -> list[EventSubscription]:
        check_name(drainer_id, self._limits, field="drainer_id")
        return await self._store.ledger.list_event_subscriptions(drainer_id)

    async def drain(
        self, drainer_id: str = DEFAULT_DRAINER, *, limit: int = 0, await_s: float | None = None
    ) -> DrainReport:
        check_drainer_id(drainer_id, self._limits)
        if not 0 <= limit <= self._limits.page_entries:
            raise InvalidArgument(
                f"{limit} is not in 0..{self._limits.page_entries}", field="limit"
            )
        wait_s = self._settings.await_s if await_s is None else await_s
        if not 0 <= wait_s <= MOST_AWAIT_S:
            raise InvalidArgument(f"{wait_s} is not in 0..{MOST_AWAIT_S}", field="await_s")
        known = await self._store.ledger.get_drainer(drainer_id)
        if known is None and not await self._store.ledger.list_event_subscriptions(drainer_id):
            raise NotFound(f"no event subscription names the drainer {drainer_id!r}")
        errand = DrainRequest(drainer_id, limit or self._settings.page, wait_s)
        return await self._drain.make_pass(errand)

    def drain_loop(self) -> DrainLoop:
        """What drains whenever there is something to drain."""
        return DrainLoop(self._store, self.drain, self._settings, self._limits)

    async def list_drainers(self) -> list[DrainerState]:
        enabled: dict[str, int] = {}
        for row in await self._store.ledger.list_event_subscriptions():
            enabled[row.drainer_id] = enabled.get(row.drainer_id, 0) + row.enabled
        known = {row.drainer_id: row for row in await self._store.ledger.list_drainers()}
        head = (await self._store.info()).head_global_seq
        return [
            await self._state(known.get(name) or Drainer(name), enabled.get(name, 0), head)
            for name in sorted(known.keys() | enabled.keys())
        ]

    async def skip(self, drainer_id: str, event_id: str, *, reason: str, by: str) -> DrainerState:
        move = SkipEvent(drainer_id, event_id, next(self._ids), self._limits, reason=reason, by=by)
        return await self._seen(await self._writer.submit(move))

    async def resume(self, drainer_id: str, *, by: str) -> DrainerState:
        move = ResumeDrainer(drainer_id, by, next(self._ids), self._limits)
        return await self._seen(await self._writer.submit(move))

    async def _seen(self, drainer: Drainer) -> DrainerState:
        rows = await self._store.ledger.list_event_subscriptions(drainer.drainer_id)
        head = (await self._store.info()).head_global_seq
        return await self._state(drainer, sum(row.enabled for row in rows), head)

    async def _state(self, drainer: Drainer, enabled: int, head: int) -> DrainerState:
        """Told without what does not count any more."""
        app = pool = ""
        if not drainer.halted_on_event_id:
            drainer = drainer._replace(halted_at_ms=0, next_try_at_ms=0)
        run = (
            await self._store.runs.get_run(drainer.waiting_on_run_id)
            if drainer.is_waiting
            else None
        )
        # An older version halts at a run that failed, and leaves it as one that is waited for.
        is_left = bool(drainer.halted_on_event_id and run and run.status in ENDED_BADLY)
        if is_left or not drainer.is_waiting:
            drainer = drainer.not_waiting()
        elif run is not None:
            app, pool = run.app_name, run.pool
        lag = max(0, head - drainer.last_global_seq)
        is_held = drainer.is_leased(await self._store.ledger.read_clock())
        return DrainerState(drainer, enabled, lag, is_held, app, pool)

    async def recent(self, query: RecentQuery) -> RecentEntries:
        if not 0 <= query.before < 2**63:
            raise InvalidArgument(f"{query.before} is not in 0..2^63-1", field="before")
        await refuse_beyond_the_end(self._store, query.before - 1, field="before")
        for field in _FILTERS:
            check_name(getattr(query, field), self._limits, field=field)
        if not query.prefix.isascii():
            position = next(n for n, c in enumerate(query.prefix) if not c.isascii())
            raise InvalidArgument(
                "subjects are ASCII, other characters are percent-encoded in them",
                field="prefix",
                position=position,
            )
        if not 0 < query.scan <= MOST_SCANNED:
            raise InvalidArgument(f"{query.scan} is not in 1..{MOST_SCANNED}", field="scan")
        if not 0 < query.limit <= self._limits.page_entries:
            most = self._limits.page_entries
            raise InvalidArgument(f"{query.limit} is not in 1..{most}", field="limit")
        bounded = query._replace(max_bytes=min(query.max_bytes, self._limits.page_bytes))
        return await self._store.ledger.read_recent(bounded)
