"""Checks of the outbox: what its rows say of themselves, and the entries that they became."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tape.model.outbox import SKIPPED
from tape.pipeline.jobs.audit.check import LATER, ROW, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, Frames, table_source

_SAME: Final = (
    "schema_version", "entity_type", "entity_id", "caused_by", "source", "trace_id", "span_id",
    "parent_span_id",
)  # fmt: skip
"""Columns that a row and its entry have alike."""
_ROW: Final = (
    f"id event_id subject payload_json global_seq {' '.join(_SAME)} published_to_nats last_error "
    "occurred_at_ms created_at_ms has_entry"
)
_KEY: Final = "CAST(id AS STRING)"
_SKIPPED: Final = f"last_error LIKE '{SKIPPED}%'"
_STATES: Final = f"""CASE
    WHEN published_to_nats AND global_seq <= 0 THEN 'it is published and has no entry'
    WHEN published_to_nats <> (published_at_ms > 0)
        THEN CONCAT('published ', published_to_nats, ' at ', published_at_ms)
    WHEN published_term > 0 AND NOT published_to_nats
        THEN CONCAT('it is not published, and was in term ', published_term)
    WHEN published_to_nats AND published_term = 0 AND NOT {_SKIPPED}
        THEN 'it is published, by no relay, and was not skipped'
    WHEN published_term > 0 AND last_error <> ''
        THEN CONCAT('it is published, and failed: ', last_error)
    WHEN published_term < 0 OR attempts < 0 OR created_at_ms <= 0
        THEN CONCAT('published in term ', published_term, ', tried ', attempts, ' times, made at ',
            created_at_ms)
END"""
_OF_REPEATS: Final = """CASE
    WHEN global_seq < -1 OR (global_seq = -1) <> (repeat_of <> '')
        OR (repeat_of <> '') <> (repeat_of_seq > 0) OR (repeat_of <> '') <> (repeated_at_ms > 0)
        THEN CONCAT('it is a repeat of "', repeat_of, '" at ', repeat_of_seq, ' since ',
            repeated_at_ms, ', and at ', global_seq)
    WHEN repeat_of <> '' AND (has_entry OR published_to_nats) THEN 'it is a repeat, and was taken'
    WHEN has_entry AND global_seq <= 0 THEN 'it has an entry, and no place'
END"""
_FAULT: Final = f"COALESCE({_STATES}, {_OF_REPEATS})"

states: Final = RowRule(
    table_source(
        "outbox",
        "id event_id global_seq published_to_nats published_at_ms published_term last_error "
        "attempts created_at_ms has_entry repeat_of repeat_of_seq repeated_at_ms",
    ),
    f"{_FAULT} <> ''",
    _FAULT,
    key=_KEY,
    run_id="''",
)


def entries_differ(frames: Frames) -> DataFrame:
    """Rows of earlier code may have the place of another's event, and do not say which made it."""
    begins = frames.moment.begins_after
    entries = frames.entries.selectExpr(
        "global_seq", "kind", "subject AS entry_subject", "event_type", "event_id AS entry_id",
        "payload_hash", "occurred_at_ms AS entry_occurred",
        f"STRUCT({', '.join(_SAME)}) AS entry_says",
    )  # fmt: skip
    rows = frames.table("outbox").where(f"global_seq > {begins}")
    rows = rows.selectExpr(
        "id", "global_seq", "subject", "event_id", "has_entry", "last_error",
        "published_to_nats", "XXHASH64(IF(payload_json = '', 'null', payload_json)) AS row_hash",
        "IF(occurred_at_ms > 0, occurred_at_ms, created_at_ms) AS occurred",
        f"STRUCT({', '.join(_SAME)}) AS row_says",
    )  # fmt: skip
    faults = f"""CASE
        WHEN kind IS NULL THEN 'its entry is not there'
        WHEN kind = 'outbox' AND published_to_nats AND {_SKIPPED}
            AND entry_subject LIKE CONCAT('/tape/outbox/skipped/%/', id) THEN NULL
        WHEN kind <> 'event' THEN CONCAT('its entry is of kind ', kind)
        WHEN NOT has_entry THEN NULL
        WHEN entry_id <> event_id THEN CONCAT('its event is ', event_id, ', its entry ', entry_id)
        WHEN event_type <> subject
            THEN CONCAT('its subject is ', subject, ', its entry is of type ', event_type)
        WHEN payload_hash <> row_hash THEN 'its payload is not the one of its entry'
        WHEN entry_occurred <> occurred THEN CONCAT('it occurred at ', occurred,
            ', its entry says at ', entry_occurred)
        WHEN entry_says <> row_says
            THEN CONCAT('it says ', TO_JSON(row_says), ', its entry ', TO_JSON(entry_says))
    END"""
    odd = rows.join(entries, "global_seq", "left").withColumn("fault", F.expr(faults))
    return violation_rows(odd.where("fault <> ''"), "fault", key=_KEY, run_id="''")


def repeats_differ(frames: Frames) -> DataFrame:
    """A repeat names the event that was the first."""
    begins = frames.moment.begins_after
    entries = frames.entries.selectExpr(
        "global_seq AS repeat_of_seq", "event_id AS entry_id", "event_type"
    )
    rows = frames.table("outbox").where(f"repeat_of <> '' AND repeat_of_seq > {begins}")
    odd = rows.select("id", "subject", "repeat_of", "repeat_of_seq").join(
        entries, "repeat_of_seq", "left"
    )
    odd = odd.where("NOT (repeat_of <=> entry_id) OR NOT (subject <=> event_type)")
    words = """CONCAT('it is a repeat of ', repeat_of, ' on ', subject, ', at its place is ',
        COALESCE(CONCAT(entry_id, ' on ', event_type), 'nothing'))"""
    return violation_rows(odd, words, key=_KEY, global_seq="repeat_of_seq", run_id="''")


def keys_repeated(frames: Frames) -> DataFrame:
    odd = (
        frames.table("outbox")
        .where("has_entry AND idempotency_key <> ''")
        .groupBy("subject", "idempotency_key")
        .agg(F.count("*").alias("times"), F.max("id").alias("id"))
        .where("times > 1")
    )
    words = "CONCAT(times, ' rows made an entry with key ', idempotency_key, ' of ', subject)"
    return violation_rows(odd, words, key=_KEY, global_seq="0", run_id="''")


def terms_unknown(frames: Frames) -> DataFrame:
    """Decided only where the whole journal is at hand: it has all elections."""
    elected = (
        frames.entries_of("relay").where("verb = 'elected'").agg(F.max("p.term").alias("last"))
    )
    rows = frames.table("outbox").where(f"published_term > 0 AND {frames.moment.is_whole}")
    odd = rows.crossJoin(elected).where("published_term > COALESCE(last, 0)")
    words = "CONCAT('it was published in term ', published_term, ' of ', COALESCE(last, 0))"
    return violation_rows(odd, words, key=_KEY, run_id="''")


_handled: Final = RowRule(
    table_source("processed", "consumer message_id processed_at_ms"),
    "consumer = '' OR message_id = '' OR processed_at_ms <= 0",
    "CONCAT('consumer \"', consumer, '\" handled it at ', processed_at_ms)",
    key="message_id",
    global_seq="0",
    run_id="''",
)

CHECKS: Final[tuple[Check, ...]] = (
    Check("outbox_states", "An outbox row waits, is promoted, published or skipped, and says so.",
          states, ROW),
    Check("outbox_entry", "The entry of an outbox row exists and agrees with it.",
          entries_differ, LATER,
          reads={"journal": f"{ENTRY_COLUMNS} event_id event_type occurred_at_ms {' '.join(_SAME)}",
                 "outbox": _ROW}),
    Check("outbox_term", "An outbox row was published in a term that exists.", terms_unknown,
          LATER, reads={"journal": ENTRY_COLUMNS, "outbox": "id global_seq published_term"},
          kinds=("relay",)),
    Check("processed_row", "A message that was handled has an id, a consumer and a time.", _handled,
          ROW),
    Check("outbox_repeat", "An outbox row that is a repeat names the first.", repeats_differ, LATER,
          reads={"journal": f"{ENTRY_COLUMNS} event_id event_type",
                 "outbox": "id subject repeat_of repeat_of_seq"}),
    Check("outbox_key_once", "A key of a subject made one entry.", keys_repeated, ROW,
          reads={"outbox": "id subject idempotency_key has_entry"}),
)  # fmt: skip
