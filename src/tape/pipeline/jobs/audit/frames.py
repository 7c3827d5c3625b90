"""What checks look at: the journal's entries made ready, and the tables beside it.

A live system is audited while it runs. First the journal's head is read (`before`), then the
tables, then the head again (`head`), and then the journal up to that. So the tables show at least
everything up to `before`, and nothing beyond `head`; what was written in between they may or may
not show. Every change of a run or of what it has written down is an entry of that run, so a run
without an entry in between is *quiet*: its rows are exactly what its entries made of it.

Where the journal's beginning was pruned and is not read from a lake, entries up to `begins_after`
are unknown. A run whose first entry is known is *whole*; nothing is said of what an unknown entry
could explain.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.payloads import PAYLOAD_FIELDS

STATUSES = (
    "runnable", "running", "waiting", "terminal", "failed", "compensating", "stuck", "cancelled",
)  # fmt: skip
"""Of a run, in the order of their numbers."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Which part of the journal is looked at, and by when the tables were read."""

    before: int
    head: int
    begins_after: int = 0
    pruned_through: int = 0
    audited_at_ms: int = 0
    store: str = ""

    @property
    def is_whole(self) -> bool:
        return self.begins_after == 0


class Frames:
    """The frames that checks share. What several of them use is computed once and kept."""

    def __init__(self, journal: DataFrame, tables: Mapping[str, DataFrame], moment: Moment) -> None:
        self.journal = journal
        self.tables = tables
        self.moment = moment
        self._kept: list[DataFrame] = []
        self._shared: dict[str, DataFrame] = {}

    @cached_property
    def entries(self) -> DataFrame:
        """Every entry with its verb, its dimensions, and the fields of what Tape itself wrote."""
        own = "kind <> 'event' OR subject LIKE '/tape/event/appended/%'"
        return self._keep(
            self.journal.where(F.col("global_seq") <= self.moment.head)
            .withColumn("segments", F.split("subject", "/"))
            .selectExpr(
                "global_seq", "run_id", "seq", "kind", "subject", "ts_ms", "event_id",
                "event_type", "entity_type", "entity_id", "caused_by", "source",
                "occurred_at_ms", "idempotency_key", "schema_version",
                "trace_id", "span_id", "parent_span_id",
                "COALESCE(GET(segments, 3), '') AS verb",
                "SLICE(segments, 5, 16) AS dims",
                "TRY_PARSE_JSON(payload_json) IS NOT NULL AS is_json",
                f"CASE WHEN {own} THEN FROM_JSON(payload_json, '{PAYLOAD_FIELDS}') END AS p",
            )
            # Values may be large, and to tell whether two are the same their hashes do.
            .withColumn("value_hash", F.expr("XXHASH64(p.value.value_json)"))
            .withColumn("prev_hash", F.expr("XXHASH64(p.prev_value_json)"))
            .withColumn("p", F.col("p").dropFields("value.value_json", "prev_value_json"))
        )  # fmt: skip

    @cached_property
    def lines(self) -> DataFrame:
        """Entries of runs, each with how its run stood before it."""
        run = Window.partitionBy("run_id")
        earlier = run.orderBy("seq", "global_seq").rowsBetween(Window.unboundedPreceding, -1)
        in_order = run.orderBy("seq", "global_seq")
        is_status = F.expr(f"kind = 'run' AND verb IN {STATUSES}")
        is_grant = F.expr("kind = 'run' AND verb = 'running' AND p.owner <> ''")
        granted = F.expr(
            "STRUCT(p.fencing_token AS token, p.owner AS owner, p.lease_expires_at_ms AS until_ms)"
        )
        return self._keep(
            self.entries.where("run_id <> ''")
            .withColumn("is_grant", F.coalesce(is_grant, F.lit(False)))
            .withColumn("prev_seq", F.lag("seq").over(in_order))
            .withColumn("prev_global_seq", F.lag("global_seq").over(in_order))
            .withColumn(
                "status_before", F.last(F.when(is_status, F.col("verb")), True).over(earlier)
            )
            .withColumn("lease_before", F.last(F.when(is_grant, granted), True).over(earlier))
            .withColumn("whole", F.min("seq").over(run) == 1)
            .withColumn("quiet", F.max("global_seq").over(run) <= self.moment.before)
        )

    def of(self, kind: str) -> DataFrame:
        """The entries of runs of one kind."""
        return self.lines.where(F.col("kind") == kind)

    @cached_property
    def settled_runs(self) -> DataFrame:
        """Runs that are whole and quiet, so their rows can be held to their entries."""
        return self._keep(self.lines.where("whole AND quiet").select("run_id").distinct())

    def table(self, name: str) -> DataFrame:
        return self.tables[name]

    def rows_of_settled(self, name: str) -> DataFrame:
        """A table's rows, of runs that are whole and quiet."""
        return self.table(name).join(self.settled_runs, "run_id", "left_semi")

    def shared(self, name: str, build: Callable[[], DataFrame]) -> DataFrame:
        """A frame that several checks of a noun look at; built by the first of them."""
        if name not in self._shared:
            self._shared[name] = self._keep(build())
        return self._shared[name]

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist())
        return self._kept[-1]

    def release(self) -> None:
        for frame in reversed(self._kept):
            frame.unpersist()
        self._kept.clear()
        self._shared.clear()
