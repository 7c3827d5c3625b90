"""Checks of single entries: their numbers, ids, times, payloads and columns."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import ALL_ENTRIES, ENTRY_COLUMNS, EVERY, Frames
from tape.pipeline.jobs.audit.recheck import not_json

LATE_MS: Final = 60_000
"""A clock may be set back by so much before it is worth a word."""
AHEAD_MS: Final = 3_600_000
"""So far may the store's clock be ahead of the one here."""
_BLOCK: Final = 65_536
_IN_RUNS: Final = ("run", "decision", "effect", "obligation", "gate", "timer", "budget")
_OUTSIDE: Final = ("session", "task", "drainer", "subscription", "wallet")


def _repeated(frame: DataFrame, column: str, words: str) -> DataFrame:
    twice = (
        frame.groupBy(column)
        .agg(F.count("*").alias("times"), F.max("global_seq").alias("global_seq"))
        .where("times > 1")
    )
    return violation_rows(twice, f"CONCAT('{words}', times, ' times')", key=column, run_id="''")


def numbers_repeated(frames: Frames) -> DataFrame:
    return _repeated(
        frames.entries.select("global_seq", F.col("global_seq").alias("number")),
        "number",
        "this global_seq is there ",
    )


def ids_repeated(frames: Frames) -> DataFrame:
    return _repeated(frames.entries, "event_id", "this event_id is there ")


def keys_repeated(frames: Frames) -> DataFrame:
    keyed = frames.entries.where("idempotency_key <> ''")
    return _repeated(keyed, "idempotency_key", "this idempotency key was recorded ")


ids_malformed: Final = RowRule(
    ALL_ENTRIES,
    "event_id NOT RLIKE '^[0-9A-HJKMNP-TV-Z]{26}$'",
    "'its event_id is no ULID'",
    key="event_id",
)
times_implausible: Final = RowRule(
    ALL_ENTRIES,
    lambda moment: f"ts_ms <= 0 OR ts_ms > {moment.audited_at_ms + AHEAD_MS} OR occurred_at_ms < 0",
    "CONCAT('recorded at ', ts_ms, ', occurred at ', occurred_at_ms)",
)


def times_set_back(frames: Frames) -> DataFrame:
    """In blocks, each compared with itself and with what came before it: no one has to sort all."""
    in_blocks = frames.entries.select(
        "global_seq", "ts_ms", F.expr(f"global_seq DIV {_BLOCK}").alias("block")
    )
    blocks = in_blocks.groupBy("block").agg(F.max("ts_ms").alias("latest"))
    # One row for so many entries: few enough for one place.
    earlier = Window.partitionBy(F.lit(0)).orderBy("block")
    before = blocks.withColumn(
        "latest", F.max("latest").over(earlier.rowsBetween(Window.unboundedPreceding, -1))
    )
    within = Window.partitionBy("block").orderBy("global_seq")
    latest = F.max("ts_ms").over(within.rowsBetween(Window.unboundedPreceding, -1))
    behind = (
        in_blocks.withColumn("latest_here", latest)
        .join(F.broadcast(before), "block")
        .withColumn("latest", F.greatest("latest", "latest_here"))
        .where(f"ts_ms < latest - {LATE_MS}")
    )
    words = "CONCAT('recorded at ', ts_ms, ', ', latest - ts_ms, ' ms before an earlier entry')"
    return violation_rows(behind, words, run_id="''")


def payloads_malformed(frames: Frames) -> DataFrame:
    suspect = frames.entries.where("NOT is_json").select("global_seq")
    texts = frames.journal.select("global_seq", "run_id", "payload_json")
    odd = texts.join(F.broadcast(suspect), "global_seq", "left_semi")
    confirmed = odd.mapInArrow(not_json, "global_seq BIGINT, run_id STRING, fault STRING")
    return violation_rows(confirmed, "CONCAT('its payload is not JSON: ', fault)")


traces_malformed: Final = RowRule(
    ALL_ENTRIES,
    "trace_id NOT RLIKE '^([0-9a-f]{32})?$' OR span_id NOT RLIKE '^([0-9a-f]{16})?$' "
    "OR parent_span_id NOT RLIKE '^([0-9a-f]{16})?$'",
    "CONCAT_WS(' ', 'its trace is', trace_id, span_id, parent_span_id)",
)
_RECORDED: Final = "(kind = 'event' AND verb = 'recorded')"
_MISPLACED: Final = f"""CASE
    WHEN (run_id <> '') <> (seq > 0) THEN 'only one of run_id and seq is set'
    WHEN kind IN {_IN_RUNS} AND run_id = '' THEN 'it belongs to no run'
    WHEN kind IN {_OUTSIDE} AND run_id <> '' THEN 'it belongs to a run'
    WHEN {_RECORDED} AND event_type = '' THEN 'it has no event type'
    WHEN NOT {_RECORDED} AND CONCAT(event_type, entity_type, entity_id, idempotency_key) <> ''
        THEN 'it has columns of a recorded event'
    WHEN schema_version < 1 THEN CONCAT('its schema version is ', schema_version)
END"""
columns_misplaced: Final = RowRule(ALL_ENTRIES, f"{_MISPLACED} <> ''", _MISPLACED)


def causes_missing(frames: Frames) -> DataFrame:
    """Decided only where the whole journal is at hand."""
    caused = frames.entries.where("caused_by <> ''").where(F.lit(frames.moment.is_whole))
    known = frames.entries.select(F.col("event_id").alias("caused_by"))
    return violation_rows(
        caused.join(known, "caused_by", "left_anti"),
        "'no entry has the event_id it names as its cause'",
        key="caused_by",
    )


def numbers_given_out(frames: Frames) -> DataFrame:
    """What was given out is no less than what is there: else a number is given out again."""
    rows = frames.table("outbox").agg(F.max("id").alias("there"))
    there = rows.selectExpr("'outbox' AS name", "COALESCE(there, 0) AS there")
    # Where all is pruned, nothing is there, and its numbers must not come again either.
    before = max(frames.moment.before, frames.moment.pruned_through)
    odd = (
        frames.table("sequences")
        .join(there, "name", "left")
        .selectExpr("name", "last", f"IF(name = 'journal', {before}, there) AS there")
        .where("last < there")
    )
    words = "CONCAT('the last number given out is ', last, ', the last one there is ', there)"
    return violation_rows(odd, words, key="name", global_seq="0", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("global_seq_unique", "No two entries have the same global_seq.", numbers_repeated,
          reads={"journal": ENTRY_COLUMNS}, kinds=EVERY),
    Check("sequence_ahead", "The store gives out no number that an entry or an outbox row has.",
          numbers_given_out, "what was given out is read last, and only grows", kinds=EVERY,
          reads={"journal": ENTRY_COLUMNS, "sequences": "name last", "outbox": "id"}),
    Check("event_id_unique", "No two entries have the same event_id.", ids_repeated,
          reads={"journal": f"{ENTRY_COLUMNS} event_id"}, kinds=EVERY),
    Check("event_id_ulid", "An event_id is a ULID.", ids_malformed, reads={"journal": "event_id"}),
    Check(
        "idempotency_key_unique", "An idempotency key is recorded once at most.", keys_repeated,
        reads={"journal": f"{ENTRY_COLUMNS} idempotency_key"}, kinds=EVERY,
    ),
    Check(
        "time_plausible", "An entry was recorded at a time, and not in the future.",
        times_implausible, reads={"journal": "occurred_at_ms"},
    ),
    Check(
        "time_forward", "Later entries were recorded later, within a minute of clock changes.",
        times_set_back, severity="warning", reads={"journal": ENTRY_COLUMNS}, kinds=EVERY,
    ),
    Check("payload_json", "A payload is JSON.", payloads_malformed,
          reads={"journal": ENTRY_COLUMNS}, kinds=EVERY),
    Check("trace_hex", "Trace and span ids are hexadecimal, of their length.", traces_malformed,
          reads={"journal": "trace_id span_id parent_span_id"}),
    Check(
        "columns_of_kind", "An entry has the columns of its kind, and no others.",
        columns_misplaced,
        reads={"journal": "event_type entity_type entity_id idempotency_key schema_version"},
    ),
    Check(
        "cause_exists", "The cause that an event names is an entry.", causes_missing,
        severity="warning", reads={"journal": f"{ENTRY_COLUMNS} event_id caused_by"}, kinds=EVERY,
    ),
)  # fmt: skip
