"""Reads what is small in one task, and keeps it in the driver.

A table of a few rows costs Spark more to plan, and Python processes to read, than its rows are
worth. So one task reads all tables that are small, and says of which that is not so; the driver
makes frames of rows of them, of which Spark knows while it plans whether they are empty.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tape.pipeline.lake.log import LakeLog
from tape.pipeline.schema import ENTRY_SCHEMA
from tape.pipeline.source.history import HistoryReader
from tape.pipeline.source.read import conformed
from tape.pipeline.source.tables import TABLE_SCHEMAS
from tape.ports.bulk import BulkReader, Scan, UseStore

MOST_ROWS: Final = 20_000
MOST_BYTES: Final = 16 * 1024 * 1024
_BATCH_ROWS: Final = 2_000
_BODY_TYPES: Final[dict[str, pa.DataType]] = {"name": pa.string(), "body": pa.binary()}
_BODIES: Final = pa.schema(_BODY_TYPES)
JOURNAL: Final = "journal"
AGAIN: Final = "_again"
"""How the name ends of a table that is read a second time."""

Wanted = Mapping[str, tuple[str, ...]]
"""Tables and the columns to read of them."""


@dataclass(frozen=True, slots=True)
class ReadSmall:
    """Runs in a worker. The body of a table is its rows as an Arrow stream, NULL if too large."""

    use_store: UseStore
    wanted: Wanted
    after: int = 0
    upto: int = 0
    lake: str = ""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        with closing(self.use_store.reader()) as reader:
            for name, columns in self.wanted.items():
                body = _body(self._batches(reader, name, columns))
                yield pa.RecordBatch.from_pydict(
                    {"name": [name], "body": [body]},
                    _BODIES,
                )

    def _batches(
        self, reader: BulkReader, name: str, columns: tuple[str, ...]
    ) -> Iterator[pa.RecordBatch]:
        if name != JOURNAL:
            return reader.read_table(name.removesuffix(AGAIN), _BATCH_ROWS, columns)
        if self.lake:
            reader = HistoryReader(LakeLog(self.lake), reader)
            reader.bounds()
        return reader.scan(Scan(self.after, self.upto, columns), _BATCH_ROWS)


def _body(batches: Iterator[pa.RecordBatch]) -> bytes | None:
    held, rows, size = [], 0, 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows > MOST_ROWS or size > MOST_BYTES:
            return None
    if not held:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, held[0].schema) as stream:
        for batch in held:
            stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


class SmallTables(Mapping[str, DataFrame]):
    """The tables that were small, as frames; each is made when it is asked for."""

    def __init__(self, spark: SparkSession, wanted: Wanted, bodies: Mapping[str, bytes]) -> None:
        self._spark = spark
        self._wanted = wanted
        self._bodies = bodies
        self._made: dict[str, DataFrame] = {}

    @property
    def empty(self) -> set[str]:
        return {name for name, body in self._bodies.items() if not body}

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._made:
            schema = schema_of(name, self._wanted[name])
            arrow, body = to_arrow_schema(schema, timezone="UTC"), self._bodies[name]
            batches = pa.ipc.open_stream(body) if body else ()
            rows = pa.Table.from_batches([conformed(one, arrow) for one in batches], arrow)
            self._made[name] = local(self._spark, rows, schema)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._bodies)

    def __len__(self) -> int:
        return len(self._bodies)


def read_small(spark: SparkSession, reading: ReadSmall) -> SmallTables:
    """Those of the tables that are small."""
    task = spark.range(0, 1, 1, 1).mapInArrow(reading, "name STRING, body BINARY")
    bodies = {row["name"]: row["body"] for row in task.toArrow().to_pylist()}
    small = {name: body for name, body in bodies.items() if body is not None}
    return SmallTables(spark, reading.wanted, small)


def schema_of(name: str, columns: Iterable[str]) -> StructType:
    known = ENTRY_SCHEMA if name == JOURNAL else TABLE_SCHEMAS[name.removesuffix(AGAIN)]
    return StructType([known[column] for column in columns])


def local(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Rows of the driver as a frame, in one part: nothing has to be exchanged to look at them."""
    return spark.createDataFrame(table, schema).coalesce(1)


def keep_local(spark: SparkSession) -> Callable[[DataFrame], DataFrame]:
    """Compute a frame now, and keep its rows in the driver."""
    return lambda frame: local(spark, frame.toArrow(), frame.schema)
