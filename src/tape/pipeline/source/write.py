"""Writing to the journal: tasks stage rows in the store, the driver records them.

A stream's epoch is Spark's batch id, and its write is named after its query, whose id lives in the
checkpoint: a stream that is started again goes on, one with a new checkpoint begins a new write.
A batch is one epoch of the write it names, or of one that nobody can name again.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tape.errors import InvalidArgument, TapeError
from tape.model.bulk_write import BATCH, StagedPart
from tape.model.event import ENVELOPE_BYTES
from tape.model.names import check_name
from tape.pipeline.source.forms import FORMS, Form, Row, encode
from tape.pipeline.source.record import Epoch, Recorder
from tape.ports.bulk import Chunk, OpenStores, Staging
from tape.ports.store import Store

CHUNK_ROWS: Final = 2_000
CHUNK_BYTES: Final = 2 * 1024 * 1024
_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class Destination:
    """Where rows go and as what; travels to the tasks."""

    stores: OpenStores
    url: str
    into: str

    @property
    def form(self) -> Form:
        return FORMS[self.into]

    def prepare(self) -> None:
        """Reach the store, and bring it up to date: tasks stage in it before it is written to.

        A program that writes creates it, as one that records does.
        """

        async def nothing(_store: Store) -> None:
            """Opening it was all."""

        self.stores.store(self.url, creating=True)(nothing)

    def record(self, epoch: Epoch, parts: Sequence[StagedPart]) -> None:
        try:
            self.stores.store(self.url)(
                lambda store: Recorder(store, self.form, self.stores.settings).record(epoch, parts)
            )
        except TapeError as fault:
            if not isinstance(fault, InvalidArgument):
                how = f"run again with the option write_id={epoch.write_id} it goes on from there"
                fault.args = (f"{fault}; a part may be recorded, and {how}",)
            raise

    def abandon(self, epoch: Epoch, parts: Sequence[StagedPart]) -> None:
        self.stores.store(self.url)(
            lambda store: Recorder(store, self.form, self.stores.settings).abandon(epoch, parts)
        )


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task has staged, for whom."""

    epoch: Epoch
    part: StagedPart


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, destination: Destination, epoch: Epoch) -> None:
        self._destination = destination
        self._epoch = epoch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override]  # Spark's
        return _stage(self._destination, self._epoch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._destination.record(self._epoch, _parts(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._destination.abandon(self._epoch, _parts(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, destination: Destination, write_id: str) -> None:
        self._destination = destination
        self._write_id = write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override]  # Spark's
        context = TaskContext.get()
        batch = context.getLocalProperty(_BATCH_ID) if context else None
        query = context.getLocalProperty(_QUERY_ID) if context else None
        if batch is None or query is None:
            raise InvalidArgument(
                "Spark does not say which batch of which query this is: only streams of "
                "micro-batches can be written",
                field="trigger",
            )
        origin = f"stream {query}"
        epoch = Epoch(self._write_id or f"stream/{query}", int(batch), origin)
        return _stage(self._destination, epoch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's names
        for epoch in _epochs(messages):
            self._destination.record(epoch, _parts(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's names
        for epoch in _epochs(messages):
            self._destination.abandon(epoch, _parts(messages))


def batch_writer(
    stores: OpenStores, options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> BatchWriter:
    destination, write_id = _destination(stores, options, schema, overwrite=overwrite)
    number = options.get("epoch", "0")
    if not number.isdecimal() or (number != "0" and not write_id):
        raise InvalidArgument("must be a number from 0, of a write_id", field="epoch")
    name = write_id or f"batch/{uuid.uuid4().hex}"
    return BatchWriter(destination, Epoch(name, int(number), BATCH, not write_id))


def stream_writer(
    stores: OpenStores, options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> StreamWriter:
    if "epoch" in options:
        raise InvalidArgument("a stream counts its epochs itself", field="epoch")
    return StreamWriter(*_destination(stores, options, schema, overwrite=overwrite))


def _destination(
    stores: OpenStores, options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> tuple[Destination, str]:
    if overwrite:
        raise InvalidArgument('the journal can only be appended to: mode("append")', field="mode")
    if not options.get("url"):
        raise InvalidArgument("is required: sqlite:PATH or postgres://…", field="url")
    into = options.get("into", "events")
    if into not in FORMS:
        raise InvalidArgument(f"{into!r} is not one of {', '.join(FORMS)}", field="into")
    FORMS[into].check_schema(schema)
    write_id = check_name(options.get("write_id", ""), stores.settings.limits, field="write_id")
    destination = Destination(stores, options["url"], into)
    destination.prepare()
    return destination, write_id


def _stage(destination: Destination, epoch: Epoch, batches: Iterator[pa.RecordBatch]) -> Staged:
    """Check and stage a task's rows; what it staged goes again if one of them is refused."""
    part = StagedPart(uuid.uuid4().hex, 0, 0)
    staging: Staging | None = None
    try:
        for rows in _chunks(destination, batches):
            staging = staging or destination.stores.staging(destination.url)
            body = encode(destination.form, rows)
            key = epoch.write_id, epoch.number, part.name, part.chunks
            staging.stage([Chunk(*key, len(rows), body)])
            part = StagedPart(part.name, part.chunks + 1, part.rows + len(rows))
    except InvalidArgument:
        if staging is not None:
            staging.discard(epoch.write_id, epoch.number, [part.name])
        raise
    finally:
        if staging is not None:
            staging.close()
    return Staged(epoch, part)


def _chunks(destination: Destination, batches: Iterator[pa.RecordBatch]) -> Iterator[list[Row]]:
    gathered: list[Row] = []
    size = 0
    for batch in batches:
        for row in destination.form.checked(batch, destination.stores.settings.limits):
            gathered.append(row)
            size += ENVELOPE_BYTES + sum(len(text) for text in row if isinstance(text, str))
            if len(gathered) >= CHUNK_ROWS or size >= CHUNK_BYTES:
                yield gathered
                gathered, size = [], 0
    if gathered:
        yield gathered


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPart]:
    """In the order of the partitions; a task that failed has none."""
    return [staged.part for staged in messages if isinstance(staged, Staged)]


def _epochs(messages: Sequence[WriterCommitMessage | None]) -> set[Epoch]:
    """The one they all belong to; none where no task ran."""
    return {staged.epoch for staged in messages if isinstance(staged, Staged)}
