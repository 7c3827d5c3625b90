"""The job: source → normalise → validate → dedup window → quarantine and journal."""

import time
from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, is_remote
from pyspark.sql.streaming.query import StreamingQuery

from tape.errors import InvalidArgument, SparkUnavailable, TapeError
from tape.model.bulk_write import Write
from tape.pipeline.job import Progress, Summary, Work
from tape.pipeline.jobs.ingest.dedup import drop_repeats
from tape.pipeline.jobs.ingest.files import file_messages, landed_messages
from tape.pipeline.jobs.ingest.kafka import kafka_messages
from tape.pipeline.jobs.ingest.messages import normalise
from tape.pipeline.jobs.ingest.sink import Sink, write_id
from tape.pipeline.jobs.ingest.validate import Rules, validate
from tape.ports.store import Store

SOURCES: Final = {
    "files": ("path",),
    "landed": ("path",),
    "nats": ("server", "stream"),
    "kafka": ("server", "topic"),
}
SHAPES: Final = ("payload", "event")
_PROGRESS_KEPT: Final = "spark.sql.streaming.numRecentProgressUpdates"


@dataclass(frozen=True, slots=True)
class Ingest:
    """See `tape pipeline ingest --help` for what each means."""

    name: ClassVar[str] = "ingest"

    source: str
    checkpoint: str
    quarantine: str
    path: str = ""
    format: str = "json"
    server: str = ""
    stream: str = ""
    topic: str = ""
    shape: str = "payload"
    event_type: str = ""
    event_type_from: str = ""
    key_from: str = ""
    schema_versions: str = ""
    dedup_window: str = ""
    max_per_trigger: int = 0
    follow: bool = False

    def run(self, work: Work) -> Summary:
        begun = time.monotonic()
        if is_remote():
            raise SparkUnavailable(
                "ingest counts and quarantines in the driver, which Spark Connect keeps to itself: "
                "run it here, or on a cluster with --master"
            )
        rules = self.rules()
        work.spark.conf.set(_PROGRESS_KEPT, "1000")
        events = validate(normalise(self.messages(work.spark)), rules, work.settings.limits)
        if self.dedup_window:
            events = drop_repeats(events, self.dedup_window)
        sink = Sink(
            work.destination,
            self.quarantine,
            lambda read: work.report(Progress(self.name, read, 0, "messages")),
        )
        writing = events.writeStream.foreachBatch(sink).option(
            "checkpointLocation", self.checkpoint
        )
        if not self.follow:
            writing = writing.trigger(availableNow=True)
        query = writing.start()
        stream = str(query.id)
        before = work.use_store(lambda store: _get(store, stream))
        sink.stream_id.set_result(stream)
        _await(query)
        after = work.use_store(lambda store: _get(store, stream))
        dropped = _dropped(query)
        counts = {
            "read": sink.read + dropped,
            "written": after.rows - before.rows,
            "duplicates": after.duplicates - before.duplicates + dropped,
            "quarantined": sink.quarantined,
        }
        facts: dict[str, object] = {"stream": stream}
        if sink.quarantined:
            facts["quarantine"] = self.quarantine
        return Summary(self.name, counts, time.monotonic() - begun, facts)

    def messages(self, spark: SparkSession) -> DataFrame:
        """What the source has, and will have."""
        needed = SOURCES.get(self.source)
        if needed is None:
            raise InvalidArgument(
                f"{self.source!r} is not one of {', '.join(SOURCES)}", field="source"
            )
        for name in needed:
            if not getattr(self, name):
                raise InvalidArgument(f"is needed to ingest from {self.source}", field=name)
        match self.source:
            case "files":
                return file_messages(spark, self.path, self.format, self.max_per_trigger)
            case "landed":
                return landed_messages(spark, self.path, self.max_per_trigger)
            case "kafka":
                return kafka_messages(spark, self.server, self.topic, self.max_per_trigger)
            case _:
                # The client of NATS comes with an extra of its own.
                from tape.pipeline.jobs.ingest.nats_stream import nats_messages

                return nats_messages(spark, self.server, self.stream, self.max_per_trigger)

    def rules(self) -> Rules:
        if self.shape not in SHAPES:
            raise InvalidArgument(
                f"{self.shape!r} is not one of {', '.join(SHAPES)}", field="shape"
            )
        oldest, _, newest = self.schema_versions.partition("-")
        try:
            versions = (int(oldest or 1), int(newest or oldest or 32767))
        except ValueError:
            raise InvalidArgument(
                f"{self.schema_versions!r} is no range as 1-3", field="schema_versions"
            ) from None
        return Rules(self.shape, self.event_type, self.event_type_from, self.key_from, *versions)


async def _get(store: Store, stream: str) -> Write:
    found = await store.get_write(write_id(stream))
    return found or Write(write_id(stream), -1, "", 0, 0, 0, 0, 0)


def _await(query: StreamingQuery) -> None:
    try:
        query.awaitTermination()
    except KeyboardInterrupt:  # how a stream that goes on is ended
        query.stop()
    except StreamingQueryException as fault:
        raise TapeError(f"the stream stopped: {_reason(str(fault))}") from fault


def _reason(said: str) -> str:
    """Ours, where one of our errors came through Spark; else what Spark says."""
    ours = [line for line in said.splitlines() if line.startswith("tape.errors.")]
    return ours[-1].partition(": ")[2] if ours else said.strip().splitlines()[0]


def _dropped(query: StreamingQuery) -> int:
    """How many events the window dropped."""
    return sum(
        int(operator.customMetrics.get("numDroppedDuplicateRows", 0))
        for progress in query.recentProgress
        for operator in progress.stateOperators
    )
