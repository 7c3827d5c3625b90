"""Batch reads. A range of the journal is planned once and read by many tasks.

Entries are never changed and a number below the head is never given out again, so tasks that look
at different times still see one journal; and a task whose range has been pruned since fails.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tape.errors import InvalidArgument, Pruned
from tape.pipeline.source.filters import Selection, narrowed, pushed
from tape.pipeline.source.options import ReadOptions
from tape.ports.bulk import Bounds, BulkReader, Condition, OpenStores, Scan

# Beginning a task costs what ten thousand entries cost: few tasks, but some for every core.
FEWEST_TASKS: Final = 4
LEAST_ROWS: Final = 25_000
MOST_ROWS: Final = 500_000


@dataclass(frozen=True)
class JournalRange(InputPartition):
    """Entries with `after < global_seq <= upto`."""

    after: int
    upto: int


class JournalReader(DataSourceReader):
    """The journal as a table. Pickled to the tasks with what was pushed into it."""

    def __init__(self, stores: OpenStores, what: ReadOptions, schema: StructType) -> None:
        self._stores = stores
        self._what = what
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._conditions: tuple[Condition, ...] = ()

    def partitions(self) -> list[InputPartition]:
        with closing(self._stores.reader(self._what.url)) as reader:
            after, upto = resolved(reader.bounds(), self._what)
            after, upto, _ = narrowed(after, upto, self._conditions)
            # Spark wants a partition even where there is nothing to read.
            return [*ranges(reader, after, upto, self._what.partition_rows)] or [JournalRange(0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, JournalRange)  # noqa: S101 - made above
        return read_range(self._stores, self._what, self._schema, partition, self._conditions)


class PushedReader(JournalReader):
    """One whose filters the store decides, for a DataFrame that is used in a single query.

    Spark 4.3 keeps what one query has pushed with the loaded DataFrame, and every later query on
    it, and every other branch of the same one, reads no more than that: see the test. So it is
    asked for by an option; pattern, where, from and upto narrow a read without that danger.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        conditions, left = pushed(filters)
        self._conditions = tuple(conditions)
        return left


class TableReader(DataSourceReader):
    """A table beside the journal, whole, by one task."""

    def __init__(self, stores: OpenStores, what: ReadOptions, schema: StructType) -> None:
        self._stores = stores
        self._what = what
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._what.table)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - Spark's
        with closing(self._stores.reader(self._what.url)) as reader:
            for batch in reader.read_table(
                self._what.table, self._what.batch_rows, self._schema.names
            ):
                yield conformed(batch, self._schema)


def resolved(bounds: Bounds, what: ReadOptions) -> tuple[int, int]:
    """The range that a batch asks for, of the journal as it is."""
    end = max(bounds.head, bounds.pruned_through)
    after = bounds.pruned_through if what.after is None else what.after
    if after > end:
        raise beyond_the_end(after, end, "from")
    if after < bounds.pruned_through:
        raise pruned(after, bounds.pruned_through, "from")
    return after, bounds.head if what.upto is None else min(what.upto, bounds.head)


def ranges(reader: BulkReader, after: int, upto: int, rows: int | None) -> Iterator[JournalRange]:
    """Successive ranges of at most so many entries."""
    if rows is None:
        rows = min(MOST_ROWS, max(LEAST_ROWS, -(-(upto - after) // FEWEST_TASKS)))
    for end in reader.cut(after, upto, rows):
        yield JournalRange(after, end)
        after = end


def read_range(
    stores: OpenStores,
    what: ReadOptions,
    schema: pa.Schema,
    wanted: JournalRange,
    conditions: tuple[Condition, ...] = (),
) -> Iterator[pa.RecordBatch]:
    """The entries of a range that pattern, predicate and conditions select, in order."""
    if wanted.after >= wanted.upto:
        return
    selection = Selection(what.pattern, what.where, what.on_error)
    _, _, rest = narrowed(wanted.after, wanted.upto, conditions)
    columns = dict.fromkeys([*schema.names, *sorted(selection.columns)])
    scan = Scan(
        wanted.after, wanted.upto, tuple(columns), (*selection.conditions, *rest),
        selection.predicate,
    )  # fmt: skip
    with closing(stores.reader(what.url)) as reader:
        for batch in selection.applied(reader.scan(scan, what.batch_rows)):
            yield conformed(batch, schema)


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Exactly the columns and types that Spark expects; no copy where they are the same."""
    arrays = [batch.column(field.name) for field in schema]
    return pa.RecordBatch.from_arrays(
        [a if a.type == f.type else a.cast(f.type) for a, f in zip(arrays, schema, strict=True)],
        schema=schema,
    )


def beyond_the_end(number: int, end: int, field: str) -> InvalidArgument:
    return InvalidArgument(
        f"{number} is beyond the end of this journal, {end}: the number belongs to another "
        "journal, or this one was restored from a backup",
        field=field,
    )


def pruned(number: int, through: int, field: str) -> Pruned:
    return Pruned(
        f"{field}: entries up to {through} have been pruned and {number + 1} is asked for: start "
        f"from {through}, or read what was archived with the option lake"
    )
