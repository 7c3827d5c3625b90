"""Checks of single columns, one for each table: numbers, times and JSON that can be such.

They are made from the tables' own columns, so a column that is added is looked at by itself. What
a column must be besides, other checks say; the outbox is written by others, and has its own.
"""

from typing import Any, Final

from tape.pipeline.jobs.audit.check import ROW, Check, Rule
from tape.pipeline.jobs.audit.frames import table_source
from tape.ports.bulk_tables import SIDE_TABLES

LATEST_MS: Final = 10**14
"""In the year 5138: a time that is later was written in another unit."""
_CHOSEN: Final = (
    "fire_at",
    "timestamp",
    "next_",
    "lease_expires",
    "claim_expires",
    "dispatch_claim",
)
"""How times begin that somebody chose, or made of a length that he chose: as late as he liked."""
_BELOW_ZERO: Final = {("obligations", "below"): -1}
"""Numbers that may be less than 0: an obligation that stands alone is below none."""
_BY_ONE: Final = ("reactions", "matcher")
"""Tables whose rows are named by their first column; those of others by two."""
_NOT_PLAIN: Final = ("outbox", "processed", "sequences", "business_keys")
"""Tables with checks of their own for all of this, or with names alone."""


def _fault(table: str, column: str, kind: type) -> str:
    """A case for a column that holds what it cannot hold; blank if it can hold anything."""
    if kind in (int, float):
        least = _BELOW_ZERO.get((table, column), 0)
        is_given = column.endswith("_ms") and not column.startswith(_CHOSEN)
        most = f" OR {column} > {LATEST_MS}" if is_given else ""
        return f"WHEN {column} < {least}{most} THEN CONCAT('{column} is ', {column})"
    if column.endswith("_json"):
        return (
            f"WHEN {column} NOT IN ('', 'null') AND GET_JSON_OBJECT({column}, '$') IS NULL "
            f"THEN '{column} is not JSON'"
        )
    return ""


def _check(table: str, row: type[tuple[Any, ...]]) -> Check:
    columns = row.__annotations__
    faults = {name: _fault(table, name, kind) for name, kind in columns.items()}
    faulty = f"CASE {' '.join(filter(None, faults.values()))} END"
    identity = list(columns)[: 1 if table in _BY_ONE else 2]
    read = dict.fromkeys([*identity, *(name for name, fault in faults.items() if fault)])
    rule = Rule(
        table_source(table, " ".join(read)),
        f"{faulty} <> ''",
        faulty,
        key=f"CONCAT_WS('/', {', '.join(identity)})",
        global_seq="0",
        run_id="''",
    )
    return Check(f"{table}_columns", f"Columns of {table} hold what they can hold.", rule, ROW)


CHECKS: Final[tuple[Check, ...]] = tuple(
    _check(table, row) for table, row in SIDE_TABLES.items() if table not in _NOT_PLAIN
)
