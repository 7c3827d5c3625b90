"""One increment of each kind: what is new on the journal, added to the tables there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tape.errors import InvalidArgument
from tape.pipeline.jobs.rollup import counts, klines, latency
from tape.pipeline.jobs.rollup.bars import BARS_SCHEMA, bars_of, dated
from tape.pipeline.jobs.rollup.periods import Period, day_of
from tape.pipeline.jobs.rollup.tables import DraftVersion, RollupTables

DAY = "day"
_TIMED = ("kind", "subject", "event_type", "run_id", "ts_ms", "occurred_at_ms", "payload_json")


class Roll(Protocol):
    """`settings` are what the tables depend on: others need tables of their own."""

    name: ClassVar[str]

    @property
    def settings(self) -> dict[str, object]: ...

    def advance(
        self, spark: SparkSession, entries: DataFrame, draft: DraftVersion
    ) -> dict[str, int]:
        """Write what the entries change; how much that was."""


@dataclass(frozen=True, slots=True)
class Counts:
    name: ClassVar[str] = "counts"
    window: Period
    depth: int

    @property
    def settings(self) -> dict[str, object]:
        return {"window": self.window.name, "depth": self.depth}

    def advance(
        self, spark: SparkSession, entries: DataFrame, draft: DraftVersion
    ) -> dict[str, int]:
        fresh = counts.counts_of(entries, self.window, self.depth).cache()
        days = _days(fresh, "window_start")
        if days:
            before = draft.read(spark, "counts", counts.COUNTS_SCHEMA, days)
            merged = counts.added_up(before.unionByName(fresh))
            draft.write("counts", _by_day(merged, "window_start"), days, DAY)
        fresh.unpersist()
        return {"count_days": len(days)}


@dataclass(frozen=True, slots=True)
class Latency:
    name: ClassVar[str] = "latency"
    window: Period

    @property
    def settings(self) -> dict[str, object]:
        return {"window": self.window.name}

    def advance(
        self, spark: SparkSession, entries: DataFrame, draft: DraftVersion
    ) -> dict[str, int]:
        # Read once and held: Spark 4.3 shares what it pushed into a source between all queries on
        # one frame, so a second filter would get the first one's rows.
        seen = entries.where(F.col("kind").isin("event", "run", "effect")).select(*_TIMED).cache()
        begun = draft.read(spark, "open", latency.MARKS_SCHEMA)
        pairs = latency.paired(begun.unionByName(latency.marks_of(seen)))
        draft.write_one("open", "all", latency.still_open(pairs))
        samples = latency.recording_latency(seen).unionByName(latency.samples_of(pairs))
        fresh = latency.histogram_of(samples, self.window).cache()
        days = _days(fresh, "window_start")
        if days:
            before = draft.read(spark, "histogram", latency.HISTOGRAM_SCHEMA, days)
            merged = latency.added_up(before.unionByName(fresh))
            draft.write("histogram", _by_day(merged, "window_start"), days, DAY)
            whole = draft.read_written(spark, "histogram", latency.HISTOGRAM_SCHEMA)
            rows = latency.percentiles_of(whole)
            draft.write("latency", _by_day(rows, "window_start"), days, DAY)
        fresh.unpersist()
        seen.unpersist()
        return {"latency_days": len(days)}


@dataclass(frozen=True, slots=True)
class Bars:
    name: ClassVar[str] = "bars"
    base: Period
    periods: tuple[Period, ...]
    event_prefix: str

    @property
    def settings(self) -> dict[str, object]:
        names = [period.name for period in self.periods]
        return {"base": self.base.name, "to": names, "events": self.event_prefix}

    def advance(
        self, spark: SparkSession, entries: DataFrame, draft: DraftVersion
    ) -> dict[str, int]:
        events = klines.kline_events(entries, self.event_prefix)
        judged = klines.judge(events, self.base).cache()
        good = F.col("reason").isNull()
        found = judged.agg(
            F.count_if(good).alias("good"),
            F.count_if(~good).alias("bad"),
            F.collect_set(F.when(good, day_of(F.col("open_time")))).alias("days"),
        ).collect()[0]
        if found.bad:
            draft.write_one("rejected", f"{draft.number:08d}", klines.rejected(judged))
        changed = self._advance(spark, judged, draft, found.days) if found.good else 0
        judged.unpersist()
        return {"klines": found.good, "rejected": found.bad, "bars_changed": changed}

    def _advance(
        self, spark: SparkSession, judged: DataFrame, draft: DraftVersion, days: Sequence[str]
    ) -> int:
        before = draft.read(spark, "klines", klines.KLINES_SCHEMA, days)
        merged = klines.latest(before.unionByName(klines.accepted(judged)))
        draft.write("klines", _by_day(merged, "open_time"), days, DAY)

        # The day is what is written anew, so all its bars are made; `dated` tells which differ.
        whole = draft.read_written(spark, "klines", klines.KLINES_SCHEMA)
        made = bars_of(whole, self.base, self.periods)
        bars = dated(made, draft.read(spark, "bars", BARS_SCHEMA, days), draft.upto)
        draft.write("bars", _by_day(bars, "open_time"), days, DAY)
        written = draft.read_written(spark, "bars", BARS_SCHEMA)
        return written.where(F.col("changed_at") == draft.upto).count()


def _days(frame: DataFrame, time_ms: str) -> list[str]:
    found = frame.agg(F.collect_set(day_of(F.col(time_ms))).alias("days")).collect()
    days: list[str] = found[0].days
    return days


def _by_day(frame: DataFrame, time_ms: str) -> DataFrame:
    return frame.withColumn(DAY, day_of(F.col(time_ms)))


ROLLUP_TABLES: Final = {
    "counts": ("counts", counts.COUNTS_SCHEMA),
    "latency": ("latency", latency.LATENCY_SCHEMA),
    "histogram": ("latency", latency.HISTOGRAM_SCHEMA),
    "bars": ("bars", BARS_SCHEMA),
    "klines": ("bars", klines.KLINES_SCHEMA),
    "rejected": ("bars", klines.REJECTED_SCHEMA),
}


def rollup(spark: SparkSession, out: str | Path, table: str) -> DataFrame:
    """Read one of the tables under `out`, as it was published last; empty if there is none yet."""
    if table not in ROLLUP_TABLES:
        raise InvalidArgument(f"{table!r} is not one of {', '.join(ROLLUP_TABLES)}", field="table")
    folder, schema = ROLLUP_TABLES[table]
    return RollupTables(Path(out) / folder).read(spark, table, schema)
