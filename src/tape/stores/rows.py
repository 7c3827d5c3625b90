"""What both stores need to turn moves' needs and changes into statements."""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from tape.model.budget import BUDGETS
from tape.model.bulk_write import WRITE_LISTS, WRITES
from tape.model.credential import CREDENTIAL_VERSIONS, CREDENTIALS
from tape.model.decision import DECISIONS
from tape.model.drainer import DRAINERS
from tape.model.effect import BUSINESS_KEYS, EFFECTS
from tape.model.entry import EntryDraft
from tape.model.event_subscription import EVENT_SUBSCRIPTIONS
from tape.model.gate import GATES
from tape.model.move import KNOWN, Need, State, Table
from tape.model.obligation import OBLIGATIONS
from tape.model.outbox import OUTBOX, OUTBOX_IDS, OUTBOX_KEYS, RELAYS
from tape.model.reaction import BOOK, CURSORS, REACTIONS, TALLIES
from tape.model.run import RUNS
from tape.model.session import SESSION_EVENTS, SESSIONS
from tape.model.subscription import (
    ACCEPTED_PLACES,
    GATEWAY_PATHS,
    LISTENERS,
    PASSED_POSITIONS,
    SEEN_KEYS,
    SUBSCRIPTION_DEAD_LETTERS,
    SUBSCRIPTION_REVISIONS,
    SUBSCRIPTIONS,
)
from tape.model.task import ENDED, QUEUE, SOURCES
from tape.model.timer import TIMERS
from tape.model.value import VALUES

# The order in which tables are read and written. A row comes before the rows that refer to it. The
# book comes before what the matcher changes and tasks before tallies, as wherever those are locked.
TABLES: tuple[Table[Any, Any], ...] = (
    KNOWN,
    RUNS,
    DECISIONS,
    EFFECTS,
    BUSINESS_KEYS,
    OBLIGATIONS,
    GATES,
    TIMERS,
    BUDGETS,
    VALUES,
    SESSIONS,
    SESSION_EVENTS,
    WRITES,
    WRITE_LISTS,
    EVENT_SUBSCRIPTIONS,
    DRAINERS,
    SUBSCRIPTIONS,
    SUBSCRIPTION_REVISIONS,
    GATEWAY_PATHS,
    LISTENERS,
    ACCEPTED_PLACES,
    SEEN_KEYS,
    PASSED_POSITIONS,
    SUBSCRIPTION_DEAD_LETTERS,
    CREDENTIALS,
    CREDENTIAL_VERSIONS,
    BOOK,
    REACTIONS,
    CURSORS,
    SOURCES,
    QUEUE,
    ENDED,
    TALLIES,
    RELAYS,
    OUTBOX,
    OUTBOX_IDS,
    OUTBOX_KEYS,
)

_PLACES = {table: place for place, table in enumerate(TABLES)}
PLACED_COLUMNS = ("global_seq", "ts_ms", *EntryDraft._fields)
_OCCURRED = EntryDraft._fields.index("occurred_at_ms")


def group_needs(needs: Iterable[Need]) -> dict[Table[Any, Any], list[tuple[Any, ...]]]:
    """The distinct keys wanted of each table, each key as a tuple."""
    keys: dict[Table[Any, Any], dict[tuple[Any, ...], None]] = {}
    for table, key, _is_new in needs:
        keys.setdefault(table, {})[as_tuple(key)] = None
    return {table: list(keys[table]) for table in sorted(keys, key=_place)}


def _place(table: Table[Any, Any]) -> int:
    return _PLACES.get(table, len(TABLES))


def changed_rows(state: State) -> Iterator[tuple[str, Table[Any, Any], list[tuple[Any, ...]]]]:
    """Deletions and then saves, per table: the verb, the table and its keys or rows."""
    for table in sorted(state.deletions, key=_place):
        if gone := state.deletions[table]:
            yield "delete", table, [as_tuple(key) for key in gone]
    for table in sorted(state.saves, key=_place):
        if rows := state.saves[table]:
            yield "save", table, list(rows.values())


def as_tuple(key: Hashable) -> tuple[Any, ...]:
    return tuple(key) if isinstance(key, tuple) else (key,)


def numbered_rows(entries: list[EntryDraft], first: int, now_ms: int) -> list[tuple[Any, ...]]:
    """Entries as rows of PLACED_COLUMNS, the first with `global_seq` first."""
    return [
        (number, now_ms, *draft[:_OCCURRED], draft[_OCCURRED] or now_ms, draft[-1])
        for number, draft in enumerate(entries, first)
    ]


def prefix_range(prefix: str) -> tuple[str, str]:
    """The half-open range of subjects that start with `prefix`, which is ASCII."""
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else ""
