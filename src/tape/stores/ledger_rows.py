"""What both stores need to read the newest entries: which range of them, and where to go on."""

from typing import NamedTuple

from tape.model.entry import Entry
from tape.ports.ledger import RecentEntries, RecentQuery
from tape.stores.rows import prefix_range

NEWEST = 2**63 - 1


class RecentRange(NamedTuple):
    """Entries with `low <= global_seq < high` are looked at."""

    low: int
    high: int


def recent_range(query: RecentQuery, head: int) -> RecentRange:
    high = min(query.before or NEWEST, head + 1)
    return RecentRange(max(high - query.scan, 0), high)


def recent_filters(query: RecentQuery) -> tuple[str, ...]:
    return (
        *prefix_range(query.prefix), query.event_type, query.entity_type, query.entity_id,
        query.trace_id, query.event_id, query.caused_by, query.source,
    )  # fmt: skip


def looked_through(found: list[Entry], low: int, *, is_cut: bool) -> int:
    """Down to where all that pass the filters were found."""
    return found[-1].global_seq if is_cut else low


def recent_of_run(found: list[Entry], *, is_cut: bool) -> RecentEntries:
    return RecentEntries(found, found[-1].global_seq if is_cut else 0)
