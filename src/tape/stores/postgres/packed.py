"""Many entries to a row of the result: a column is one text with separators, or numbers in a row.

What a row costs on its way from Postgres into Arrow is mostly a price per field: to send it, to
copy it out of the message and to append it, nineteen times an entry. A text joined by Postgres and
split by Arrow costs half of that, and numbers as Postgres sends them next to nothing. A separator
within a value shows, since there are more pieces then than entries; such entries are read the plain
way.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tape.model.entry import Entry
from tape.stores.scan import read_column

SEPARATOR: Final = "\x01"
MOST_ROWS: Final = 1_000
MOST_BYTES: Final = 2 * 1024 * 1024
_OVERHEAD: Final = 400  # bytes of an entry beside its payload, about
_KINDS: Final = Entry.__annotations__


class Unpackable(Exception):
    """A value has the separator in it."""


def packed_columns(names: Iterable[str]) -> str:
    """What to select for columns of `Entry`."""
    return ", ".join(f"{_joined(name)} AS {name}" for name in names)


def _joined(name: str) -> str:
    value = read_column(name)
    if _KINDS[name] is int:
        return f"string_agg(int8send({value}), '')"
    return f"string_agg({value}, E'\\x01')"


def rows_to_pack(payload_bytes: int) -> int:
    return max(10, min(MOST_ROWS, MOST_BYTES // (payload_bytes + _OVERHEAD)))


def unpacked(packed: pa.RecordBatch, names: tuple[str, ...]) -> pa.RecordBatch:
    """The entries of packed rows, in their order."""
    rows = pc.sum(packed.column("packed_rows")).as_py()
    arrays = [
        (_numbers if _KINDS[name] is int else _split)(packed.column(name), rows) for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _numbers(joined: Any, rows: int) -> "pa.Array[Any]":
    _, offsets, data = joined.buffers()
    first = np.frombuffer(offsets, np.int32)[joined.offset]
    numbers: pa.Array[Any] = pa.array(np.frombuffer(data, ">i8", rows, first).astype(np.int64))
    return numbers


def _split(joined: "pa.Array[Any]", rows: int) -> "pa.Array[Any]":
    length = pc.sum(pc.binary_length(joined)).as_py()  # type: ignore[call-overload]  # all are text
    if length == rows - len(joined):
        return _blanks(rows)  # nothing but separators
    pieces = pc.split_pattern(joined, SEPARATOR).flatten()
    if len(pieces) != rows:
        raise Unpackable
    return pieces


def _blanks(rows: int) -> pa.StringArray:
    offsets = pa.py_buffer(bytes(4 * (rows + 1)))
    return pa.StringArray.from_buffers(rows, offsets, pa.py_buffer(b""))
