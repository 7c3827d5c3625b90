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

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.payloads import PAYLOAD_FIELDS

STATUSES = (
    "runnable", "running", "waiting", "terminal", "failed", "compensating", "stuck", "cancelled",
)  # fmt: skip
"""Of a run, in the order of their numbers."""
LIFE_VERBS: Final = (
    "registered", "activated", "paused", "resumed", "draining", "deactivated", "deleted",
)  # fmt: skip
"""Of entries that tell of the life of a declared subscription."""
EVERY: Final = ("*",)
"""Entries of all kinds."""
IN_RUNS: Final = ("in a run",)
"""Entries of all kinds that belong to a run."""
ENTRY_COLUMNS: Final = "global_seq run_id seq kind subject ts_ms payload_json"
"""What of the journal every look at entries needs."""


@dataclass(frozen=True, slots=True)
class AuditScope:
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


@dataclass(frozen=True, slots=True)
class FrameSource:
    """A frame that several checks look at, and what it is made of: see `Check`."""

    name: str
    build: Callable[["Frames"], DataFrame]
    kinds: tuple[str, ...] = ()
    reads: Mapping[str, str] = field(default_factory=dict)

    def with_more(self, kinds: tuple[str, ...], reads: Mapping[str, str]) -> "FrameSource":
        merged = dict(self.reads)
        for table, columns in reads.items():
            merged[table] = f"{merged.get(table, '')} {columns}"
        return FrameSource(self.name, self.build, (*self.kinds, *kinds), merged)


class Frames:
    """The frames that checks share. What several of them use is computed once and kept.

    `empty` are tables that are known to have no rows. With `keep_local` what is kept is held by
    the driver as rows, so that Spark sees while it plans which of it is empty.
    """

    def __init__(
        self,
        journal: DataFrame,
        tables: Mapping[str, DataFrame],
        moment: AuditScope,
        *,
        empty: Collection[str] = (),
        keep_local: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        self.journal = journal
        self.tables = tables
        self.moment = moment
        self.empty = frozenset(empty)
        self.keep_local = keep_local
        self._kept: list[DataFrame] = []
        self._shared: dict[str, DataFrame] = {}
        self._building = threading.RLock()

    @cached_property
    def entries(self) -> DataFrame:
        """Every entry with its verb, its dimensions, and the fields of what Tape itself wrote."""
        own = "kind <> 'event' OR subject LIKE '/tape/event/appended/%'"
        columns = [name for name in self.journal.columns if name != "payload_json"]
        frame = self.journal.where(F.col("global_seq") <= self.moment.head).selectExpr(
            *columns,
            "COALESCE(GET(SPLIT(subject, '/'), 3), '') AS verb",
            "SLICE(SPLIT(subject, '/'), 5, 16) AS dims",
            "TRY_PARSE_JSON(payload_json) IS NOT NULL AS is_json",
            "CASE WHEN kind = 'event' THEN XXHASH64(payload_json) END AS payload_hash",
            f"CASE WHEN {own} THEN FROM_JSON(payload_json, '{PAYLOAD_FIELDS}') END AS p",
        )
        # Values may be large, and to tell whether two are the same their hashes do.
        return self._keep(
            frame.withColumns(
                {
                    "value_hash": F.expr("XXHASH64(p.value.value_json)"),
                    "prev_hash": F.expr("XXHASH64(p.prev_value_json)"),
                    "p": F.col("p").dropFields("value.value_json", "prev_value_json"),
                }
            )
        )

    @cached_property
    def present(self) -> Mapping[str, int]:
        """How many entries there are of each kind, of every kind, and in runs."""
        rows = (
            self.entries.groupBy("kind")
            .agg(F.count("*").alias("entries"), F.expr("COUNT_IF(run_id <> '')").alias("in_runs"))
            .collect()
        )
        return {
            **{row["kind"]: row["entries"] for row in rows},
            EVERY[0]: sum(row["entries"] for row in rows),
            IN_RUNS[0]: sum(row["in_runs"] for row in rows),
        }

    def has_any(self, inputs: FrameSource) -> bool:
        """Whether there is anything of what a check looks at."""
        return any(self.present.get(kind) for kind in inputs.kinds) or any(
            table not in self.empty for table in inputs.reads if table != "journal"
        )

    def has_some(self, names: Collection[str]) -> bool:
        """Whether any of these kinds and tables is not empty."""
        return any(
            self.present.get(name) or (name in self.tables and name not in self.empty)
            for name in names
        )

    @cached_property
    def lines(self) -> DataFrame:
        """Entries of runs, each with how its run stood before it."""
        run = Window.partitionBy("run_id")
        in_order = run.orderBy("seq", "global_seq")
        earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
        is_status = F.expr(f"kind = 'run' AND verb IN {STATUSES}")
        is_grant = F.expr("kind = 'run' AND verb = 'running' AND p.owner <> ''")
        granted = F.expr(
            "STRUCT(p.fencing_token AS token, p.owner AS owner, p.lease_expires_at_ms AS until_ms)"
        )
        own = ("global_seq", "run_id", "seq", "kind", "subject", "ts_ms")
        return self._keep(
            self.entries.where("run_id <> ''").select(
                *own, "verb", "dims", "is_json", "p",
                F.coalesce(is_grant, F.lit(False)).alias("is_grant"),
                F.lag("seq").over(in_order).alias("prev_seq"),
                F.lag("global_seq").over(in_order).alias("prev_global_seq"),
                F.last(F.when(is_status, F.col("verb")), True).over(earlier).alias("status_before"),
                F.last(F.when(is_grant, granted), True).over(earlier).alias("lease_before"),
                (F.min("seq").over(run) == 1).alias("whole"),
                (F.max("global_seq").over(run) <= self.moment.before).alias("quiet"),
            )
        )  # fmt: skip

    def of(self, kind: str) -> DataFrame:
        """The entries of runs of one kind."""
        return self.lines.where(F.col("kind") == kind)

    def entries_of(self, kind: str) -> DataFrame:
        """The entries of one kind, in runs or not."""
        return self.entries.where(F.col("kind") == kind)

    @cached_property
    def settled_runs(self) -> DataFrame:
        """Runs that are whole and quiet, so their rows can be held to their entries."""
        return self._keep(self.lines.where("whole AND quiet").select("run_id").distinct())

    def table(self, name: str) -> DataFrame:
        return self.tables[name]

    def rows_of_settled(self, name: str) -> DataFrame:
        """A table's rows, of runs that are whole and quiet."""
        return self.table(name).join(self.settled_runs, "run_id", "left_semi")

    def get(self, source: FrameSource) -> DataFrame:
        """The frame that a source stands for; built when it is asked for first, and kept."""
        with self._building:
            if source.name not in self._shared:
                built = source.build(self)
                is_kept = source in (ALL_ENTRIES, RUN_LINES) or set(source.reads) == {source.name}
                self._shared[source.name] = built if is_kept else self._keep(built)
            return self._shared[source.name]

    def _keep(self, frame: DataFrame) -> DataFrame:
        if self.keep_local is not None:
            return self.keep_local(frame)
        self._kept.append(frame.persist())
        return self._kept[-1]

    def release(self) -> None:
        for frame in reversed(self._kept):
            frame.unpersist()
        self._kept.clear()
        self._shared.clear()


ALL_ENTRIES: Final = FrameSource(
    "entries", lambda frames: frames.entries, EVERY, {"journal": ENTRY_COLUMNS}
)
RUN_LINES: Final = FrameSource(
    "lines", lambda frames: frames.lines, IN_RUNS, {"journal": ENTRY_COLUMNS}
)


def decoded(place: int) -> str:
    """A dimension as it was before it was made a segment; no segment has a +."""
    dim = f"GET(dims, {place})"
    return f"CASE WHEN {dim} = '_' THEN '' ELSE TRY_URL_DECODE({dim}) END"


def table_source(name: str, columns: str) -> FrameSource:
    """A table as it is."""
    return FrameSource(name, lambda frames: frames.table(name), (), {name: columns})
