"""How many entries: by window of recording, kind, event type and start of the subject."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tape.pipeline.jobs.rollup.periods import Period, start_of

COUNTS_SCHEMA: Final = (
    "window_start bigint, prefix string, kind string, event_type string, entries bigint"
)
_KEYS: Final = ("window_start", "prefix", "kind", "event_type")


def counts_of(entries: DataFrame, window: Period, depth: int) -> DataFrame:
    """`prefix` is the subject's start: `/tape` and the first `depth` segments behind it."""
    placed = entries.select(
        start_of(F.col("ts_ms"), window.ms).alias("window_start"),
        F.substring_index("subject", "/", depth + 2).alias("prefix"),
        "kind",
        "event_type",
        F.lit(1).cast("bigint").alias("entries"),
    )
    return added_up(placed)


def added_up(counts: DataFrame) -> DataFrame:
    """Counts of parts of a journal make the counts of the whole."""
    return counts.groupBy(*_KEYS).agg(F.sum("entries").alias("entries"))
