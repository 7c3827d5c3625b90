"""What both stores need to read by the column: which columns, conditions and tables there are."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, assert_never

import pyarrow as pa

from tape.errors import InvalidArgument, Pruned
from tape.model.entry import Entry
from tape.ports.bulk import Condition
from tape.ports.bulk_tables import SIDE_TABLES

COLUMNS: Final = "/* columns */ NULL"
TABLE: Final = "/* table */ tape_journal"
CONDITIONS: Final = "/* conditions */ TRUE"
READ_S: Final = 30.0
"""How long opening a store, or one that is being written to, is waited for."""

_NULLABLE: Final = {"run_id": "''", "seq": "0", "idempotency_key": "''"}

Put = Callable[[str | int], str]
"""What stands for a value in the statement."""


def entry_columns(names: Iterable[str]) -> str:
    """What to select for columns of `Entry`."""
    return ", ".join(
        f"{read_column(name)} AS {name}" if name in _NULLABLE else name for name in names
    )


def table_sql(
    statements: Mapping[str, str], name: str, columns: Sequence[str], relations: Mapping[str, str]
) -> str:
    """Select columns of a table, or all. `relations` names tables that are called otherwise."""
    row = SIDE_TABLES.get(name)
    if row is None:
        raise InvalidArgument(f"{name!r} is not one of {', '.join(SIDE_TABLES)}", field="table")
    for column in columns:
        if column not in row.__annotations__:
            raise InvalidArgument(f"{name} has no column {column!r}", field="columns")
    text = statements["read_table"].replace(
        COLUMNS, entry_columns(columns or tuple(row.__annotations__))
    )
    return text.replace(TABLE, relations.get(name, f"tape_{name}"))


def conditions_sql(conditions: Iterable[Condition], put: Put, starts: str) -> str:
    """All of them. `starts` is a template of column, value and the value's length."""
    return " AND ".join(_condition_sql(condition, put, starts) for condition in conditions)


def _condition_sql(condition: Condition, put: Put, starts: str) -> str:
    name, operator, value = condition
    if name not in Entry._fields:
        raise InvalidArgument(f"an entry has no column {name!r}", field="conditions")
    column = read_column(name)
    match operator:
        case "=" | "<" | "<=" | ">" | ">=":
            assert not isinstance(value, tuple)  # noqa: S101 - what the operator takes
            # No NULL equals a value that is not blank, so an index on the bare column serves.
            column = name if operator == "=" and value else column
            return f"{column} {operator} {put(value)}"
        case "in":
            assert isinstance(value, tuple)  # noqa: S101 - what the operator takes
            column = name if all(value) else column
            return f"{column} IN ({', '.join(put(item) for item in value)})"
        case "starts":
            assert isinstance(value, str)  # noqa: S101 - what the operator takes
            return starts.format(column=column, value=put(value), length=len(value))
        case _:
            assert_never(operator)


def read_column(name: str) -> str:
    """A column as an entry has it, which has no NULLs."""
    blank = _NULLABLE.get(name)
    return f"coalesce({name}, {blank})" if blank else name


def even_rows(after: int, upto: int, rows: int) -> int:
    """At most `rows` numbers to a range, and about as many in each."""
    ranges = -(-(upto - after) // rows)
    return -(-(upto - after) // ranges)


def ends_of(found: Iterable[int | None], upto: int) -> list[int]:
    """Where ranges end, from where entries were found; the last ends where all do."""
    return [*(end for end in found if end is not None and end < upto), upto]


def refuse_pruned(after: int, pruned_through: int) -> None:
    if after < pruned_through:
        raise Pruned(
            f"entries up to {pruned_through} have been pruned and {after + 1} is asked for: start "
            f"from {pruned_through}, or read what was archived with the option lake"
        )


def sliced(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same in batches of at most so many rows, without those that are empty."""
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)
