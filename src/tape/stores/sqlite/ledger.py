"""The ledger in a SQLite file; see `ports.ledger`."""

import sqlite3

from tape.model.drainer import Drainer
from tape.model.entry import Entry
from tape.model.event_subscription import EventSubscription
from tape.ports.clock import Clock
from tape.ports.ledger import RecentEntries, RecentQuery
from tape.stores.ledger_rows import (
    NEWEST,
    looked_through,
    recent_filters,
    recent_of_run,
    recent_range,
)
from tape.stores.sqlite.entries import read_up_to
from tape.stores.sqlite.pool import SqlitePool
from tape.stores.sqlite.turn import SQL


class SqliteLedger:
    def __init__(self, reads: SqlitePool, clock: Clock) -> None:
        self._reads = reads
        self._clock = clock

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
        return self._clock()

    async def read_recent(self, query: RecentQuery) -> RecentEntries:
        def read(db: sqlite3.Connection) -> RecentEntries:
            if query.run_id:
                bounds = (query.before or NEWEST, query.run_id)
                found, is_cut = _read(db, "read_recent_of_run", bounds, query)
                return recent_of_run(found, is_cut=is_cut)
            (head,) = db.execute(SQL["read_head"]).fetchone()
            low, high = recent_range(query, head)
            found, is_cut = _read(db, "read_recent", (high, low), query)
            through = looked_through(found, low, is_cut=is_cut)
            (older,) = db.execute(SQL["find_older"], (through,)).fetchone()
            return RecentEntries(found, older + 1 if older else 0)

        return await self._reads.at_once(read)


def _read(
    db: sqlite3.Connection, name: str, bounds: tuple[int, int | str], query: RecentQuery
) -> tuple[list[Entry], bool]:
    """Entries, and whether there may be more of them."""
    params = (*bounds, query.limit, *recent_filters(query))
    found, is_cut = read_up_to(db, SQL[name], params, query.max_bytes)
    return found, is_cut or len(found) == query.limit
