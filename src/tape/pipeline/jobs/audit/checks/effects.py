"""Checks of effects: begun once, settled once, and never repeated unseen."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import QUIET, Check, told
from tape.pipeline.jobs.audit.frames import Frames

_STATUS: Final = """CASE
    WHEN verb IN ('pending', 'confirmed', 'failed', 'unknown') THEN verb
    WHEN verb = 'reconciled' THEN p.status
    WHEN verb = 'stuck' THEN 'unknown'
END"""
"""What an entry makes of its effect; a claim or an attempt leaves it as it is."""
SETTLED: Final = "('confirmed', 'failed')"


def effect_lines(frames: Frames) -> DataFrame:
    """Entries of effects, each with how its effect stood before it."""
    return frames.shared("effect_lines", lambda: _effect_lines(frames))


def _effect_lines(frames: Frames) -> DataFrame:
    effect = Window.partitionBy("run_id", "key")
    in_order = effect.orderBy("seq", "global_seq")
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    return (
        frames.of("effect")
        .withColumn("key", F.coalesce("p.idempotency_key", F.lit("")))
        .withColumn("after", F.expr(_STATUS))
        .withColumn("was", F.last("after", True).over(earlier))
        .withColumn("prev_verb", F.lag("verb").over(in_order))
        .withColumn("semantics", F.max("p.semantics").over(effect))
        .withColumn("mode", F.max("p.dispatch_mode").over(effect))
    )


def begun_twice(frames: Frames) -> DataFrame:
    odd = effect_lines(frames).where("verb = 'pending' AND prev_verb IS NOT NULL")
    return told(odd, "CONCAT('it is begun again after ', prev_verb)", key="key")


def not_begun(frames: Frames) -> DataFrame:
    odd = effect_lines(frames).where("whole AND prev_verb IS NULL AND verb <> 'pending'")
    return told(odd, "CONCAT(verb, ' without having been pending')", key="key")


def confirmed_twice(frames: Frames) -> DataFrame:
    odd = effect_lines(frames).where("after = 'confirmed' AND was = 'confirmed'")
    return told(odd, "'it is confirmed again'", key="key")


def unsettled(frames: Frames) -> DataFrame:
    odd = effect_lines(frames).where(
        f"""was IN {SETTLED} AND verb <> 'pending'
        AND NOT (was = 'confirmed' AND COALESCE(after, '') = 'confirmed')"""
    )
    return told(odd, "CONCAT(verb, ' after it was ', was)", key="key")


def settled_unseen(frames: Frames) -> DataFrame:
    odd = effect_lines(frames).where(f"was = 'unknown' AND verb IN {SETTLED}")
    return told(odd, "CONCAT(verb, ' while it was unknown, without an observation')", key="key")


def settled_unclaimed(frames: Frames) -> DataFrame:
    odd = effect_lines(frames).where(
        """prev_verb <> 'claimed' AND COALESCE(was, '') NOT IN ('confirmed', 'failed')
        AND (verb IN ('reconciled', 'attempted', 'stuck')
            OR (verb = 'confirmed' AND was = 'pending' AND mode = 'outbox'))"""
    )
    return told(odd, "CONCAT(verb, ' after ', prev_verb, ', with no claim')", key="key")


def inline_without_lease(frames: Frames) -> DataFrame:
    odd = effect_lines(frames).where(
        """verb = 'confirmed' AND mode = 'inline' AND was = 'pending'
        AND status_before <> 'running'"""
    )
    return told(odd, "CONCAT('confirmed inline while the run was ', status_before)", key="key")


def not_idempotent_inline(frames: Frames) -> DataFrame:
    odd = effect_lines(frames).where(
        "verb = 'pending' AND p.semantics = 'non_idempotent' AND p.dispatch_mode <> 'outbox'"
    )
    return told(odd, "CONCAT('it is not idempotent and dispatched ', p.dispatch_mode)", key="key")


def repeated_blindly(frames: Frames) -> DataFrame:
    odd = effect_lines(frames).where(
        """semantics = 'non_idempotent' AND verb = 'claimed' AND prev_verb = 'claimed'
        AND was = 'pending'"""
    )
    return told(odd, "'it was dispatched again, and nobody had looked what happened'", key="key")


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
    return told(twice, "CONCAT(effects, ' effects have this business key')", key=key)


def rows_differ(frames: Frames) -> DataFrame:
    newest = Window.partitionBy("run_id", "key").orderBy(F.desc("seq"), F.desc("global_seq"))
    stand = (
        effect_lines(frames)
        .where("whole AND quiet")
        .withColumn("now", F.coalesce("after", "was"))
        .withColumn("begun", F.expr("CASE WHEN verb = 'pending' THEN seq END"))
        .withColumn("begun", F.min("begun").over(Window.partitionBy("run_id", "key")))
        .withColumn("place", F.row_number().over(newest))
        .where("place = 1")
        .selectExpr("run_id", "key", "global_seq", "now", "begun", "p.tool_name AS tool",
                    "mode AS dispatch", "TRUE AS written")
    )  # fmt: skip
    rows = frames.rows_of_settled("effects").selectExpr(
        "run_id", "idempotency_key AS key", "seq AS row_seq", "tool_name AS row_tool",
        "GET(ARRAY('', 'pending', 'confirmed', 'failed', 'unknown'), CAST(status AS INT)) "
        "AS row_now",
        "GET(ARRAY('', 'inline', 'outbox'), CAST(dispatch_mode AS INT)) AS row_dispatch",
    )  # fmt: skip
    faults = """CASE
        WHEN written IS NULL THEN CONCAT('its row says ', row_now, ', its journal nothing')
        WHEN row_now IS NULL THEN 'it has no row'
        WHEN row_now <> now THEN CONCAT('its row says ', row_now, ', its journal ', now)
        WHEN row_seq <> begun THEN CONCAT('its row names seq ', row_seq, ', it began at ', begun)
        WHEN row_tool <> tool THEN CONCAT('its row names ', row_tool, ', its journal ', tool)
        WHEN row_dispatch <> dispatch
            THEN CONCAT('its row says ', row_dispatch, ', its journal ', dispatch)
    END"""
    both = stand.join(rows, ["run_id", "key"], "full").withColumn("fault", F.expr(faults))
    return told(both.where("fault <> ''"), "fault", key="key")


CHECKS: Final[tuple[Check, ...]] = (
    Check("effect_begun_once", "An effect is begun once.", begun_twice),
    Check("effect_begun_first", "An effect is pending before anything becomes of it.", not_begun),
    Check("effect_confirmed_once", "An effect is confirmed once at most.", confirmed_twice),
    Check("effect_settled", "Nothing becomes of an effect that is confirmed or has failed.",
          unsettled),
    Check("effect_observed", "An unknown effect is settled only by an observation.",
          settled_unseen),
    Check("effect_claimed", "What the outbox or a reconciler writes, it writes under a claim.",
          settled_unclaimed),
    Check("effect_under_lease", "An inline effect is confirmed by who holds the run's lease.",
          inline_without_lease),
    Check("effect_by_outbox", "An effect that is not idempotent goes through the outbox.",
          not_idempotent_inline),
    Check("effect_not_repeated",
          "An effect that is not idempotent is not dispatched again unseen.", repeated_blindly),
    Check("effect_business_key", "A business key of a connector belongs to one effect.",
          business_keys_repeated),
    Check("effect_row", "An effect's row says what its entries made of it.", rows_differ, QUIET),
)  # fmt: skip
