"""Reading a range of entries."""

import asyncpg

from tape.model.entry import Entry
from tape.ports.predicate import SqlFilter
from tape.ports.store import EntryRange, ReadEntries
from tape.stores.filtered import FILTER_S
from tape.stores.postgres.turn import SQL
from tape.stores.rows import prefix_range
from tape.stores.statements import PREDICATE

_PAYLOAD = Entry._fields.index("payload_json")
FIRST_PREDICATE_PARAMETER = 10


async def read_entries(
    connection: asyncpg.Connection, query: ReadEntries, condition: SqlFilter | None
) -> EntryRange | None:
    """What is in the range, and how far it was read; None if the condition takes too long."""
    statement, extra, within_s = SQL["read_entries"], tuple[object, ...](), None
    if condition is not None:
        condition = condition.renumbered(FIRST_PREDICATE_PARAMETER)
        statement = statement.replace(PREDICATE, f"({condition.text}) IS NOT FALSE")
        extra, within_s = condition.params, FILTER_S
    low, high = prefix_range(query.prefix)
    params = (
        query.after, query.upto, query.limit, query.max_bytes, low, high, query.kind,
        query.run_id, query.from_ts_ms, *extra,
    )  # fmt: skip
    try:
        rows = await connection.fetch(statement, *params, timeout=within_s)
    except TimeoutError:
        if within_s is None:
            raise
        return None
    found = [Entry(*row) for row in rows if row[_PAYLOAD] is not None]
    if len(rows) < query.limit and len(found) == len(rows):
        return EntryRange(found, query.upto)
    return EntryRange(found, found[-1].global_seq)
