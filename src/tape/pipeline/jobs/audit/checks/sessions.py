"""Checks of sessions: made before they are used, and with as many events as were appended."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import BOUNDS, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, AuditScope, Frames, FrameSource

_NAME: Final = "session"
KINDS: Final = ("session", "event")
_QUIET: Final = "compares rows of sessions to which nothing was written since before they were read"


def _encoded(name: str) -> str:
    """A name as a segment of a subject."""
    return (
        f"CASE WHEN {name} = '_' THEN '%5F' ELSE REPLACE(REPLACE(REPLACE(URL_ENCODE({name}), "
        "'+', '%20'), '*', '%2A'), '%7E', '~') END"
    )


_ROW_NAME: Final = (
    f"CONCAT_WS('/', {', '.join(map(_encoded, ('app_name', 'user_id', 'session_id')))}) AS {_NAME}"
)
_KEY: Final = "app_name user_id session_id"


def _in_order(frames: Frames) -> DataFrame:
    """What became of sessions, each with what came before; a session that is made anew is new."""
    session = Window.partitionBy(_NAME).orderBy("global_seq")
    return (
        frames.entries.where("kind = 'session' OR (kind = 'event' AND verb = 'appended')")
        .withColumn(_NAME, F.array_join("dims", "/"))
        .select(
            "*",
            F.lag("verb").over(session).alias("prev_verb"),
            F.sum(F.expr("IF(verb = 'created', 1, 0)")).over(session).alias("life"),
        )
    )


LINES: Final = FrameSource("session_lines", _in_order, KINDS, {"journal": ENTRY_COLUMNS})


def _illegal(moment: AuditScope) -> str:
    return f"""(prev_verb IS NULL AND verb <> 'created' AND {moment.is_whole})
        OR (prev_verb = 'deleted' AND verb <> 'created')
        OR (prev_verb IN ('created', 'appended') AND verb = 'created')"""


illegal_moves: Final = RowRule(
    LINES, _illegal, "CONCAT(verb, ' follows ', COALESCE(prev_verb, 'nothing'))", key=_NAME
)


def events_repeated(frames: Frames) -> DataFrame:
    twice = (
        frames.get(LINES)
        .where("verb = 'appended'")
        .groupBy(_NAME, "life", F.col("p.event.id").alias("event"))
        .agg(F.count("*").alias("times"), F.max("global_seq").alias("global_seq"))
        .where("times > 1")
    )
    words = "CONCAT('event ', event, ' was appended ', times, ' times')"
    return violation_rows(twice, words, key=_NAME, run_id="''")


def rows_differ(frames: Frames) -> DataFrame:
    newest = Window.partitionBy(_NAME)
    known = (
        frames.get(LINES)
        .withColumn("last_life", F.max("life").over(newest))
        .where("life > 0 AND life = last_life")
        .groupBy(_NAME)
        .agg(
            F.expr("COUNT_IF(verb = 'appended')").alias("most"),
            F.expr(
                f"COUNT_IF(verb = 'appended' AND global_seq <= {frames.moment.before})"
            ).alias("least"),
            F.expr("BOOL_OR(verb = 'deleted')").alias("gone"),
            F.min("global_seq").alias("first_seq"),
            F.max("global_seq").alias("last_seq"),
        )
    )  # fmt: skip
    rows = frames.table("sessions").selectExpr(_ROW_NAME, "event_count")
    before, whole = frames.moment.before, str(frames.moment.is_whole)
    faults = f"""CASE
        WHEN event_count IS NULL AND (gone OR first_seq > {before}) THEN NULL
        WHEN event_count IS NULL THEN 'it has no row'
        WHEN last_seq IS NULL THEN IF({whole}, 'it has a row and no entry', NULL)
        WHEN gone AND last_seq <= {before} THEN 'it was deleted and has a row'
        WHEN gone OR first_seq > {before} THEN NULL
        WHEN event_count < least OR event_count > most
            THEN CONCAT('its row counts ', event_count, ' events, its journal ', most)
    END"""
    both = known.join(rows, _NAME, "full").withColumn("fault", F.expr(faults))
    return violation_rows(
        both.where("fault <> ''"), "fault", key=_NAME, global_seq="last_seq", run_id="''"
    )


def events_differ(frames: Frames) -> DataFrame:
    """Events are numbered from 1 as they are appended, and go with their session."""
    kept = (
        frames.table("session_events")
        .groupBy(*_KEY.split())
        .agg(
            F.count("*").alias("events"),
            F.count_distinct("id").alias("ids"),
            F.min("position").alias("first"),
            F.max("position").alias("last"),
        )
    )
    changed = (
        frames.get(LINES)
        .where(F.col("global_seq") > frames.moment.before)
        .select(_NAME)
    )  # fmt: skip
    rows = frames.table("sessions").select(*_KEY.split(), "event_count")
    faults = """CASE
        WHEN event_count IS NULL THEN CONCAT('there are ', events, ' events and no session')
        WHEN event_count <> COALESCE(events, 0)
            THEN CONCAT('its row counts ', event_count, ' events, there are ', COALESCE(events, 0))
        WHEN events <> last OR first <> 1 OR ids <> events
            THEN CONCAT(events, ' events are numbered from ', first, ' to ', last)
    END"""
    odd = rows.join(kept, _KEY.split(), "full").selectExpr(_ROW_NAME, f"{faults} AS fault")
    odd = odd.where("fault <> ''").join(changed, _NAME, "left_anti")
    return violation_rows(odd, "fault", key=_NAME, global_seq="0", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("session_moves", "A session is created before it is used, and not after its deletion.",
          illegal_moves),
    Check("session_event_once", "An event is appended to a session once.", events_repeated,
          reads=LINES.reads, kinds=KINDS),
    Check("session_row", "A session's row counts the events that were appended.", rows_differ,
          BOUNDS, reads={**LINES.reads, "sessions": f"{_KEY} event_count"}, kinds=KINDS),
    Check("session_events", "A session has as many events as its row counts, numbered from 1.",
          events_differ, _QUIET, kinds=KINDS,
          reads={**LINES.reads, "sessions": f"{_KEY} event_count",
                 "session_events": f"{_KEY} id position"}),
)  # fmt: skip
