"""A JetStream stream as messages, by stream sequence. An offset is `{"seq": N}`: read up to N.

Nothing is acknowledged and no consumer is kept on the server: the checkpoint is what remembers.
A range of sequences is read by an ordered pull in a task, and reads the same when it is read again
for as long as the stream keeps its messages; if it does not, that is said and not skipped.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoServersError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tape.errors import InvalidArgument, Pruned, StoreUnavailable
from tape.pipeline.jobs.ingest.messages import MESSAGE, NOT_UTF8

SEQ: Final = "seq"
PARTITION_ROWS: Final = 50_000
FETCH: Final = 500
FETCH_S: Final = 10.0
CONNECT_S: Final = 5
_ARROW: Final = to_arrow_schema(MESSAGE, timezone="UTC")
Offset = dict[str, Any]


@dataclass(frozen=True)
class SequenceRange(InputPartition):
    """Sequences with `after < seq <= upto`."""

    after: int
    upto: int


class NatsSource(DataSource):
    """Options: server, stream, max_per_trigger."""

    @classmethod
    def name(cls) -> str:
        return "tape_nats"

    def schema(self) -> StructType:
        return MESSAGE

    def streamReader(self, schema: StructType) -> "NatsReader":  # noqa: N802, ARG002 - Spark's signature
        return NatsReader(
            self.options["server"], self.options["stream"],
            int(self.options.get("max_per_trigger", 0)),
        )  # fmt: skip


class NatsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, server: str, stream: str, most: int) -> None:
        self._server = server
        self._stream = stream
        self._most = most
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return {SEQ: max(self._info().state.first_seq - 1, 0)}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        last = self._info().state.last_seq
        end = last if self._target is None else min(self._target, last)
        if isinstance(limit, ReadMaxRows):
            end = min(end, start[SEQ] + limit.max_rows)
        return {SEQ: max(end, start[SEQ])}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._most) if self._most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._info().state.last_seq

    def partitions(self, start: Offset, end: Offset) -> list[SequenceRange]:
        after, upto = start[SEQ], end[SEQ]
        if after >= upto:
            return []
        self._refuse_gone(after)
        cuts = [*range(after, upto, PARTITION_ROWS), upto]
        return [SequenceRange(low, high) for low, high in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SequenceRange)  # noqa: S101 - ours, see partitions
        with asyncio.Runner() as loop:
            reading = _read(self._server, self._stream, partition)
            while (rows := loop.run(_next(reading))) is not None:
                yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)

    def _refuse_gone(self, after: int) -> None:
        first = self._info().state.first_seq
        if first > after + 1:
            raise Pruned(
                f"the stream {self._stream} begins at {first}, and messages from {after + 1} on "
                "have not been ingested: they are lost. Use a new checkpoint to continue"
            )

    def _info(self) -> StreamInfo:
        async def ask() -> StreamInfo:
            client = await _connect(self._server)
            try:
                found: StreamInfo = await client.jetstream().stream_info(self._stream)
            except NotFoundError:
                raise InvalidArgument(
                    f"{self._server} has no stream {self._stream!r}", field="stream"
                ) from None
            finally:
                await client.close()
            return found

        return asyncio.run(ask())


def nats_messages(
    spark: SparkSession, server: str, stream: str, messages_per_batch: int
) -> DataFrame:
    spark.dataSource.register(NatsSource)
    reading = spark.readStream.format("tape_nats").option("server", server)
    if messages_per_batch:
        reading = reading.option("max_per_trigger", messages_per_batch)
    return reading.option("stream", stream).load()


async def _connect(server: str) -> Client:
    try:
        client = _ExactClient()
        # Without a bound on its attempts the client tries an address that refuses for two minutes.
        await client.connect(
            server,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_S,
            error_cb=_quiet,
        )
    except (NatsError, NoServersError, OSError, TimeoutError) as fault:
        raise StoreUnavailable(f"NATS at {server} cannot be reached: {fault}") from fault
    return client


class _ExactClient(Client):
    """A client that keeps the bytes of header values; its library puts marks in their place."""

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        lines = (line.partition(b":") for line in raw.split(b"\r\n"))
        return {
            name.strip().decode("ascii"): value.strip().decode(errors="surrogateescape")
            for name, colon, value in lines
            if colon and name.strip() and name.isascii()
        }


async def _quiet(_fault: Exception) -> None:
    """What concerns us is raised where it happens."""


async def _next(reading: AsyncIterator[list[dict[str, Any]]]) -> list[dict[str, Any]] | None:
    return await anext(reading, None)


async def _read(
    server: str, stream: str, wanted: SequenceRange
) -> AsyncIterator[list[dict[str, Any]]]:
    client = await _connect(server)
    try:
        pulling = await client.jetstream().pull_subscribe(
            "",
            stream=stream,
            config=ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=wanted.after + 1,
                ack_policy=AckPolicy.NONE,
                inactive_threshold=60.0,
                mem_storage=True,
            ),
        )
        try:
            async for rows in _pages(pulling, stream, wanted):
                yield rows
        finally:
            await pulling.unsubscribe()
    finally:
        await client.close()


async def _pages(
    pulling: JetStreamContext.PullSubscription, stream: str, wanted: SequenceRange
) -> AsyncIterator[list[dict[str, Any]]]:
    """Until the end of the range. Messages may have been deleted, the last one as well: then the
    next that is there is beyond it, or none is pending."""
    reached = wanted.after
    while reached < wanted.upto:
        try:
            messages = await pulling.fetch(FETCH, timeout=FETCH_S)
        except NatsTimeout:
            info = await pulling.consumer_info()
            if info.num_pending == 0:
                return
            raise StoreUnavailable(
                f"NATS did not deliver {stream} after {reached} within {FETCH_S:.0f} s"
            ) from None
        rows = []
        for message in messages:
            reached = message.metadata.sequence.stream
            if reached <= wanted.upto:
                rows.append(_row(stream, message))
        if rows:
            yield rows
        if messages[-1].metadata.num_pending == 0:
            return


def _row(stream: str, message: Any) -> dict[str, Any]:
    metadata = message.metadata
    row = {
        "origin": f"nats/{stream}",
        "number": metadata.sequence.stream,
        "key": message.subject,
        "timestamp_ms": int(metadata.timestamp.timestamp() * 1000),
        "headers": [
            {"name": name, "value": value.encode(errors="surrogateescape")}
            for name, value in (message.headers or {}).items()
        ],
        "body": None,
        "raw": message.data.decode(errors="replace"),
        "raw_bytes": None,
        "key_bytes": None,
        "fault": None,
    }
    try:
        return row | {"body": message.data.decode()}
    except UnicodeDecodeError:
        return row | {"fault": NOT_UTF8, "raw_bytes": message.data}
