"""What rows may be written as: events or values. Which columns, which rows, which move.

Rows are checked where they are, in the task, and staged as what the journal will hold. Whatever is
wrong with one is found there, before anything is registered.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql.types import (
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    VariantType,
)

from tape.errors import InvalidArgument
from tape.model.bulk_write import ChunkPlace, RecordEventChunk, RecordValueChunk
from tape.model.entry import EntryDraft, Kind
from tape.model.event import NewEvent, draft_event
from tape.model.move import Move
from tape.model.value import ANY_VERSION, Author, WriteValue
from tape.settings import Limits

Row = tuple[Any, ...]
TakeIds = Callable[[int], Sequence[str]]

_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_LEASED: Final = ("run_id", "fencing_token")
_GIVEN: Final = ("event_id", "kind", "run_id", "seq")
"""What an event's entry has that is not staged: it is the same for all, or given when recorded."""


class Form(Protocol):
    """A row is staged as a tuple of the columns of `staged`."""

    staged: pa.Schema

    def check_schema(self, schema: StructType) -> None:
        """Refuse columns that have no place here, by name."""

    def checked(self, batch: pa.RecordBatch, limits: Limits) -> Iterator[Row]:
        """Its rows as they are staged; raises at the first that the journal would refuse."""

    def move(
        self, place: ChunkPlace, rows: Sequence[Row], ids: TakeIds, limits: Limits
    ) -> Move[bool]:
        """What records them."""


class _Column(NamedTuple):
    kind: type
    default: str | int | None  # None: the row must say


class EventRows:
    """Columns of NewEvent; only event_type is needed, and NULL is the default of any other."""

    columns: Final = {
        name: _Column(kind, NewEvent._field_defaults.get(name))
        for name, kind in NewEvent.__annotations__.items()
        if name not in _LEASED
    }
    staged = pa.schema(
        [
            (name, pa.int64() if name in ("schema_version", "occurred_at_ms") else pa.string())
            for name in EntryDraft._fields
            if name not in _GIVEN
        ]
    )

    def check_schema(self, schema: StructType) -> None:
        for name in _LEASED:
            if name in schema.names:
                raise InvalidArgument(
                    "cannot be written in bulk: only the holder of a run's lease may write for it",
                    field=name,
                )
        _check_columns(schema, self.columns, needed=("event_type",))

    def checked(self, batch: pa.RecordBatch, limits: Limits) -> Iterator[Row]:
        columns = [_values(batch, name, column) for name, column in self.columns.items()]
        for values in zip(*columns, strict=False):
            # In the order of NewEvent, with no run and no token.
            event = NewEvent._make((*values[:9], "", 0, *values[9:]))
            try:
                draft = draft_event(event, "", limits)
            except InvalidArgument as fault:
                raise _refused(fault, {"idempotency_key": event.idempotency_key}) from None
            yield (draft.subject, draft.payload_json, *draft[6:])

    def move(
        self, place: ChunkPlace, rows: Sequence[Row], ids: TakeIds, limits: Limits
    ) -> Move[bool]:
        del limits  # they were checked when they were staged
        kind = Kind.EVENT.value
        drafts = [
            EntryDraft(event_id, kind, row[0], row[1], None, None, *row[2:])
            for event_id, row in zip(ids(len(rows)), rows, strict=True)
        ]
        return RecordEventChunk(place, drafts)


class ValueRows:
    """`namespace`, `key`, `value_json`: each row sets a value, whatever its version."""

    columns: Final = {
        "namespace": _Column(str, None),
        "key": _Column(str, None),
        "value_json": _Column(str, None),
        "writer": _Column(str, ""),
    }
    staged = pa.schema([(name, pa.string()) for name in columns])

    def check_schema(self, schema: StructType) -> None:
        _check_columns(schema, self.columns, needed=("namespace", "key", "value_json"))

    def checked(self, batch: pa.RecordBatch, limits: Limits) -> Iterator[Row]:
        columns = [_values(batch, name, column) for name, column in self.columns.items()]
        for values in zip(*columns, strict=False):
            try:
                self._write(values, "", limits)
            except InvalidArgument as fault:
                raise _refused(fault, {"namespace": values[0], "key": values[1]}) from None
            yield values

    def move(
        self, place: ChunkPlace, rows: Sequence[Row], ids: TakeIds, limits: Limits
    ) -> Move[bool]:
        named = zip(rows, ids(len(rows)), strict=True)
        return RecordValueChunk(place, [self._write(row, one, limits) for row, one in named])

    def _write(self, row: Row, event_id: str, limits: Limits) -> WriteValue:
        namespace, key, value_json, writer = row
        return WriteValue(
            namespace, key, value_json, ANY_VERSION,
            author=Author(writer), event_id=event_id, limits=limits,
        )  # fmt: skip


FORMS: Final[Mapping[str, Form]] = {"events": EventRows(), "values": ValueRows()}


def encode(form: Form, rows: Sequence[Row]) -> bytes:
    columns = [
        pa.array(values, field.type)
        for values, field in zip(zip(*rows, strict=True), form.staged, strict=True)
    ]
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, form.staged, options=options) as stream:
        stream.write_batch(pa.record_batch(columns, schema=form.staged))
    return sink.getvalue()


def decode(form: Form, body: bytes) -> list[Row]:
    with pa.ipc.open_stream(body) as stream:
        table = stream.read_all()
    if table.schema != form.staged:
        raise InvalidArgument(
            "was staged by another version of Tape, or as another kind of rows", field="chunk"
        )
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _values(batch: pa.RecordBatch, name: str, column: _Column) -> Iterable[Any]:
    """The column with its default for NULL; one that is not there is all default."""
    if name not in batch.schema.names:
        return repeat(column.default)
    found = batch.column(name)
    values = found.to_pylist()
    if not found.null_count:
        return values
    default = "" if column.default is None else column.default
    return [default if value is None else value for value in values]


def _check_columns(schema: StructType, known: Mapping[str, _Column], needed: Sequence[str]) -> None:
    names = ", ".join(known)
    for field in schema.fields:
        if field.name not in known:
            raise InvalidArgument(_stranger(field.name, field.dataType, names), field=field.name)
        fits = StringType if known[field.name].kind is str else _INTEGERS
        if not isinstance(field.dataType, fits):
            wanted = "text" if fits is StringType else "an integer"
            raise InvalidArgument(
                f"is {field.dataType.simpleString()}, must be {wanted}", field=field.name
            )
        if schema.names.count(field.name) > 1:
            raise InvalidArgument("is listed twice", field=field.name)
    for name in needed:
        if name not in schema.names:
            raise InvalidArgument(f"is missing; the columns are {names}", field=name)


def _stranger(name: str, kind: DataType, names: str) -> str:
    if name == "payload" and "payload_json" in names:
        made = "to_json" if isinstance(kind, StructType | VariantType) else "its text"
        return f"cannot be written directly: select {made} as payload_json"
    return f"is not a column that can be written; there are {names}"


def _refused(fault: InvalidArgument, row: Mapping[str, str]) -> InvalidArgument:
    named = ", ".join(f"{name}={value!r}" for name, value in row.items() if value)
    fault.args = (f"{fault} (a row{' with ' + named if named else ''})",)
    return fault
