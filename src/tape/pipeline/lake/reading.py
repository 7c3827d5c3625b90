"""Entries of a lake by the column, with pyarrow: for the data source's own workers."""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tape.errors import StoreMismatch
from tape.model.entry import Entry
from tape.pipeline.lake.log import LakeLog
from tape.pipeline.lake.manifest import LakeFile
from tape.ports.bulk import Condition, Scan

RECALLED_ROWS: Final = 4_096
_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def read_file(root: Path, file: LakeFile, scan: Scan, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """What a scan wants of a file, in order; raises FileNotFoundError before anything else."""
    limits = list(scan.conditions)
    if scan.after >= file.first:
        limits.append(Condition("global_seq", ">", scan.after))
    if scan.upto < file.last:
        limits.append(Condition("global_seq", "<=", scan.upto))
    needed = dict.fromkeys([*scan.columns, *(limit.column for limit in limits)])
    try:
        with pq.ParquetFile(root / file.path) as parquet:
            groups = _groups(parquet, scan.after, scan.upto)
            if not groups:
                return
            for batch in parquet.iter_batches(batch_rows, groups, list(needed)):
                kept = _selected(batch, limits)
                if kept.num_rows:
                    yield kept.select(list(scan.columns))
    except pa.ArrowInvalid as error:
        raise StoreMismatch(f"{root / file.path} is damaged: {error}") from None


def read_entries(log: LakeLog, numbers: Sequence[int]) -> list[Entry]:
    """These entries, so far as the lake has them, in order."""
    after, upto = min(numbers) - 1, max(numbers)
    wanted = Condition("global_seq", "in", tuple(numbers))
    scan = Scan(after, upto, Entry._fields, (wanted,))
    return [
        Entry(**row)
        for file in log.require().between(after, upto)
        for batch in read_file(log.path, file, scan, RECALLED_ROWS)
        for row in batch.to_pylist()
    ]


def _groups(parquet: pq.ParquetFile, after: int, upto: int) -> list[int]:
    """The row groups with numbers of the range, by their statistics."""
    place = parquet.schema_arrow.names.index("global_seq")
    found = []
    for group in range(parquet.num_row_groups):
        stats: Any = parquet.metadata.row_group(group).column(place).statistics
        if stats is None or not stats.has_min_max or (stats.max > after and stats.min <= upto):
            found.append(group)
    return found


def _selected(batch: pa.RecordBatch, limits: list[Condition]) -> pa.RecordBatch:
    if not limits:
        return batch
    masks = (_mask(batch.column(limit.column), limit) for limit in limits)
    return batch.filter(reduce(pc.and_, masks))


def _mask(column: Any, condition: Condition) -> Any:
    operator: str = condition.operator
    value: Any = condition.value
    if operator == "in":
        return pc.is_in(column, value_set=pa.array(value, column.type))
    if operator == "starts":
        return pc.starts_with(column, pattern=value)
    return _COMPARE[operator](column, pa.scalar(value, column.type))
