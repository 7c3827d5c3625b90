"""Checks of gates: a run comes to one once, and the first word counts."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import QUIET, Check, violation_rows
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, Frames

KINDS: Final = ("gate",)
_JOURNAL: Final = {"journal": ENTRY_COLUMNS}


def _repeated(frames: Frames, verb: str) -> DataFrame:
    twice = (
        frames.of("gate")
        .where(F.col("verb") == verb)
        .groupBy("run_id", F.col("p.gate_name").alias("gate"))
        .agg(F.count("*").alias("times"), F.max("global_seq").alias("global_seq"))
        .where("times > 1")
    )
    return violation_rows(twice, f"CONCAT('it is {verb} ', times, ' times')", key="gate")


def awaited_twice(frames: Frames) -> DataFrame:
    return _repeated(frames, "waiting")


def released_twice(frames: Frames) -> DataFrame:
    return _repeated(frames, "released")


def rows_differ(frames: Frames) -> DataFrame:
    stand = (
        frames.of("gate")
        .where("whole AND quiet")
        .groupBy("run_id", F.col("p.gate_name").alias("gate"))
        .agg(
            F.expr("BOOL_OR(verb = 'waiting')").alias("waiting"),
            F.expr("BOOL_OR(verb = 'released')").alias("opened"),
            F.max("global_seq").alias("global_seq"),
        )
    )
    rows = frames.rows_of_settled("gates").selectExpr(
        "run_id", "gate_name AS gate", "awaited", "released"
    )
    faults = """CASE
        WHEN waiting IS NULL THEN 'it has a row and no entry'
        WHEN awaited IS NULL THEN 'it has no row'
        WHEN awaited <> waiting OR released <> opened THEN CONCAT(
            'its row says awaited ', awaited, ', released ', released,
            ', its journal awaited ', waiting, ', released ', opened)
    END"""
    both = stand.join(rows, ["run_id", "gate"], "full").withColumn("fault", F.expr(faults))
    return violation_rows(both.where("fault <> ''"), "fault", key="gate")


CHECKS: Final[tuple[Check, ...]] = (
    Check("gate_awaited_once", "A run waits at a gate once.", awaited_twice, reads=_JOURNAL,
          kinds=KINDS),
    Check("gate_released_once", "A gate is released once.", released_twice, reads=_JOURNAL,
          kinds=KINDS),
    Check("gate_row", "A gate's row agrees with its entries.", rows_differ, QUIET,
          reads=_JOURNAL | {"gates": "run_id gate_name awaited released"}, kinds=KINDS),
)  # fmt: skip
