"""Percentiles of latencies that can be added to: from a histogram, not from the samples.

Below 2,048 ms every millisecond is a bucket of its own, so percentiles are exact; above, eleven
binary digits are kept and a percentile is at most 0.1 % too low. The maximum is always exact.
Percentiles are of the nearest rank: a value that really occurred, to that precision.

Runs and effects take from the entry that begins one to the entry that ends it. What has begun and
not ended is carried from one increment to the next.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.rollup.periods import Period, start_of

SAMPLES_SCHEMA: Final = "of string, name string, at_ms bigint, latency_ms bigint"
"""`of` is what took the time: `event`, `run` or `effect`; `name` its event type, app or tool."""
HISTOGRAM_SCHEMA: Final = (
    "window_start bigint, of string, name string, bucket bigint, samples bigint, max_ms bigint"
)
LATENCY_SCHEMA: Final = (
    "window_start bigint, of string, name string, samples bigint, "
    "p50_ms bigint, p90_ms bigint, p99_ms bigint, max_ms bigint"
)
_KEYS: Final = ("window_start", "of", "name")
_DIGITS: Final = 11
MARKS_SCHEMA: Final = "of string, id string, name string, begun_ms bigint, ended_ms bigint"
_BEGIN: Final = ("run/runnable", "run/running", "effect/pending")
_END: Final = ("run/terminal", "run/failed", "run/cancelled", "effect/confirmed", "effect/failed")


def marks_of(entries: DataFrame) -> DataFrame:
    """The beginnings and ends among the entries. An effect ends when its outcome is settled."""
    verb = F.concat_ws("/", "kind", F.split("subject", "/")[3])
    key = F.get_json_object("payload_json", "$.idempotency_key")
    return (
        entries.where(F.col("kind").isin("run", "effect"))
        .select("kind", "run_id", "payload_json", "subject", "ts_ms", verb.alias("verb"))
        .where(F.col("verb").isin(*_BEGIN, *_END))
        .select(
            F.col("kind").alias("of"),
            F.when(F.col("kind") == "run", F.col("run_id")).otherwise(key).alias("id"),
            F.url_decode(F.split("subject", "/")[4]).alias("name"),
            F.when(F.col("verb").isin(*_BEGIN), F.col("ts_ms")).alias("begun_ms"),
            F.when(F.col("verb").isin(*_END), F.col("ts_ms")).alias("ended_ms"),
        )
    )


def paired(marks: DataFrame) -> DataFrame:
    """One row for each run or effect: from its first beginning to its first end."""
    return marks.groupBy("of", "id", "name").agg(
        F.min("begun_ms").alias("begun_ms"), F.min("ended_ms").alias("ended_ms")
    )


def still_open(pairs: DataFrame) -> DataFrame:
    return pairs.where("ended_ms IS NULL")


def samples_of(pairs: DataFrame) -> DataFrame:
    """What ended, as latencies. An end whose beginning was never seen says nothing."""
    ended = pairs.where("begun_ms IS NOT NULL AND ended_ms IS NOT NULL")
    return ended.select(
        "of",
        "name",
        F.col("ended_ms").alias("at_ms"),
        (F.col("ended_ms") - F.col("begun_ms")).alias("latency_ms"),
    )


def recording_latency(entries: DataFrame) -> DataFrame:
    """How long after it happened each event was recorded."""
    return entries.where("kind = 'event'").select(
        F.lit("event").alias("of"),
        F.col("event_type").alias("name"),
        F.col("ts_ms").alias("at_ms"),
        (F.col("ts_ms") - F.col("occurred_at_ms")).alias("latency_ms"),
    )


def histogram_of(samples: DataFrame, window: Period) -> DataFrame:
    placed = samples.select(
        start_of(F.col("at_ms"), window.ms).alias("window_start"),
        "of",
        "name",
        _bucket(F.col("latency_ms")).alias("bucket"),
        F.lit(1).cast("bigint").alias("samples"),
        F.col("latency_ms").alias("max_ms"),
    )
    return added_up(placed)


def added_up(histograms: DataFrame) -> DataFrame:
    return histograms.groupBy(*_KEYS, "bucket").agg(
        F.sum("samples").alias("samples"), F.max("max_ms").alias("max_ms")
    )


def percentiles_of(histogram: DataFrame) -> DataFrame:
    group = Window.partitionBy(*_KEYS)
    ranked = histogram.select(
        *_KEYS,
        "bucket",
        "samples",
        "max_ms",
        F.sum("samples").over(group.orderBy("bucket")).alias("upto"),
        F.sum("samples").over(group).alias("of_all"),
    )

    def percentile(hundredths: int) -> Column:
        # The rank is rounded up in whole numbers: 0.9 * 10 is more than 9 in doubles.
        reached = F.col("upto") * 100 >= F.col("of_all") * hundredths
        return F.min(F.when(reached, F.col("bucket"))).alias(f"p{hundredths}_ms")

    return ranked.groupBy(*_KEYS).agg(
        F.sum("samples").alias("samples"),
        percentile(50),
        percentile(90),
        percentile(99),
        F.max("max_ms").alias("max_ms"),
    )


def _bucket(latency_ms: Column) -> Column:
    """Towards zero to eleven binary digits; the sign stays: clocks of producers can be ahead."""
    size = F.abs(latency_ms)
    excess = F.greatest(F.length(F.bin(size)) - _DIGITS, F.lit(0))
    kept = F.call_function("shiftleft", F.call_function("shiftright", size, excess), excess)
    return F.when(latency_ms < 0, -kept).otherwise(kept)
