"""The ledger in a SQLite file; see `ports.ledger`."""

import sqlite3

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
from tape.stores.sqlite.turn import SQL, maker

_PAYLOAD = Entry._fields.index("payload_json")


def list_event_subscriptions(db: sqlite3.Connection, drainer_id: str) -> list[EventSubscription]:
    make = maker(EventSubscription)
    if not drainer_id:
        return [make(*row) for row in db.execute(SQL["list_event_subscriptions"])]
    rows = db.execute(SQL["list_event_subscriptions_of_drainer"], (drainer_id,))
    return [make(*row) for row in rows]


def get_drainer(db: sqlite3.Connection, drainer_id: str) -> Drainer | None:
    row = db.execute(SQL["get_drainer"], (drainer_id,)).fetchone()
    return Drainer(*row) if row else None


def list_drainers(db: sqlite3.Connection) -> list[Drainer]:
    return [Drainer(*row) for row in db.execute(SQL["list_drainers"])]


def read_recent(db: sqlite3.Connection, query: RecentQuery) -> RecentEntries:
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


def _read(
    db: sqlite3.Connection, name: str, bounds: tuple[int, int | str], query: RecentQuery
) -> tuple[list[Entry], bool]:
    """Entries, and whether there may be more of them."""
    found: list[Entry] = []
    size = 0
    cursor = db.execute(SQL[name], (*bounds, query.limit, *recent_filters(query)))
    for row in cursor:
        found.append(Entry(*row))
        payload: str = row[_PAYLOAD]
        size += len(payload) if payload.isascii() else len(payload.encode())
        if size >= query.max_bytes:
            cursor.close()
            return found, True
    return found, len(found) == query.limit
