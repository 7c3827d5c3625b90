"""Checks of single columns: numbers and times, one for each table, and one for all JSON.

They are made from the tables' own columns, so a column that is added is looked at by itself. What
a column must be besides, other checks say; the outbox is written by others, and has its own.
"""

from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame

from tape.pipeline.jobs.audit.check import ROW, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import Frames, table_source
from tape.pipeline.jobs.audit.recheck import not_json
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
_BELOW_ZERO: Final = {
    ("obligations", "below"): -1,
    ("accepted_places", "number"): -1,
    ("listeners", "backlog"): -1,
    ("passed_positions", "position"): -1,
}
"""Numbers that may be less than 0: an obligation that stands alone is below none, a place may have
no number, a source need not say how much it has, and may have passed nothing."""
_BY_ONE: Final = ("reactions", "matcher", "credentials", "subscriptions", "listeners")
"""Tables whose rows are named by their first column; those of others by two."""
_NOT_PLAIN: Final = ("outbox", "processed", "sequences", "business_keys")
"""Tables with checks of their own for all of this, or with names alone."""


_JSON: Final = {
    table: columns
    for table, row in SIDE_TABLES.items()
    if table not in _NOT_PLAIN
    and (columns := [name for name in row.__annotations__ if name.endswith("_json")])
}
"""Columns that hold JSON, or nothing."""


def _identity(table: str) -> list[str]:
    return list(SIDE_TABLES[table].__annotations__)[: 1 if table in _BY_ONE else 2]


def _fault(table: str, column: str, kind: type) -> str:
    """A case for a column that holds what it cannot hold; blank if it can hold anything."""
    if kind not in (int, float):
        return ""
    least = _BELOW_ZERO.get((table, column), 0)
    is_given = column.endswith("_ms") and not column.startswith(_CHOSEN)
    most = f" OR {column} > {LATEST_MS}" if is_given else ""
    return f"WHEN {column} < {least}{most} THEN CONCAT('{column} is ', {column})"


def _check(table: str, row: type[tuple[Any, ...]]) -> Check | None:
    """The check of a table's numbers, if it has any."""
    columns = row.__annotations__
    faults = {name: _fault(table, name, kind) for name, kind in columns.items()}
    if not any(faults.values()):
        return None
    faulty = f"CASE {' '.join(filter(None, faults.values()))} END"
    identity = _identity(table)
    read = dict.fromkeys([*identity, *(name for name, fault in faults.items() if fault)])
    rule = RowRule(
        table_source(table, " ".join(read)),
        f"{faulty} <> ''",
        faulty,
        key=f"CONCAT_WS('/', {', '.join(identity)})",
        global_seq="0",
        run_id="''",
    )
    return Check(
        f"{table}_columns", f"Columns of {table} hold values that are allowed there.", rule, ROW
    )


def json_broken(frames: Frames) -> DataFrame:
    """Spark cannot read a fraction of a thousand digits or a very long key, so where it finds no
    JSON the server's own parser decides."""
    odd = []
    for table, columns in _JSON.items():
        if table in frames.empty:
            continue
        named = ", ".join(f"STRUCT('{one}' AS named, {one} AS payload_json)" for one in columns)
        key = f"CONCAT_WS('/', '{table}', {', '.join(_identity(table))}) AS key"
        rows = frames.table(table).selectExpr(key, f"INLINE(ARRAY({named}))")
        odd.append(
            rows.where(
                "payload_json NOT IN ('', 'null') AND GET_JSON_OBJECT(payload_json, '$') IS NULL"
            )
        )
    found = reduce(DataFrame.unionByName, odd).mapInArrow(
        not_json, "key STRING, named STRING, fault STRING"
    )
    words = "CONCAT(named, ' is not JSON: ', fault)"
    return violation_rows(found, words, key="key", global_seq="0", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    *(check for table, row in SIDE_TABLES.items() if table not in _NOT_PLAIN
      if (check := _check(table, row))),
    Check("json_columns", "Columns with JSON hold JSON.", json_broken, ROW,
          reads={table: " ".join((*_identity(table), *columns))
                 for table, columns in _JSON.items()}),
)  # fmt: skip
