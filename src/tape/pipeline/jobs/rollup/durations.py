"""How long runs and effects took: the entry that begins one and the one that ends it, as a pair.

What has begun and not ended is carried from one increment to the next.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

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
