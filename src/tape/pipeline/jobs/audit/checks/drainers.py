"""Checks of drainers: where they are, where they halt, and the subscriptions that they serve."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import LATER, ROW, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, Frames, table_source
from tape.pipeline.jobs.audit.recheck import subscriptions_not_compiling

_STATE: Final = "event_drain_state"
_DRAINERS: Final = table_source(
    _STATE,
    "drainer_id last_global_seq last_event_id halted_on_event_id halted_on_global_seq halted_at_ms "
    "waiting_on_run_id waiting_on_event_id waiting_on_global_seq waiting_since_ms",
)
_NAMED: Final = (
    ("last_event_id", "last_global_seq"),
    ("halted_on_event_id", "halted_on_global_seq"),
    ("waiting_on_event_id", "waiting_on_global_seq"),
)
"""Columns that name an event, and its place."""
_EVENTS: Final = f"drainer_id {' '.join(' '.join(pair) for pair in _NAMED)}"
_SUBSCRIPTION: Final = (
    "subscription_id drainer_id event_type_glob workflow_type input_mapper filter_expr enabled "
    "awaits_end"
)
_QUIET: Final = "compares subscriptions that were not changed since before they were read"

drainers_ahead: Final = RowRule(
    _DRAINERS,
    lambda moment: f"last_global_seq > {moment.head}",
    lambda moment: f"CONCAT('it is at ', last_global_seq, ', the journal ends at {moment.head}')",
    key="drainer_id",
    global_seq="last_global_seq",
    run_id="''",
)
# What it halted at is before it: that event was passed, though it was not dispatched.
halted_behind: Final = RowRule(
    _DRAINERS,
    "halted_on_event_id <> '' AND halted_on_global_seq <= last_global_seq",
    "CONCAT('it is halted at ', halted_on_global_seq, ' and has come to ', last_global_seq)",
    key="drainer_id",
    global_seq="halted_on_global_seq",
    run_id="''",
)
# One that was resumed keeps the time until the event that failed has passed.
halted_in_part: Final = RowRule(
    _DRAINERS,
    "(halted_on_event_id <> '') <> (halted_on_global_seq > 0) "
    "OR (halted_on_event_id <> '' AND halted_at_ms <= 0)",
    "CONCAT('it is halted on \"', halted_on_event_id, '\", at ', halted_on_global_seq, ', since ', "
    "halted_at_ms)",
    key="drainer_id",
    global_seq="halted_on_global_seq",
    run_id="''",
)
waiting_in_part: Final = RowRule(
    _DRAINERS,
    "waiting_on_run_id <> '' AND "
    "(waiting_on_event_id = '' OR waiting_on_global_seq <= 0 OR waiting_since_ms <= 0)",
    "CONCAT('it waits for run ', waiting_on_run_id, ' of \"', waiting_on_event_id, '\", at ', "
    "waiting_on_global_seq, ', since ', waiting_since_ms)",
    key="drainer_id",
    global_seq="waiting_on_global_seq",
    run_id="''",
)


def events_missing(frames: Frames) -> DataFrame:
    """Find drainers that name an event which is not there, or is elsewhere.

    A cursor moves on past entries that are not events, and the last event that it has passed may
    be pruned by then. So that one must be there only if nothing was pruned.
    """
    rows = frames.table(_STATE)
    listed = ", ".join(f"STRUCT('{i}' AS named, {i} AS event_id, {g} AS place)" for i, g in _NAMED)
    named = rows.selectExpr("drainer_id", f"INLINE(ARRAY({listed}))").where(
        f"event_id <> '' AND place > {frames.moment.begins_after} "
        # Another check tells of a place that is not there.
        f"AND place <= {frames.moment.head}"
    )
    events = frames.entries.select("event_id", "global_seq")
    odd = named.join(events, "event_id", "left").where(
        f"""(global_seq IS NULL AND (named <> 'last_event_id' OR {frames.moment.is_whole}))
        OR global_seq > place OR (named <> 'last_event_id' AND global_seq <> place)"""
    )
    words = """CONCAT(named, ' is ', event_id, ', ', IF(global_seq IS NULL, 'which is not there',
        CONCAT('which is entry ', global_seq, ', not ', place)))"""
    return violation_rows(odd, words, key="drainer_id", global_seq="place", run_id="''")


def subscriptions_broken(frames: Frames) -> DataFrame:
    rows = frames.table("event_subscriptions")
    found = rows.select(
        "subscription_id", "event_type_glob", "filter_expr", "input_mapper"
    ).mapInArrow(subscriptions_not_compiling, "subscription_id STRING, fault STRING")
    return violation_rows(found, "fault", key="subscription_id", global_seq="0", run_id="''")


def subscriptions_differ(frames: Frames) -> DataFrame:
    names = _SUBSCRIPTION.split()
    said = (
        frames.entries_of("drainer")
        .where("verb IN ('subscribed', 'unsubscribed')")
        .groupBy(F.col("p.subscription_id").alias("subscription_id"))
        .agg(
            F.max_by("verb", "global_seq").alias("verb"),
            F.max_by(F.struct(*(f"p.{name}" for name in names)), "global_seq").alias("said"),
            F.max_by("p.pool", "global_seq").alias("said_pool"),
            F.max("global_seq").alias("global_seq"),
        )
    )
    rows = frames.table("event_subscriptions").select(
        "subscription_id", "pool", F.struct(*names).alias("kept")
    )
    faults = f"""CASE
        WHEN global_seq > {frames.moment.before} THEN NULL
        WHEN verb IS NULL THEN IF({frames.moment.is_whole}, 'it has a row and no entry', NULL)
        WHEN verb = 'subscribed' AND kept IS NULL THEN 'it has no row'
        WHEN verb = 'unsubscribed' AND kept IS NOT NULL THEN 'it was removed and has a row'
        WHEN kept <> said AND verb = 'subscribed'
            THEN CONCAT('its row says ', TO_JSON(kept), ', its journal ', TO_JSON(said))
        WHEN pool <> said_pool AND verb = 'subscribed'  -- entries of version 0.1.0 have no pool
            THEN CONCAT('its row has the pool "', pool, '", its journal "', said_pool, '"')
    END"""
    both = said.join(rows, "subscription_id", "full").withColumn("fault", F.expr(faults))
    return violation_rows(both.where("fault <> ''"), "fault", key="subscription_id", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("drainer_ahead", "No drainer is ahead of the journal.", drainers_ahead, LATER),
    Check("drainer_halted", "A drainer has not passed the event it is halted at.", halted_behind,
          ROW),
    Check("drainer_halt_whole", "A halted drainer names the event, its place and the time.",
          halted_in_part, ROW),
    Check("drainer_wait_whole", "A drainer that waits for a run names its event, and since when.",
          waiting_in_part, ROW),
    Check("drainer_events", "The events that a drainer names exist.", events_missing, LATER,
          reads={"journal": f"{ENTRY_COLUMNS} event_id", _STATE: _EVENTS}),
    Check("event_subscription_compiles",
          "The glob, filter and mapper of an event subscription are valid.",
          subscriptions_broken, ROW, reads={"event_subscriptions": _SUBSCRIPTION}),
    Check("event_subscription_row", "The row of an event subscription agrees with its last entry.",
          subscriptions_differ, _QUIET, kinds=("drainer",),
          reads={"journal": ENTRY_COLUMNS, "event_subscriptions": f"{_SUBSCRIPTION} pool"}),
)  # fmt: skip
