"""Checks of effects: begun once, settled once, and never repeated unseen."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import QUIET, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, Frames, FrameSource

_STATUS: Final = """CASE
    WHEN verb IN ('pending', 'confirmed', 'failed', 'unknown') THEN verb
    WHEN verb = 'reconciled' THEN p.status
    WHEN verb = 'stuck' THEN 'unknown'
END"""
"""What an entry makes of its effect; a claim or an attempt leaves it as it is."""
SETTLED: Final = "('confirmed', 'failed')"


KINDS: Final = ("effect",)
_BEGUN: Final = ("semantics", "connector", "business_key", "call_index")
"""What only the entry says with which an effect begins."""
_ROW: Final = (
    "run_id idempotency_key seq tool_name status dispatch_mode semantics decision_index call_index "
    "connector business_key"
)


def _effect_lines(frames: Frames) -> DataFrame:
    """Entries of effects, each with how its effect stood before it."""
    effect = Window.partitionBy("run_id", "key")
    in_order = effect.orderBy("seq", "global_seq")
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    return (
        frames.of("effect")
        .withColumns({"key": F.coalesce("p.idempotency_key", F.lit("")), "after": F.expr(_STATUS)})
        .select(
            "*",
            F.last("after", True).over(earlier).alias("was"),
            F.lag("verb").over(in_order).alias("prev_verb"),
            F.max("p.dispatch_mode").over(effect).alias("mode"),
            *(F.max(f"p.{name}").over(effect).alias(name) for name in _BEGUN),
        )
    )


EFFECT_LINES: Final = FrameSource("effect_lines", _effect_lines, KINDS, {"journal": ENTRY_COLUMNS})


begun_twice: Final = RowRule(
    EFFECT_LINES,
    "verb = 'pending' AND prev_verb IS NOT NULL",
    "CONCAT('it is begun again after ', prev_verb)",
    key="key",
)


not_begun: Final = RowRule(
    EFFECT_LINES,
    "whole AND prev_verb IS NULL AND verb <> 'pending'",
    "CONCAT(verb, ' without having been pending')",
    key="key",
)


confirmed_twice: Final = RowRule(
    EFFECT_LINES,
    "after = 'confirmed' AND was = 'confirmed'",
    "'it is confirmed again'",
    key="key",
)


unsettled: Final = RowRule(
    EFFECT_LINES,
    f"""was IN {SETTLED} AND verb <> 'pending'
        AND NOT (was = 'confirmed' AND COALESCE(after, '') = 'confirmed')""",
    "CONCAT(verb, ' after it was ', was)",
    key="key",
)


settled_unseen: Final = RowRule(
    EFFECT_LINES,
    f"was = 'unknown' AND verb IN {SETTLED}",
    "CONCAT(verb, ' while it was unknown, without an observation')",
    key="key",
)


settled_unclaimed: Final = RowRule(
    EFFECT_LINES,
    """prev_verb <> 'claimed' AND COALESCE(was, '') NOT IN ('confirmed', 'failed')
        AND (verb IN ('reconciled', 'attempted', 'stuck')
            OR (verb = 'confirmed' AND was = 'pending' AND mode = 'outbox'))""",
    "CONCAT(verb, ' after ', prev_verb, ', with no claim')",
    key="key",
)


inline_without_lease: Final = RowRule(
    EFFECT_LINES,
    """verb = 'confirmed' AND mode = 'inline' AND was = 'pending'
        AND status_before <> 'running'""",
    "CONCAT('confirmed inline while the run was ', status_before)",
    key="key",
)


not_idempotent_inline: Final = RowRule(
    EFFECT_LINES,
    "verb = 'pending' AND p.semantics = 'non_idempotent' AND p.dispatch_mode <> 'outbox'",
    "CONCAT('it is not idempotent and dispatched ', p.dispatch_mode)",
    key="key",
)


repeated_blindly: Final = RowRule(
    EFFECT_LINES,
    """semantics = 'non_idempotent' AND verb = 'claimed' AND prev_verb = 'claimed'
        AND was = 'pending'""",
    "'it was dispatched again, and nobody had looked what happened'",
    key="key",
)


def business_keys_repeated(frames: Frames) -> DataFrame:
    begun = frames.of("effect").where("verb = 'pending' AND p.business_key <> ''")
    twice = (
        begun.groupBy("p.connector", "p.business_key")
        .agg(
            F.countDistinct("run_id", "p.idempotency_key").alias("effects"),
            F.max("global_seq").alias("global_seq"),
            F.max_by("run_id", "global_seq").alias("run_id"),
        )
        .where("effects > 1")
    )
    key = "CONCAT(connector, '/', business_key)"
    return violation_rows(twice, "CONCAT(effects, ' effects have this business key')", key=key)


def rows_differ(frames: Frames) -> DataFrame:
    newest = Window.partitionBy("run_id", "key").orderBy(F.desc("seq"), F.desc("global_seq"))
    stand = (
        frames.get(EFFECT_LINES)
        .where("whole AND quiet")
        .select(
            "*", F.coalesce("after", "was").alias("now"),
            F.min(F.expr("CASE WHEN verb = 'pending' THEN seq END"))
            .over(Window.partitionBy("run_id", "key")).alias("begun"),
            F.row_number().over(newest).alias("place"),
        )
        .where("place = 1")
        .selectExpr("run_id", "key", "global_seq", "now", "begun", "p.tool_name AS tool",
                    "mode AS dispatch", "TRUE AS written",
                    "STRUCT(semantics, connector, business_key, call_index, "
                    "p.decision_index AS decision_index) AS said")
    )  # fmt: skip
    rows = frames.rows_of_settled("effects").selectExpr(
        "run_id", "idempotency_key AS key", "seq AS row_seq", "tool_name AS row_tool",
        "GET(ARRAY('', 'pending', 'confirmed', 'failed', 'unknown'), CAST(status AS INT)) "
        "AS row_now",
        "GET(ARRAY('', 'inline', 'outbox'), CAST(dispatch_mode AS INT)) AS row_dispatch",
        "STRUCT(GET(ARRAY('', 'idempotent', 'non_idempotent', 'observe_only'), "
        "CAST(semantics AS INT)) AS semantics, connector, business_key, call_index, "
        "decision_index) AS row_said",
    )  # fmt: skip
    faults = """CASE
        WHEN written IS NULL THEN CONCAT('its row says ', row_now, ', its journal nothing')
        WHEN row_now IS NULL THEN 'it has no row'
        WHEN row_now <> now THEN CONCAT('its row says ', row_now, ', its journal ', now)
        WHEN row_seq <> begun THEN CONCAT('its row names seq ', row_seq, ', it began at ', begun)
        WHEN row_tool <> tool THEN CONCAT('its row names ', row_tool, ', its journal ', tool)
        WHEN row_dispatch <> dispatch
            THEN CONCAT('its row says ', row_dispatch, ', its journal ', dispatch)
        WHEN row_said <> said
            THEN CONCAT('its row says ', TO_JSON(row_said), ', its journal ', TO_JSON(said))
    END"""
    both = stand.join(rows, ["run_id", "key"], "full").withColumn("fault", F.expr(faults))
    return violation_rows(both.where("fault <> ''"), "fault", key="key")


def business_keys_differ(frames: Frames) -> DataFrame:
    """A key is kept for good, so that no other effect can have it."""
    begun = (
        frames.of("effect")
        .where("whole AND quiet AND verb = 'pending' AND p.business_key <> ''")
        .selectExpr("p.connector AS connector", "p.business_key AS business_key", "global_seq",
                    "run_id AS of_run", "p.idempotency_key AS of_effect")
    )  # fmt: skip
    rows = frames.rows_of_settled("business_keys")
    faults = """CASE
        WHEN of_run IS NULL THEN CONCAT('it has a row for ', idempotency_key, ' and no entry')
        WHEN run_id IS NULL THEN CONCAT('it has no row, and belongs to ', of_effect)
        WHEN run_id <> of_run OR idempotency_key <> of_effect
            THEN CONCAT('its row names ', idempotency_key, ', it belongs to ', of_effect)
    END"""
    both = begun.join(rows, ["connector", "business_key"], "full").selectExpr(
        "*", f"{faults} AS fault"
    )
    key = "CONCAT(connector, '/', business_key)"
    return violation_rows(
        both.where("fault <> ''"), "fault", key=key, run_id="COALESCE(of_run, run_id)"
    )


CHECKS: Final[tuple[Check, ...]] = (
    Check("effect_begun_once", "An effect is started once.", begun_twice),
    Check("effect_begun_first", "An effect is pending before it has any other status.", not_begun),
    Check("effect_confirmed_once", "An effect is confirmed once at most.", confirmed_twice),
    Check("effect_settled", "An effect that is confirmed or has failed does not change.",
          unsettled),
    Check("effect_observed", "An unknown effect is settled only by an observation.",
          settled_unseen),
    Check("effect_claimed", "The outbox and the reconciler write only under a claim.",
          settled_unclaimed),
    Check("effect_under_lease", "Only the holder of the run's lease confirms an inline effect.",
          inline_without_lease),
    Check("effect_by_outbox", "An effect that is not idempotent goes through the outbox.",
          not_idempotent_inline),
    Check("effect_not_repeated",
          "An effect that is not idempotent is not dispatched again unchecked.", repeated_blindly),
    Check("effect_business_key", "A business key of a connector belongs to one effect.",
          business_keys_repeated, reads=EFFECT_LINES.reads, kinds=KINDS),
    Check("effect_key_row", "A business key's row names the effect that it belongs to.",
          business_keys_differ, QUIET, kinds=KINDS,
          reads={**EFFECT_LINES.reads,
                 "business_keys": "connector business_key run_id idempotency_key"}),
    Check("effect_row", "An effect's row agrees with its entries.", rows_differ, QUIET,
          reads={**EFFECT_LINES.reads, "effects": _ROW}, kinds=KINDS),
)  # fmt: skip
