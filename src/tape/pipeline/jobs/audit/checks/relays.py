"""Checks of relays: whose turn it was to lead."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import BOUNDS, Check, violation_rows
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, Frames

KINDS: Final = ("relay",)
_JOURNAL: Final = {"journal": ENTRY_COLUMNS}


def _elected(frames: Frames) -> DataFrame:
    return frames.entries_of("relay").where("verb = 'elected'")


def terms_out_of_order(frames: Frames) -> DataFrame:
    relay = Window.partitionBy("p.relay").orderBy("global_seq")
    elected = _elected(frames).withColumn("term_before", F.lag("p.term").over(relay))
    odd = elected.where("p.term <> term_before + 1")
    return violation_rows(
        odd, "CONCAT('term ', p.term, ' after term ', term_before)", key="p.relay"
    )


def rows_differ(frames: Frames) -> DataFrame:
    """A row's term is no lower than what was elected before it was read, and its owner's."""
    before, whole = frames.moment.before, frames.moment.is_whole
    told_of = (
        _elected(frames)
        .groupBy(F.col("p.relay").alias("relay"))
        .agg(
            F.expr(f"MAX(p.term) FILTER (WHERE global_seq <= {before})").alias("least"),
            F.max("p.term").alias("most"),
            F.expr("COLLECT_SET(STRUCT(p.term AS term, p.owner AS owner))").alias("elected"),
            F.max("global_seq").alias("global_seq"),
        )
    )
    faults = f"""CASE
        WHEN term IS NULL AND least IS NOT NULL THEN 'it was elected and has no row'
        WHEN most IS NULL AND {whole} THEN 'it has a row and was never elected'
        WHEN term < least THEN CONCAT('its row is at term ', term, ', its journal at ', least)
        WHEN term > most AND {whole}
            THEN CONCAT('its row is at term ', term, ', its journal at ', most)
        WHEN EXISTS(elected, one -> one.term = term)
            AND NOT EXISTS(elected, one -> one.term = term AND one.owner = owner)
            THEN CONCAT(owner, ' was not elected for term ', term)
    END"""
    both = told_of.join(frames.table("relays"), "relay", "full").withColumn("fault", F.expr(faults))
    return violation_rows(both.where("fault <> ''"), "fault", key="relay", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("relay_terms", "The terms of a relay go up by one.", terms_out_of_order, reads=_JOURNAL,
          kinds=KINDS),
    Check("relay_row", "A relay's row has the term and the owner that were elected last.",
          rows_differ, BOUNDS, reads=_JOURNAL | {"relays": "relay term owner"}, kinds=KINDS),
)  # fmt: skip
