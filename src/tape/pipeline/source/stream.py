"""The journal as a stream. An offset is `{"global_seq": N}`: everything up to N has been read.

Whoever sees N sees all committed entries below N, so the newest entry is a safe end for a batch
whatever writers do, and a range that was planned once reads the same when it is read again.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tape.errors import InvalidArgument
from tape.pipeline.source.options import ReadOptions
from tape.pipeline.source.read import JournalRange, beyond_the_end, pruned, ranges, read_range
from tape.ports.bulk import Bounds, BulkReader, OpenStores

OFFSET: Final = "global_seq"
Offset = dict[str, Any]


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Admission counts entries: numbers that were never used do not make a batch smaller."""

    def __init__(self, stores: OpenStores, what: ReadOptions, schema: StructType) -> None:
        self._stores = stores
        self._what = what
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        with closing(self._reader()) as reader:
            bounds = reader.bounds()
        match self._what.start:
            case "earliest":
                return {OFFSET: bounds.pruned_through}
            case "latest":
                return {OFFSET: _end(bounds)}
            case start:
                return {OFFSET: _checked(int(start), bounds, "start")}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        with closing(self._reader()) as reader:
            bounds = reader.bounds()
            after = _checked(_number(start), bounds, "the stream's offset")
            end = _end(bounds) if self._target is None else min(self._target, _end(bounds))
            if isinstance(limit, ReadMaxRows) and end - after > limit.max_rows:
                end = min(end, reader.reach(after, limit.max_rows) or end)
        return {OFFSET: max(after, end)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._what.max_entries
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        with closing(self._reader()) as reader:
            return {OFFSET: _end(reader.bounds())}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self.reportLatestOffset()[OFFSET]

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        after, upto = _number(start), _number(end)
        if after >= upto:
            return []
        with closing(self._reader()) as reader:
            bounds = reader.bounds()
            _checked(after, bounds, "the stream's offset")
            _checked(upto, bounds, "the stream's offset")
            return [*ranges(reader, after, upto, self._what.partition_rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, JournalRange)  # noqa: S101 - made above
        return read_range(self._stores, self._what, self._schema, partition)

    def _reader(self) -> BulkReader:
        return self._stores.reader(self._what.url)


def _end(bounds: Bounds) -> int:
    """How far the journal has come, though what was there may be pruned."""
    return max(bounds.head, bounds.pruned_through)


def _number(offset: Offset) -> int:
    number = offset.get(OFFSET) if isinstance(offset, dict) else None
    if type(number) is not int or number < 0:
        raise InvalidArgument(
            f"{offset!r} is not an offset of this stream, which has one number {OFFSET!r}: does "
            "the checkpoint belong to another stream?",
            field="offset",
        )
    return number


def _checked(number: int, bounds: Bounds, field: str) -> int:
    if number > _end(bounds):
        raise beyond_the_end(number, _end(bounds), field)
    if number < bounds.pruned_through:
        raise pruned(number, bounds.pruned_through, field)
    return number
