"""The operations on the event ledger, the same in process and over gRPC.

`Ledger` does them on a store; `tape.client` does them at a server.
"""

from typing import Protocol

from tape.config import Settings
from tape.errors import InvalidArgument
from tape.model.drainer import DrainerState, DrainReport
from tape.model.event_subscription import DEFAULT_DRAINER, EventSubscription, NewSubscription
from tape.model.names import check_name
from tape.ports.ledger import RecentEntries, RecentQuery
from tape.ports.store import Store

MOST_SCANNED = 100_000
_FILTERS = (
    "prefix", "event_type", "entity_type", "entity_id", "run_id", "trace_id", "event_id",
    "caused_by",
)  # fmt: skip


class LedgerOperations(Protocol):
    async def put_subscription(self, new: NewSubscription) -> EventSubscription:
        """Add an event subscription, or change one that is there; never a drainer's cursor."""

    async def delete_subscription(self, subscription_id: str) -> bool:
        """Remove it; False if there was none. Its runs go on."""

    async def list_subscriptions(self, drainer_id: str = "") -> list[EventSubscription]:
        """By id, of one drainer or of all."""

    async def drain(
        self, drainer_id: str = DEFAULT_DRAINER, *, limit: int = 0, await_s: float | None = None
    ) -> DrainReport:
        """One pass: dispatch the events after the cursor in order, at most `limit` of them, and
        wait for a run's end at most so long."""

    async def list_drainers(self) -> list[DrainerState]:
        """By id; those with a subscription, and those that have ever drained."""

    async def skip(self, drainer_id: str, event_id: str, *, reason: str, by: str) -> DrainerState:
        """Move past the event a drainer is halted on, without dispatching it; NotHalted if it is
        not halted on that one."""

    async def resume(self, drainer_id: str, *, by: str) -> DrainerState:
        """Try a halted drainer's event again now; NotHalted if it is not halted."""

    async def recent(self, query: RecentQuery) -> RecentEntries:
        """The newest entries that pass the filters, newest first."""


class Ledger:
    """The operations on a store in this process."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._limits = settings.limits

    async def put_subscription(self, new: NewSubscription) -> EventSubscription:
        raise NotImplementedError

    async def delete_subscription(self, subscription_id: str) -> bool:
        raise NotImplementedError

    async def list_subscriptions(self, drainer_id: str = "") -> list[EventSubscription]:
        check_name(drainer_id, self._limits, field="drainer_id")
        return await self._store.list_event_subscriptions(drainer_id)

    async def drain(
        self, drainer_id: str = DEFAULT_DRAINER, *, limit: int = 0, await_s: float | None = None
    ) -> DrainReport:
        raise NotImplementedError

    async def list_drainers(self) -> list[DrainerState]:
        raise NotImplementedError

    async def skip(self, drainer_id: str, event_id: str, *, reason: str, by: str) -> DrainerState:
        raise NotImplementedError

    async def resume(self, drainer_id: str, *, by: str) -> DrainerState:
        raise NotImplementedError

    async def recent(self, query: RecentQuery) -> RecentEntries:
        if not 0 <= query.before < 2**63:
            raise InvalidArgument(f"{query.before} is not in 0..2^63-1", field="before")
        for field in _FILTERS:
            check_name(getattr(query, field), self._limits, field=field)
        if not 0 < query.scan <= MOST_SCANNED:
            raise InvalidArgument(f"{query.scan} is not in 1..{MOST_SCANNED}", field="scan")
        if not 0 < query.limit <= self._limits.page_entries:
            most = self._limits.page_entries
            raise InvalidArgument(f"{query.limit} is not in 1..{most}", field="limit")
        bounded = query._replace(max_bytes=min(query.max_bytes, self._limits.page_bytes))
        return await self._store.read_recent(bounded)
