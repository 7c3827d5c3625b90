"""The job: source → normalise → validate → dedup window → quarantine and journal."""

import re
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, Final

from pyspark.sql import DataFrame, SparkSession, is_remote
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tape.errors import InvalidArgument, SparkUnavailable, StoreUnavailable
from tape.model.bulk_write import BulkWrite
from tape.pipeline.job import CheckContext, JobContext, JobProgress, Summary
from tape.pipeline.jobs.ingest import by_subscription
from tape.pipeline.jobs.ingest.files import FORMATS, file_messages, landed_messages
from tape.pipeline.jobs.ingest.kafka import kafka_messages
from tape.pipeline.jobs.ingest.sink import IngestSink, write_id
from tape.pipeline.jobs.ingest.streaming import await_stream, require_nats
from tape.pipeline.jobs.ingest.validate import IngestRules, validate
from tape.pipeline.places import refuse_unwritable
from tape.pipeline.session import reached
from tape.ports.store import Store

SOURCES: Final = {
    "files": ("path",),
    "landed": ("path",),
    "nats": ("server", "stream"),
    "kafka": ("server", "topic"),
}
_OPTIONAL: Final = {"files": ("format",)}
_KAFKA_PORT: Final = "9092"
_WINDOW: Final = re.compile(
    r"(interval )?(\d+ (microsecond|millisecond|second|minute|hour|day|week)s?\s*)+"
)
_WITH_SUBSCRIPTION: Final = ("subscription", "checkpoint", "max_per_trigger", "follow")
SHAPES: Final = ("payload", "event")
_PROGRESS_KEPT: Final = "spark.sql.streaming.numRecentProgressUpdates"


@dataclass(frozen=True, slots=True)
class Ingest:
    """See `tape pipeline ingest --help` for what each means."""

    name: ClassVar[str] = "ingest"

    checkpoint: str
    source: str = ""
    subscription: str = ""
    quarantine: str = ""
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

    def check_options(self, before: CheckContext) -> None:
        _refuse_remote(bool(before.remote))
        if self.subscription:
            self._refuse_decided()
            refuse_unwritable(self.checkpoint, "checkpoint")
            by_subscription.check_source(self.subscription, before)
            return
        self.rules()
        self._refuse_misplaced()
        if self.dedup_window and not _WINDOW.fullmatch(self.dedup_window):
            told = f"{self.dedup_window!r} is not a span of time such as '10 minutes'"
            raise InvalidArgument(told, field="dedup_window")
        if self.max_per_trigger < 0:
            raise InvalidArgument("must not be negative", field="max_per_trigger")
        for name in ("checkpoint", "quarantine"):
            refuse_unwritable(getattr(self, name), name)
        match self.source:
            case "kafka":
                if fault := reached(self.server, _KAFKA_PORT):
                    raise StoreUnavailable(f"Kafka at {self.server} cannot be reached: {fault}")
            case "nats":
                require_nats()
                from tape.pipeline.jobs.ingest.nats_stream import NatsReader

                NatsReader(self.server, self.stream, 0).initialOffset()
            case _:
                self._refuse_missing_path()

    def _refuse_decided(self) -> None:
        """Refuse options of which the subscription decides."""
        for field in fields(self):
            given = getattr(self, field.name)
            if field.name not in _WITH_SUBSCRIPTION and given != field.default:
                raise InvalidArgument("is decided by the subscription", field=field.name)
        if self.max_per_trigger < 0:
            raise InvalidArgument("must not be negative", field="max_per_trigger")

    def _refuse_misplaced(self) -> None:
        """Refuse options that the source needs and lacks, and those of other sources."""
        if not self.source:
            raise InvalidArgument("name a source, or a subscription", field="source")
        if not self.quarantine:
            raise InvalidArgument("is required", field="quarantine")
        needed = SOURCES.get(self.source)
        if needed is None:
            raise InvalidArgument(
                f"{self.source!r} is not one of {', '.join(SOURCES)}", field="source"
            )
        for name in needed:
            if not getattr(self, name):
                raise InvalidArgument(f"is required to ingest from {self.source}", field=name)
        if self.format not in FORMATS:
            told = f"{self.format!r} is not one of {', '.join(FORMATS)}"
            raise InvalidArgument(told, field="format")
        known = {*needed, *_OPTIONAL.get(self.source, ())}
        defaults = {field.name: field.default for field in fields(self)}
        for source, names in (*SOURCES.items(), *_OPTIONAL.items()):
            for name in names:
                if name not in known and getattr(self, name) != defaults[name]:
                    raise InvalidArgument(
                        f"is an option of {source}, not of {self.source}", field=name
                    )

    def _refuse_missing_path(self) -> None:
        """A glob may match nothing yet, where its folder is there."""
        path = Path(self.path.removeprefix("file://"))
        if "://" in self.path.removeprefix("file://") or path.exists():
            return
        globbed = [place for place, part in enumerate(path.parts) if set("*?[{") & set(part)]
        folder = Path(*path.parts[: globbed[0]]) if globbed else path
        if not folder.is_dir():
            raise InvalidArgument(f"there is no file or folder {folder}", field="path")
        rest = "/".join(path.parts[globbed[0] :])
        if self.format == "parquet" and "{" not in rest and not any(folder.glob(rest)):
            told = f"{self.path} matches no file, and Parquet needs one to say its columns"
            raise InvalidArgument(told, field="path")

    def run(self, work: JobContext) -> Summary:
        begun = time.monotonic()
        _refuse_remote(is_remote())
        if self.subscription:
            self._refuse_decided()
            return by_subscription.load(
                work,
                by_subscription.LoadingTerms(
                    self.subscription, self.checkpoint, self.max_per_trigger, self.follow
                ),
            )
        self._refuse_misplaced()
        rules = self.rules()
        work.spark.conf.set(_PROGRESS_KEPT, "1000")
        events = validate(self.messages(work.spark), rules, work.settings.limits)
        if self.dedup_window:
            events = drop_repeats(events, self.dedup_window)
        sink = IngestSink(
            work.destination,
            self.quarantine,
            lambda read: work.report(JobProgress(self.name, read, 0, "messages")),
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
        await_stream(query)
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

    def rules(self) -> IngestRules:
        if self.shape not in SHAPES:
            raise InvalidArgument(
                f"{self.shape!r} is not one of {', '.join(SHAPES)}", field="shape"
            )
        oldest, _, newest = self.schema_versions.partition("-")
        try:
            versions = (int(oldest or 1), int(newest or oldest or 32767))
        except ValueError:
            versions = (1, 0)
        if versions[0] > versions[1]:
            raise InvalidArgument(
                f"{self.schema_versions!r} is not a range such as 1-3", field="schema_versions"
            )
        return IngestRules(
            self.shape, self.event_type, self.event_type_from, self.key_from, *versions
        )


def _refuse_remote(remote: bool) -> None:
    if remote:
        raise SparkUnavailable(
            "ingest counts and quarantines in the driver, which Spark Connect does not allow: "
            "run it on this machine, or on a cluster with --master"
        )


async def _get(store: Store, stream: str) -> BulkWrite:
    found = await store.writes.get_write(write_id(stream))
    return found or BulkWrite(write_id(stream), -1, "", 0, 0, 0, 0, 0)


def _dropped(query: StreamingQuery) -> int:
    """How many events the window dropped."""
    return sum(
        int(operator.customMetrics.get("numDroppedDuplicateRows", 0))
        for progress in query.recentProgress
        for operator in progress.stateOperators
    )


def drop_repeats(checked: DataFrame, window: str) -> DataFrame:
    """Drop events whose key came within the window before; what is no event stays.

    The journal's own key decides in the end.

    The window is in the time of ingesting: in the time of the events, late ones would be dropped.
    """
    place = F.concat_ws("/", F.lit("\u0001"), "origin", "number")
    key = F.when(F.col("reason").isNull(), F.col("idempotency_key")).otherwise(place)
    return (
        checked.withColumn("seen_at", F.current_timestamp())
        .withColumn("seen_key", key)
        .withWatermark("seen_at", window)
        .dropDuplicatesWithinWatermark(["seen_key"])
        .drop("seen_at", "seen_key")
    )
