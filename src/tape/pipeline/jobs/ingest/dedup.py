"""Dropping repeats before the journal sees them; the journal's own key decides in the end."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def drop_repeats(checked: DataFrame, window: str) -> DataFrame:
    """Without events whose key came within the window before; what is no event stays.

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
