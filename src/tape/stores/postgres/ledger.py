"""The ledger in Postgres; see `ports.ledger`."""

from tape.model.drainer import Drainer
from tape.model.entry import Entry
from tape.model.event_subscription import EventSubscription
from tape.ports.ledger import RecentEntries, RecentQuery
from tape.stores.ledger_rows import (
    NEWEST,
    looked_through,
    recent_filters,
    recent_of_run,
    recent_range,
)
from tape.stores.postgres.pool import PostgresPool
from tape.stores.postgres.turn import SQL

_PAYLOAD = Entry._fields.index("payload_json")


class PostgresLedger:
    def __init__(self, reads: PostgresPool) -> None:
        self._reads = reads

    async def list_event_subscriptions(self, drainer_id: str = "") -> list[EventSubscription]:
        if not drainer_id:
            return await self._reads.rows(EventSubscription, "list_event_subscriptions")
        name = "list_event_subscriptions_of_drainer"
        return await self._reads.rows(EventSubscription, name, drainer_id)

    async def get_drainer(self, drainer_id: str) -> Drainer | None:
        return await self._reads.row(Drainer, "get_drainer", drainer_id)

    async def list_drainers(self) -> list[Drainer]:
        return await self._reads.rows(Drainer, "list_drainers")

    async def read_clock(self) -> int:
        (now_ms,) = await self._reads.rows(int, "read_clock")
        return now_ms

    async def read_recent(self, query: RecentQuery) -> RecentEntries:
        if query.run_id:
            bounds = (query.before or NEWEST, query.run_id)
            found, is_cut = await self._read("read_recent_of_run", bounds, query)
            return recent_of_run(found, is_cut=is_cut)
        (head,) = await self._reads.rows(int, "read_head")
        low, high = recent_range(query, head)
        found, is_cut = await self._read("read_recent", (high, low), query)
        through = looked_through(found, low, is_cut=is_cut)
        (older,) = await self._reads.rows(int, "find_older", through)
        return RecentEntries(found, older + 1 if older else 0)

    async def _read(
        self, name: str, bounds: tuple[int, int | str], query: RecentQuery
    ) -> tuple[list[Entry], bool]:
        """Entries, and whether there may be more of them."""
        params = (*bounds, query.limit, query.max_bytes, *recent_filters(query))
        rows = await self._reads.use(
            lambda connection: connection.fetch(SQL[name], *params), again=True
        )
        found = [Entry(*row) for row in rows if row[_PAYLOAD] is not None]
        return found, len(rows) == query.limit or len(found) < len(rows)
