"""Checks of timers: set once, fired once, and not before their time."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import QUIET, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, Frames, FrameSource

KINDS: Final = ("timer",)


def _in_order(frames: Frames) -> DataFrame:
    """Entries of timers, each with what came before it."""
    timer = Window.partitionBy("run_id", "timer_id")
    return (
        frames.of("timer")
        .withColumn("timer_id", F.coalesce("p.timer_id", F.lit("")))
        .select(
            "*",
            F.lag("verb").over(timer.orderBy("seq", "global_seq")).alias("prev_verb"),
            F.max(F.expr("CASE WHEN verb = 'set' THEN p.fire_at_ms END")).over(timer)
            .alias("due_ms"),
        )
    )  # fmt: skip


LINES: Final = FrameSource("timer_lines", _in_order, KINDS, {"journal": ENTRY_COLUMNS})

set_twice: Final = RowRule(
    LINES, "verb = 'set' AND prev_verb IS NOT NULL", "CONCAT('it is set again after ', prev_verb)",
    key="timer_id",
)  # fmt: skip
not_set: Final = RowRule(
    LINES, "whole AND verb <> 'set' AND prev_verb IS NULL",
    "CONCAT(verb, ' without having been set')", key="timer_id",
)  # fmt: skip
over_twice: Final = RowRule(
    LINES, "verb <> 'set' AND prev_verb IN ('fired', 'cancelled')",
    "CONCAT(verb, ' after it was ', prev_verb)", key="timer_id",
)  # fmt: skip
fired_early: Final = RowRule(
    LINES, "verb = 'fired' AND ts_ms < COALESCE(due_ms, p.fire_at_ms)",
    "CONCAT('it fired ', COALESCE(due_ms, p.fire_at_ms) - ts_ms, ' ms early')", key="timer_id",
)  # fmt: skip


def rows_differ(frames: Frames) -> DataFrame:
    stand = (
        frames.get(LINES)
        .where("whole AND quiet")
        .groupBy("run_id", "timer_id")
        .agg(
            F.expr("BOOL_OR(verb = 'fired')").alias("has_fired"),
            F.expr("BOOL_OR(verb = 'cancelled')").alias("was_cancelled"),
            F.max("due_ms").alias("due_ms"),
            F.max("p.kind").alias("said_kind"),
            F.max("global_seq").alias("global_seq"),
        )
    )
    rows = frames.rows_of_settled("timers")
    faults = """CASE
        WHEN has_fired IS NULL THEN 'it has a row and no entry'
        WHEN fired IS NULL THEN 'it has no row'
        WHEN fired <> has_fired OR cancelled <> was_cancelled THEN CONCAT(
            'its row says fired ', fired, ', cancelled ', cancelled,
            ', its journal fired ', has_fired, ', cancelled ', was_cancelled)
        WHEN fire_at_ms <> due_ms
            THEN CONCAT('its row is for ', fire_at_ms, ', it was set for ', due_ms)
        WHEN kind <> said_kind THEN CONCAT('its row is of kind ', kind, ', it is ', said_kind)
    END"""
    both = stand.join(rows, ["run_id", "timer_id"], "full").withColumn("fault", F.expr(faults))
    return violation_rows(both.where("fault <> ''"), "fault", key="timer_id")


CHECKS: Final[tuple[Check, ...]] = (
    Check("timer_set_once", "A timer is set once.", set_twice),
    Check("timer_set_first", "A timer is set before it fires or is cancelled.", not_set),
    Check("timer_once", "A timer fires once, or is cancelled.", over_twice),
    Check("timer_not_early", "A timer does not fire before its time.", fired_early),
    Check("timer_row", "A timer's row agrees with its entries.", rows_differ, QUIET,
          kinds=KINDS,
          reads={"journal": ENTRY_COLUMNS,
                 "timers": "run_id timer_id fired cancelled fire_at_ms kind"}),
)  # fmt: skip
