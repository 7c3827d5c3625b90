"""A JetStream stream as messages, by stream sequence. An offset is `{"seq": N, "created_ms": T}`:
read up to N of the stream that was made at T.

A stream that is deleted and made again counts from 1 again. So the time at which it was made is
compared before something is read and after it; then the job ends, as a checkpoint of the old stream
says nothing of the new one.

Nothing is acknowledged and no consumer is kept on the server: the checkpoint is what remembers.
A range of sequences is read by an ordered pull in a task, and reads the same when it is read again
for as long as the stream keeps its messages; if it does not, that is said and not skipped.

Where a durable consumer is named, what it lets its listener see is read (`durable.py`). Each task
looks at it, so that a filter holds from when it is changed.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
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

from tape.brokers.nats_headers import WholeHeadersClient, header_pairs
from tape.errors import InvalidArgument, Pruned, SourceRefused, StoreUnavailable
from tape.pipeline.jobs.ingest.durable import DurableView, durable_view, refuse_one_consumer
from tape.pipeline.jobs.ingest.messages import MESSAGE, NOT_UTF8
from tape.pipeline.logins import ConnectNats, NatsLink

SEQ: Final = "seq"
CREATED: Final = "created_ms"
PARTITION_ROWS: Final = 50_000
FETCH: Final = 500
FETCH_S: Final = 10.0
CONNECT_S: Final = 5
_ARROW: Final = to_arrow_schema(MESSAGE, timezone="UTC")
_TOKENS_WITHOUT_DOMAIN: Final = 9
Offset = dict[str, Any]


@dataclass(frozen=True)
class SequenceRange(InputPartition):
    """Sequences with `after < seq <= upto`. `created_ms` is 0 if an old checkpoint lacks it."""

    after: int
    upto: int
    created_ms: int = 0


class NatsSource(DataSource):
    """Options: server, stream, consumer, created_ms, max_per_trigger."""

    @classmethod
    def name(cls) -> str:
        return "tape_nats"

    def schema(self) -> StructType:
        return MESSAGE

    def streamReader(self, schema: StructType) -> "NatsReader":  # noqa: N802, ARG002 - Spark's signature
        return self._reader(None)

    def _reader(self, connect: ConnectNats | None) -> "NatsReader":
        said = self.options
        most, created_ms = (int(said.get(name, 0)) for name in ("max_per_trigger", CREATED))
        return NatsReader(
            said["server"], said["stream"], most, connect,
            consumer=said.get("consumer", ""), created_ms=created_ms,
        )  # fmt: skip


class NatsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self,
        server: str,
        stream: str,
        most: int,
        connect: ConnectNats | None = None,
        *,
        consumer: str = "",
        created_ms: int = 0,
    ) -> None:
        """`server` is also how it is shown. `connect` logs in, in whatever process reads. Without a
        consumer the whole stream is read; `created_ms` of 0 is whichever stream has the name."""
        self._server = server
        self._consumer = consumer
        self._created_ms = created_ms
        self._stream = stream
        self._most = most
        self._connect = connect or partial(_connect, server)
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        info = self._info(self._created_ms)
        return {SEQ: max(info.state.first_seq - 1, 0), CREATED: _created_ms(info)}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        info = self._info(start.get(CREATED, self._created_ms))
        last = info.state.last_seq
        end = last if self._target is None else min(self._target, last)
        if isinstance(limit, ReadMaxRows):
            end = min(end, start[SEQ] + limit.max_rows)
        return {SEQ: max(end, start[SEQ]), CREATED: _created_ms(info)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._most) if self._most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._info().state.last_seq

    def partitions(self, start: Offset, end: Offset) -> list[SequenceRange]:
        after, upto = start[SEQ], end[SEQ]
        if after >= upto:
            return []
        created_ms = end.get(CREATED, self._created_ms)
        self._refuse_gone(after, created_ms)
        cuts = [*range(after, upto, PARTITION_ROWS), upto]
        return [SequenceRange(low, high, created_ms) for low, high in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SequenceRange)  # noqa: S101 - ours, see partitions
        with asyncio.Runner() as loop:
            reading = _read(self._connect, self._stream, self._consumer, partition)
            while (rows := loop.run(_next(reading))) is not None:
                yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
        # What was read counts for nothing if this fails: nobody gets a part of what a task reads.
        self._info(partition.created_ms)

    def created_ms(self) -> int:
        """When the stream was made, which tells it from another that had its name before."""
        return _created_ms(self._info())

    def durable(self) -> DurableView:
        """What the consumer lets its listener see. SourceRefused if that cannot be read."""
        refuse_one_consumer(self._stream, self._info().config.retention)

        async def ask() -> DurableView:
            link = await self._connect()
            try:
                return await _durable(link, self._stream, self._consumer)
            finally:
                await link.close()

        with asyncio.Runner() as loop:
            return loop.run(ask())

    def _refuse_gone(self, after: int, created_ms: int) -> None:
        first = self._info(created_ms).state.first_seq
        if first > after + 1:
            raise Pruned(
                f"the stream {self._stream} begins at {first}, and messages from {after + 1} on "
                "have not been ingested: they are lost. Use a new checkpoint to continue"
            )

    def _info(self, created_ms: int = 0) -> StreamInfo:
        """SourceRefused if it was made at another time than this one."""

        async def ask() -> StreamInfo:
            link = await self._connect()
            try:
                found: StreamInfo = await link.jetstream.stream_info(self._stream)
            except NotFoundError:
                raise InvalidArgument(
                    f"{self._server} has no stream {self._stream!r}", field="stream"
                ) from None
            finally:
                await link.close()
            return found

        with asyncio.Runner() as loop:
            info = loop.run(ask())
        if created_ms and created_ms != _created_ms(info):
            raise SourceRefused(
                f"stream: {self._stream} was deleted and made again, and counts its messages anew: "
                "use a new checkpoint to go on with the new stream"
            )
        return info


def _created_ms(info: StreamInfo) -> int:
    if info.created is None:
        raise StoreUnavailable("NATS does not say when it made the stream")
    return int(info.created.timestamp() * 1000)


def nats_messages(
    spark: SparkSession,
    server: str,
    stream: str,
    messages_per_batch: int,
    *,
    connect: ConnectNats | None = None,
    consumer: str = "",
    created_ms: int = 0,
) -> DataFrame:
    spark.dataSource.register(NatsSource if connect is None else _with_login(connect))
    reading = spark.readStream.format("tape_nats").option("server", server)
    if consumer:
        reading = reading.option("consumer", consumer)
    if created_ms:
        reading = reading.option(CREATED, created_ms)
    if messages_per_batch:
        reading = reading.option("max_per_trigger", messages_per_batch)
    return reading.option("stream", stream).load()


def _with_login(connect: ConnectNats) -> type[NatsSource]:
    """A source whose readers connect by themselves: options of a source are shown to everybody."""

    class NatsSourceWithLogin(NatsSource):
        def streamReader(self, schema: StructType) -> NatsReader:  # noqa: N802, ARG002 - Spark's
            return self._reader(connect)

    return NatsSourceWithLogin


async def _connect(server: str) -> NatsLink:
    client = WholeHeadersClient()
    try:
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
    return NatsLink(client.jetstream(), client.close)


async def _quiet(_fault: Exception) -> None:
    """What concerns us is raised where it happens."""


async def _next(reading: AsyncIterator[list[dict[str, Any]]]) -> list[dict[str, Any]] | None:
    return await anext(reading, None)


async def _durable(link: NatsLink, stream: str, consumer: str) -> DurableView:
    try:
        info = await link.jetstream.consumer_info(stream, consumer)
    except NotFoundError:
        raise SourceRefused(
            f"consumer: the stream {stream} has no consumer {consumer}; make a durable pull "
            "consumer of that name"
        ) from None
    return durable_view(stream, consumer, info)


async def _read(
    connect: ConnectNats, stream: str, consumer: str, wanted: SequenceRange
) -> AsyncIterator[list[dict[str, Any]]]:
    link = await connect()
    try:
        seen = await _durable(link, stream, consumer) if consumer else DurableView((), False, 0)
        pulling = await link.jetstream.pull_subscribe(
            "",
            stream=stream,
            config=ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=wanted.after + 1,
                filter_subjects=[*seen.subjects] or None,
                headers_only=seen.headers_only or None,
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
        await link.close()


async def _pages(
    pulling: JetStreamContext.PullSubscription, stream: str, wanted: SequenceRange
) -> AsyncIterator[list[dict[str, Any]]]:
    """Until the end of the range. Messages may have been deleted or left out, the last one as well:
    then the next that is there is beyond it, or none is pending."""
    reached = wanted.after
    if (await pulling.consumer_info()).num_pending == 0:
        return
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


def stored_ms(reply: str) -> int:
    """When JetStream stored a message, by the subject of its acknowledgement. Its nanoseconds are
    cut off here, as a listener does: the library rounds them."""
    tokens = reply.split(".")
    return int(tokens[7] if len(tokens) == _TOKENS_WITHOUT_DOMAIN else tokens[9]) // 1_000_000


def _row(stream: str, message: Any) -> dict[str, Any]:
    metadata = message.metadata
    row = {
        "origin": f"nats/{stream}",
        "number": metadata.sequence.stream,
        "key": message.subject,
        "timestamp_ms": stored_ms(message.reply),
        "headers": [{"name": name, "value": value} for name, value in header_pairs(message)],
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
