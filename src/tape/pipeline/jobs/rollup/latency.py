"""Percentiles of latencies that can be added to: from a histogram, not from the samples.

Below 2,048 ms every millisecond is a bucket of its own, so percentiles are exact; above, eleven
binary digits are kept and a percentile is at most 0.1 % too low. The maximum is always exact.
Percentiles are of the nearest rank: a value that really occurred, to that precision.
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
