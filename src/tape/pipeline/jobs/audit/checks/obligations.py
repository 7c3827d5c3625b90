"""Checks of obligations: registered with an effect, unwound newest first, resolved once."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.model.obligation import ALONE
from tape.pipeline.jobs.audit.check import QUIET, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.checks.effects import EFFECT_LINES
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, Frames, FrameSource

MOVES: Final = {
    "registered": ("committed",),
    "committed": ("committed", "attempted", "compensated", "stuck"),
    "attempted": ("committed",),
    "stuck": ("committed",),
}
_KEY: Final = "CONCAT(effect_key, ' ', owed)"
_STACKED: Final = (
    "is known to be no obligation that stands alone: its row says so, and never changes"
)


KINDS: Final = ("obligation",)
_LEGAL: Final = " OR ".join(
    f"(prev_verb = '{one}' AND verb IN ({', '.join(repr(o) for o in others)}))"
    for one, others in MOVES.items()
)
_JOURNAL: Final = {"journal": ENTRY_COLUMNS}
_ROW: Final = "run_id seq effect_key kind attempts max_attempts status compensator_ref"


def _in_order(frames: Frames) -> DataFrame:
    """Entries of obligations, each with what came before it."""
    obligation = Window.partitionBy("run_id", "number").orderBy("seq", "global_seq")
    return (
        frames.of("obligation")
        .selectExpr(
            "*", "p.obligation_seq AS number", "p.effect_key AS effect_key", "p.kind AS owed"
        )
        .withColumn("prev_verb", F.lag("verb").over(obligation))
    )


LINES: Final = FrameSource("obligation_lines", _in_order, KINDS, _JOURNAL)


def _stacked(frames: Frames) -> DataFrame:
    """The obligations of runs' stacks: when each was registered and when it was compensated.

    That one stands alone only its row tells, so whatever has no row yet is left out.
    """
    rows = frames.table("obligations").where(F.col("below") != ALONE)
    return (
        frames.get(LINES)
        .groupBy("run_id", "number", "effect_key", "owed")
        .agg(
            F.expr("MIN(seq) FILTER (WHERE verb = 'registered')").alias("registered"),
            F.expr("MIN(seq) FILTER (WHERE verb = 'committed')").alias("committed"),
            F.expr("MIN(seq) FILTER (WHERE verb = 'compensated')").alias("compensated"),
            F.expr("MIN(global_seq) FILTER (WHERE verb = 'compensated')").alias("global_seq"),
        )
        .join(
            rows.selectExpr("run_id", "seq AS number"), ["run_id", "number"], "left_semi"
        )
    )  # fmt: skip


STACKS: Final = FrameSource(
    "obligation_stacks", _stacked, KINDS, _JOURNAL | {"obligations": "run_id seq below"}
)


def registered_twice(frames: Frames) -> DataFrame:
    twice = (
        frames.get(LINES)
        .where("verb = 'registered'")
        .groupBy("run_id", "effect_key", "owed")
        .agg(F.count("*").alias("times"), F.max("global_seq").alias("global_seq"))
        .where("times > 1")
    )
    return violation_rows(twice, "CONCAT('it was registered ', times, ' times')", key=_KEY)


not_registered: Final = RowRule(
    LINES,
    """(whole AND prev_verb IS NULL AND verb <> 'registered')
        OR (verb = 'registered' AND seq <> number)""",
    "CONCAT(verb, ' as number ', number, ' at seq ', seq)",
    key=_KEY,
)


def without_effect(frames: Frames) -> DataFrame:
    confirmed = (
        frames.get(EFFECT_LINES)
        .where("after = 'confirmed'")
        .selectExpr("run_id", "key AS effect_key", "seq AS confirmed")
    )
    registered = frames.get(LINES).where("whole AND verb = 'registered'").alias("o")
    here = ["run_id", "effect_key"]
    odd = registered.join(
        confirmed.alias("c"),
        F.expr("o.run_id = c.run_id AND o.effect_key = c.effect_key AND c.confirmed < o.seq"),
        "left_anti",
    ).select("global_seq", "owed", *here)
    return violation_rows(odd, "'it was registered for an effect that was not confirmed'", key=_KEY)


illegal_moves: Final = RowRule(
    LINES,
    f"prev_verb NOT IN ('compensated') AND verb <> 'registered' AND NOT ({_LEGAL})",
    "CONCAT(verb, ' follows ', prev_verb)",
    key=_KEY,
)


compensated_before: Final = RowRule(
    LINES,
    "prev_verb = 'compensated'",
    "CONCAT(verb, ' after it was compensated')",
    key=_KEY,
)


def out_of_turn(frames: Frames) -> DataFrame:
    stacks = frames.get(STACKS)
    newer = stacks.selectExpr(
        "run_id", "number AS newer", "registered AS since", "compensated AS until"
    )
    odd = (
        stacks.where("compensated IS NOT NULL")
        .join(newer, "run_id")
        .where(
            """newer > number AND since < compensated
            AND (until IS NULL OR until > compensated)"""
        )
        .groupBy("run_id", "number", "effect_key", "owed", "global_seq")
        .agg(F.max("newer").alias("newer"))
    )
    return violation_rows(odd, "CONCAT('it was compensated before obligation ', newer)", key=_KEY)


def unwound_while_open(frames: Frames) -> DataFrame:
    stacked = frames.get(STACKS).select("run_id", "number")
    odd = (
        frames.get(LINES)
        .where("verb = 'committed' AND status_before <> 'compensating'")
        .join(stacked, ["run_id", "number"], "left_semi")
    )
    return violation_rows(
        odd, "CONCAT('it was taken up while the run was ', status_before)", key=_KEY
    )


def left_behind(frames: Frames) -> DataFrame:
    ended = (
        frames.of("run")
        .where("verb IN ('failed', 'cancelled')")
        .selectExpr("run_id", "seq AS ended", "global_seq AS ended_at", "verb AS ending")
    )
    odd = (
        frames.get(STACKS)
        .join(ended, "run_id")
        .where("registered < ended AND (compensated IS NULL OR compensated > ended)")
    )
    words = "CONCAT('its run has ', ending, ' at seq ', ended, ' and it was not unwound')"
    return violation_rows(odd, words, key=_KEY, global_seq="ended_at")


def rows_differ(frames: Frames) -> DataFrame:
    newest = Window.partitionBy("run_id", "number").orderBy(F.desc("seq"), F.desc("global_seq"))
    stand = (
        frames.get(LINES)
        .where("whole AND quiet")
        .withColumn("place", F.row_number().over(newest))
        .where("place = 1")
        .selectExpr(
            "p.compensator_ref AS compensator",
            "run_id", "number", "global_seq", "effect_key", "owed", "p.attempts AS attempts",
            "CASE verb WHEN 'registered' THEN 'pending' WHEN 'attempted' THEN 'pending' "
            "ELSE verb END AS now",
        )
    )  # fmt: skip
    rows = frames.rows_of_settled("obligations").selectExpr(
        "run_id", "seq AS number", "effect_key AS row_key", "kind AS row_kind",
        "attempts AS row_attempts", "max_attempts", "compensator_ref",
        "GET(ARRAY('', 'pending', 'committed', 'compensated', 'stuck'), CAST(status AS INT)) "
        "AS row_now",
    )  # fmt: skip
    faults = """CASE
        WHEN now IS NULL THEN CONCAT('its row says ', row_now, ', its journal nothing')
        WHEN row_now IS NULL THEN 'it has no row'
        WHEN row_now <> now THEN CONCAT('its row says ', row_now, ', its journal ', now)
        WHEN row_attempts <> attempts
            THEN CONCAT('its row says ', row_attempts, ' attempts, its journal ', attempts)
        WHEN row_attempts > max_attempts
            THEN CONCAT('it was tried ', row_attempts, ' times of ', max_attempts)
        WHEN row_key <> effect_key OR row_kind <> owed
            THEN CONCAT('its row is of ', row_key, ' ', row_kind)
        WHEN compensator_ref <> compensator
            THEN CONCAT('its row names ', compensator_ref, ', its journal ', compensator)
    END"""
    both = stand.join(rows, ["run_id", "number"], "full").withColumn("fault", F.expr(faults))
    key = "CONCAT(COALESCE(effect_key, row_key), ' ', COALESCE(owed, row_kind))"
    return violation_rows(both.where("fault <> ''"), "fault", key=key)


def tops_differ(frames: Frames) -> DataFrame:
    unresolved = (
        frames.rows_of_settled("obligations")
        .where(f"status <> 3 AND below <> {ALONE}")
        .groupBy("run_id")
        .agg(F.max("seq").alias("top"))
    )
    runs = frames.rows_of_settled("runs").select("run_id", "top_obligation")
    odd = runs.join(unresolved, "run_id", "left").where("top_obligation <> COALESCE(top, 0)")
    words = (
        "CONCAT('its row names obligation ', top_obligation, ' as the newest, it is ', "
        "COALESCE(top, 0))"
    )
    return violation_rows(odd, words, global_seq="0")


CHECKS: Final[tuple[Check, ...]] = (
    Check("obligation_once", "An effect has one obligation of a kind.", registered_twice,
          reads=_JOURNAL, kinds=KINDS),
    Check("obligation_registered", "An obligation is registered before it has any other status.",
          not_registered),
    # Whoever writes to the server directly may register one for what it likes.
    Check("obligation_of_effect", "An obligation is registered with a confirmed effect.",
          without_effect, severity="warning", reads=_JOURNAL, kinds=(*KINDS, "effect")),
    Check("obligation_moves", "An obligation changes its status only as allowed.", illegal_moves),
    Check("obligation_resolved_once", "An obligation that is compensated does not change.",
          compensated_before),
    Check("obligation_order", "Obligations are unwound last in, first out.", out_of_turn, _STACKED,
          reads=STACKS.reads, kinds=KINDS),
    Check("obligation_when", "Obligations are unwound while their run is compensating.",
          unwound_while_open, _STACKED, reads=STACKS.reads, kinds=KINDS),
    Check("obligation_unwound", "A run that failed or was cancelled has unwound its obligations.",
          left_behind, _STACKED, reads=STACKS.reads, kinds=(*KINDS, "run")),
    Check("obligation_row", "An obligation's row agrees with its entries.", rows_differ,
          QUIET, reads=_JOURNAL | {"obligations": _ROW}, kinds=KINDS),
    Check("obligation_top", "A run's row names its newest unresolved obligation.", tops_differ,
          QUIET, reads=_JOURNAL | {"obligations": "run_id seq status below",
                                   "runs": "run_id top_obligation"}),
)  # fmt: skip
