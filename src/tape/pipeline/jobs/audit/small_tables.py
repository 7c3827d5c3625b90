"""Reads small tables in the driver.

A table of a few rows costs Spark more to plan, and Python processes to read, than its rows are
worth. So the driver itself reads all tables that are small, and makes frames of their rows; Spark
knows of these while it plans whether they are empty.

For a small journal Spark would also take longer to prepare its checks than to make them: see
`sized_for`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tape.pipeline.schema import ENTRY_SCHEMA, TABLE_SCHEMAS
from tape.pipeline.source.read import conformed
from tape.ports.bulk import BulkReader, Scan

SMALL: Final = 100_000
_AS_IT_COMES: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
_IN_ONE_PART: Final = {
    **_AS_IT_COMES,
    "spark.sql.shuffle.partitions": "1",
    # What is in one place already is joined there, with no job to send a side of it around.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
MOST_ROWS: Final = 20_000
MOST_BYTES: Final = 16 * 1024 * 1024
_BATCH_ROWS: Final = 2_000
JOURNAL: Final = "journal"
AGAIN: Final = "_again"
"""How the name ends of a table that is read a second time."""

Wanted = Mapping[str, tuple[str, ...]]
"""Tables and the columns to read of them."""
Held = dict[str, pa.Table]
"""Tables and their rows."""


class SmallTables(Mapping[str, DataFrame]):
    """Tables as frames. Of rows that the driver holds a frame is made when it is asked for."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._held: Held = {}
        self._frames: dict[str, DataFrame] = {}

    @property
    def empty(self) -> set[str]:
        """Those of the held ones that have no rows."""
        return {name for name, held in self._held.items() if not held.num_rows}

    def add(self, held: Held, frames: Mapping[str, DataFrame]) -> None:
        self._held |= held
        self._frames |= frames

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._frames:
            held = self._held[name]
            self._frames[name] = local(self._spark, held, schema_of(name, held.column_names))
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._held, **self._frames})

    def __len__(self) -> int:
        return len({**self._held, **self._frames})


def read_small_tables(reader: BulkReader, wanted: Wanted) -> Held:
    """Read those of the tables that are small, in this order."""
    held = {}
    for name, columns in wanted.items():
        batches = reader.read_table(name.removesuffix(AGAIN), _BATCH_ROWS, columns)
        if (few := _if_small(batches, name, columns)) is not None:
            held[name] = few
    return held


def read_small_journal(
    reader: BulkReader, after: int, upto: int, columns: tuple[str, ...]
) -> pa.Table | None:
    """Read the entries of a range, if they are small."""
    return _if_small(reader.scan(Scan(after, upto, columns), _BATCH_ROWS), JOURNAL, columns)


def _if_small(
    batches: Iterator[pa.RecordBatch], name: str, columns: tuple[str, ...]
) -> pa.Table | None:
    schema = to_arrow_schema(schema_of(name, columns), timezone="UTC")
    held, rows, size = [], 0, 0
    for batch in batches:
        held.append(conformed(batch, schema))
        rows += batch.num_rows
        size += batch.nbytes
        if rows > MOST_ROWS or size > MOST_BYTES:
            return None
    return pa.Table.from_batches(held, schema)


def schema_of(name: str, columns: Iterable[str]) -> StructType:
    known = ENTRY_SCHEMA if name == JOURNAL else TABLE_SCHEMAS[name.removesuffix(AGAIN)]
    return StructType([known[column] for column in columns])


def local(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Rows of the driver as a frame, in one part: nothing has to be exchanged to look at them."""
    return spark.createDataFrame(table, schema).coalesce(1)


def keep_local(spark: SparkSession) -> Callable[[DataFrame], DataFrame]:
    """Compute a frame now, and keep its rows in the driver."""
    return lambda frame: local(spark, frame.toArrow(), frame.schema)


@contextmanager
def sized_for(spark: SparkSession, entries: int, *, local: bool = False) -> Iterator[None]:
    """The session's settings for so many entries, `local` if the driver has them all.

    Afterwards they are as they were.
    """
    settings = _IN_ONE_PART if local else _AS_IT_COMES if entries < SMALL else {}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, earlier in before.items():
            spark.conf.set(name, str(earlier))
