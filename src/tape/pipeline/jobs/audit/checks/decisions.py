"""Checks of decisions: each ordinal once, none left out, and the index of them agrees."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import QUIET, Check, violation_rows
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, Frames

KINDS: Final = ("decision",)
_KEY: Final = "CAST(decision_index AS STRING)"
_JOURNAL: Final = {"journal": ENTRY_COLUMNS}


def _decisions(frames: Frames) -> DataFrame:
    return frames.of("decision").withColumn("decision_index", F.col("p.decision_index"))


def repeated(frames: Frames) -> DataFrame:
    twice = (
        _decisions(frames)
        .groupBy("run_id", "decision_index")
        .agg(F.count("*").alias("times"), F.max("global_seq").alias("global_seq"))
        .where("times > 1")
    )
    return violation_rows(twice, "CONCAT('it was recorded ', times, ' times')", key=_KEY)


def left_out(frames: Frames) -> DataFrame:
    by_index = Window.partitionBy("run_id").orderBy("decision_index")
    odd = (
        _decisions(frames)
        .where("whole")
        .withColumn("prev", F.coalesce(F.lag("decision_index").over(by_index), F.lit(-1)))
        .where("decision_index > prev + 1")
    )
    return violation_rows(odd, "CONCAT('decision ', prev + 1, ' is missing')", key=_KEY)


def rows_differ(frames: Frames) -> DataFrame:
    recorded = (
        _decisions(frames)
        .where("whole AND quiet")
        .groupBy("run_id", "decision_index")
        .agg(F.min("seq").alias("seq"), F.min("global_seq").alias("global_seq"))
    )
    rows = frames.rows_of_settled("decisions").select(
        "run_id",
        F.col("decision_index").cast("bigint").alias("decision_index"),
        F.col("seq").alias("row_seq"),
    )
    odd = recorded.join(rows, ["run_id", "decision_index"], "full").where("NOT (seq <=> row_seq)")
    words = (
        "CONCAT('its row names seq ', COALESCE(row_seq, 0), ', it is at ', COALESCE(seq, 0))"
    )  # fmt: skip
    return violation_rows(odd, words, key=_KEY)


CHECKS: Final[tuple[Check, ...]] = (
    Check("decision_once", "A decision is recorded once.", repeated, reads=_JOURNAL,
          kinds=KINDS),
    # A client may count as it likes; one that replays by ordinal leaves none out.
    Check("decision_contiguous", "Decisions are numbered from 0 without a gap.", left_out,
          severity="warning", reads=_JOURNAL, kinds=KINDS),
    Check("decision_row", "The index of decisions names where each is.", rows_differ, QUIET,
          reads=_JOURNAL | {"decisions": "run_id decision_index seq"}, kinds=KINDS),
)  # fmt: skip
