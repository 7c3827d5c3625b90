"""Reading a range of entries."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tape.model.entry import Entry
from tape.ports.predicate import SqlFilter
from tape.ports.store import EntryRange, ReadEntries
from tape.stores.filtered import FILTER_S
from tape.stores.rows import prefix_range
from tape.stores.sqlite.turn import SQL
from tape.stores.statements import PREDICATE

_PAYLOAD = Entry._fields.index("payload_json")
_INSTRUCTIONS = 50_000
"""Of SQLite's own, between two looks at the clock."""


def read_entries(
    db: sqlite3.Connection, query: ReadEntries, condition: SqlFilter | None
) -> EntryRange | None:
    """What is in the range, and how far it was read; None if the condition takes too long."""
    if condition is None:
        return _read(db, query, SQL["read_entries"])
    statement = SQL["read_entries"].replace(PREDICATE, f"({condition.text}) IS NOT FALSE")
    try:
        with _interrupted_after(db, FILTER_S):
            return _read(db, query, statement, *condition.params)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            return None
        raise


def _read(db: sqlite3.Connection, query: ReadEntries, statement: str, *extra: object) -> EntryRange:
    low, high = prefix_range(query.prefix)
    params = (
        query.after, query.upto, query.limit, low, high, query.kind, query.run_id,
        query.from_ts_ms, *extra,
    )  # fmt: skip
    found, is_cut = read_up_to(db, statement, params, query.max_bytes)
    if is_cut or len(found) == query.limit:
        return EntryRange(found, found[-1].global_seq)
    return EntryRange(found, query.upto)


def read_up_to(
    db: sqlite3.Connection, statement: str, params: tuple[object, ...], max_bytes: int
) -> tuple[list[Entry], bool]:
    """Entries in order, up to the one with which their payloads have so many bytes; and whether
    there was one."""
    found: list[Entry] = []
    size = 0
    with closing(db.execute(statement, params)) as cursor:
        for row in cursor:
            found.append(Entry(*row))
            payload: str = row[_PAYLOAD]
            size += len(payload) if payload.isascii() else len(payload.encode())
            if size >= max_bytes:
                return found, True
    return found, False


@contextmanager
def _interrupted_after(db: sqlite3.Connection, seconds: float) -> Iterator[None]:
    until = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > until, _INSTRUCTIONS)
    try:
        yield
    finally:
        db.set_progress_handler(None, 0)
