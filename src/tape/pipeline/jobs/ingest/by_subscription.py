"""Ingest by a declared subscription: each message becomes what its listener would make of it.

    source ──Spark──► planned by the listener's code ──rows──► driver ──accept_messages──► writer
                      planned.py, on executors                 under the subscription's hold

The subscription's document says everything: where the messages are, which app and pool they go to,
which headers decide, which key makes a repeat, and what is a dead letter. Dead letters go to the
subscription's own, where they can be replayed. Nothing is acknowledged at the source: places
remember what was accepted, so a listener that meets the same messages later, or has met them, and a
run of this job that was killed and starts again, make nothing of them twice.

Of a stream the messages are read that the subscription's durable lets its listener see.

What the listener's source has passed is left out. Places are forgotten there, so a repeat or a dead
letter of long ago could not be told from a new message.
"""

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tape.errors import InvalidArgument, SourceRefused, TapeError
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.accept_messages import AcceptOutcome, PlannedMessage
from tape.model.message import nats_origin
from tape.model.subscription import reader_of
from tape.model.subscription_spec import SourceKind, SourceSpec, SubscriptionSpec
from tape.pipeline.job import CheckContext, JobContext, JobProgress, Summary
from tape.pipeline.jobs.ingest.kafka import kafka_messages
from tape.pipeline.jobs.ingest.planned import BulkSource, planned, planned_message
from tape.pipeline.jobs.ingest.streaming import await_stream, require_nats
from tape.pipeline.logins import SourceLogins
from tape.ports.bulk import UseStore
from tape.ports.store import Store
from tape.ports.subscriptions import StoredSubscription
from tape.subscriptions.bulk import BulkLoading, refuse_unloadable
from tape.subscriptions.company import MOST_TOGETHER
from tape.subscriptions.lanes import MOST_BYTES
from tape.subscriptions.operations import Subscriptions
from tape.subscriptions.planning import Planner
from tape.subscriptions.revisions import ReadyRevision
from tape.subscriptions.spec import spec_of_json

READ, PASSED = "read", "passed"
MOST_PER_TRIGGER: Final = 20_000
"""Of a batch the driver holds a partition or two, so a backlog is not one batch."""
_LISTENERS_ALONE: Final = {
    SourceKind.PUBSUB: "Spark has no source for Pub/Sub: a listener pulls its messages",
    SourceKind.FILE: "a folder is read by its listener alone, who remembers what was read there",
    SourceKind.WEBHOOK: "it is pushed to: there is no source to read",
}


class LoadingTerms(NamedTuple):
    """What the command says; the subscription says the rest."""

    subscription: str
    checkpoint: str
    max_per_trigger: int = 0
    follow: bool = False


class _OpenedSource(NamedTuple):
    messages: DataFrame
    source: BulkSource


def source_kind(name: str, use_store: UseStore) -> SourceKind:
    return _spec(_stored(name, use_store)).source.kind


def check_source(name: str, before: CheckContext) -> None:
    """Refuse a subscription that cannot be loaded, and a source that cannot be read."""
    stored = _stored(name, before.use_store)
    spec = _spec(stored)
    _refuse_unreadable(spec)
    refuse_unloadable(stored.subscription)
    _incarnation(spec.source, _required(before.logins))


def load(work: JobContext, terms: LoadingTerms) -> Summary:
    """Load what the source has, or go on with what comes."""
    begun = time.monotonic()
    loader = _Loader(work, terms)
    try:
        work.use_store(loader.run)
    except KeyboardInterrupt:  # how a stream that goes on is ended
        if not terms.follow:
            raise
    outcomes = {outcome.value: loader.counts[outcome.value] for outcome in AcceptOutcome}
    counts = {READ: loader.counts[READ], **outcomes, PASSED: loader.counts[PASSED]}
    facts: dict[str, object] = {"subscription": terms.subscription, "revision": loader.revision}
    return Summary("ingest", counts, time.monotonic() - begun, facts)


class _Loader:
    """Holds the subscription on the event loop, while a thread runs the stream."""

    def __init__(self, work: JobContext, terms: LoadingTerms) -> None:
        self._work = work
        self._terms = terms
        self._query: StreamingQuery | None = None
        self._fault: TapeError | None = None
        self.counts: Counter[str] = Counter()
        self.revision = 0

    async def run(self, store: Store) -> None:
        settings = self._work.settings
        writer = Writer(store, settings.writer)
        subscriptions = Subscriptions(store, writer, UlidFactory(), settings.limits)
        owner = f"ingest {socket.gethostname()}-{os.getpid()}-{next(UlidFactory())}"
        loading = subscriptions.loading(self._terms.subscription, owner, settings.listeners.lease_s)
        streaming: asyncio.Future[None] | None = None
        try:
            ready = await loading.begin()
            self.revision = ready.revision
            loop = asyncio.get_running_loop()
            stream = partial(self._stream, ready, loading, loop)
            streaming = loop.run_in_executor(None, stream)
            await asyncio.shield(streaming)
        finally:
            if self._query is not None:
                await asyncio.to_thread(self._query.stop)
            if streaming is not None:
                await asyncio.gather(streaming, return_exceptions=True)
            await loading.end()
            await subscriptions.close()
            await writer.close()

    def _stream(
        self, ready: ReadyRevision, loading: BulkLoading, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Run the stream to its end, in a thread of its own."""
        limits, planner = self._work.settings.limits, ready.planner
        opened = _opened(self._work, self._terms, ready)
        rows = planned(opened.messages, opened.source, planner.spec, limits)

        def take(batch: DataFrame, _epoch: int) -> None:
            try:
                check_topic(planner.spec.source, self._work.logins, opened.source.incarnation)
                self._take(batch, planner, loading, loop)
            except TapeError as fault:
                self._fault = fault
                raise

        writing = rows.writeStream.foreachBatch(take).option(
            "checkpointLocation", self._terms.checkpoint
        )
        if not self._terms.follow:
            writing = writing.trigger(availableNow=True)
        self._query = writing.start()
        try:
            await_stream(self._query)
        except Exception:
            if self._fault is not None:  # as it was raised, and not as Java has told of it
                raise self._fault from None
            raise

    def _take(
        self,
        batch: DataFrame,
        planner: Planner,
        loading: BulkLoading,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Accept a batch in order, part after part. Whoever is killed in between accepts the whole
        batch again, of which what was accepted is redelivered."""
        if self._terms.follow:
            asyncio.run_coroutine_threadsafe(loading.check_revision(), loop).result()
        for part in self._parts(batch, planner):
            accepted = asyncio.run_coroutine_threadsafe(loading.accept(part), loop).result()
            self.counts.update(message.outcome.value for message in accepted)
            self._work.report(JobProgress("ingest", self.counts[READ], 0, "messages"))

    def _parts(self, batch: DataFrame, planner: Planner) -> Iterator[list[PlannedMessage]]:
        part: list[PlannedMessage] = []
        size = 0
        for row in batch.toLocalIterator(prefetchPartitions=True):
            self.counts[READ] += 1
            message = planned_message(row, planner, self._work.settings.limits)
            if message is None:
                self.counts[PASSED] += 1
                continue
            length = len(row["letter"] or row["input"])
            if part and (len(part) >= MOST_TOGETHER or size + length > MOST_BYTES):
                yield part
                part, size = [], 0
            part.append(message)
            size += length
        if part:
            yield part


def _opened(work: JobContext, terms: LoadingTerms, ready: ReadyRevision) -> _OpenedSource:
    """The source as Spark reads it. What its listener has passed is looked up now, while the
    subscription is held; what the source says now counts more than what it said before."""
    spec = ready.spec
    _refuse_unreadable(spec)
    source, logins = spec.source, _required(work.logins)
    most = terms.max_per_trigger or MOST_PER_TRIGGER
    incarnation = _incarnation(source, logins)
    passed = dict(_passed(ready, work.use_store)) | dict(incarnation.passed)
    bulk = BulkSource(source.kind, incarnation.id, tuple(passed.items()))
    if source.kind is SourceKind.KAFKA:
        return _OpenedSource(
            kafka_messages(work.spark, incarnation.server, source.topic, most), bulk
        )
    from tape.pipeline.jobs.ingest.nats_stream import nats_messages

    connect = partial(logins.connect_nats, source.auth)
    frame = nats_messages(
        work.spark, incarnation.server, source.stream, most,
        connect=connect, consumer=source.consumer, created_ms=int(incarnation.id),
    )  # fmt: skip
    return _OpenedSource(frame, bulk)


class _Incarnation(NamedTuple):
    """Where a stream or topic is, as it is shown, and what tells it from one of the same name;
    what the source itself says to have passed, by origin."""

    server: str
    id: str
    passed: tuple[tuple[str, int], ...] = ()


def _incarnation(source: SourceSpec, logins: SourceLogins) -> _Incarnation:
    if source.kind is SourceKind.KAFKA:
        topic = asyncio.run(logins.find_topic(source))
        return _Incarnation(topic.servers, topic.topic_id)
    require_nats()
    # The client of NATS comes with an extra of its own.
    from tape.pipeline.jobs.ingest.nats_stream import NatsReader

    shown = f"the servers of {source.auth}"
    connect = partial(logins.connect_nats, source.auth)
    reader = NatsReader(shown, source.stream, 0, connect, consumer=source.consumer)
    made_ms = reader.created_ms()
    passed = ((nats_origin(source.stream, made_ms), reader.durable().passed),)
    return _Incarnation(shown, str(made_ms), passed)


def check_topic(source: SourceSpec, logins: SourceLogins | None, topic_id: str) -> None:
    """Refuse what comes of another topic than before: Spark's connector goes by the name alone. A
    stream is compared where it is read."""
    if source.kind is SourceKind.KAFKA and topic_id != _incarnation(source, _required(logins)).id:
        raise SourceRefused(
            f"topic: {source.topic} was deleted and made again, and counts its messages anew: use "
            "a new checkpoint to go on with the new topic"
        )


def _passed(ready: ReadyRevision, use_store: UseStore) -> tuple[tuple[str, int], ...]:
    """What listeners have reported of the source as this revision reads it."""
    mine = ready.spec.name, reader_of(ready.document_json)
    tables = use_store.reader()
    try:
        columns = ("subscription", "reader", "origin", "position")
        return tuple(
            (row["origin"], row["position"])
            for batch in tables.read_table("passed_positions", 10_000, columns)
            for row in batch.to_pylist()
            if (row["subscription"], row["reader"]) == mine
        )
    finally:
        tables.close()


def _stored(name: str, use_store: UseStore) -> StoredSubscription:
    async def list_all(store: Store) -> list[StoredSubscription]:
        return await store.subscriptions.list_subscriptions()

    by_name = {stored.subscription.name: stored for stored in use_store(list_all)}
    if name not in by_name:
        near = get_close_matches(name, by_name, n=1)
        what_to_do = f"did you mean {near[0]!r}?" if near else "register it first"
        raise InvalidArgument(f"no subscription {name!r}: {what_to_do}", field="subscription")
    return by_name[name]


def _spec(stored: StoredSubscription) -> SubscriptionSpec:
    return spec_of_json(stored.document_json)


def _refuse_unreadable(spec: SubscriptionSpec) -> None:
    because = _LISTENERS_ALONE.get(spec.source.kind)
    if because is not None:
        raise InvalidArgument(
            f"{spec.name!r} cannot be read in bulk: {because}", field="subscription"
        )


def _required(logins: SourceLogins | None) -> SourceLogins:
    if logins is None:
        raise InvalidArgument("needs what opens its credential", field="subscription")
    return logins
