"""Checks of sessions: made before they are used, and with as many events as were appended."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import BOUNDS, Check, told
from tape.pipeline.jobs.audit.frames import Frames

_NAME: Final = "session"


def _lines(frames: Frames) -> DataFrame:
    """What became of sessions, each with what came before; a session that is made anew is new."""
    return frames.shared("session_lines", lambda: _in_order(frames))


def _in_order(frames: Frames) -> DataFrame:
    session = Window.partitionBy(_NAME).orderBy("global_seq")
    return (
        frames.entries.where("kind = 'session' OR (kind = 'event' AND verb = 'appended')")
        .withColumn(_NAME, F.array_join("dims", "/"))
        .withColumn("prev_verb", F.lag("verb").over(session))
        .withColumn("life", F.expr("IF(verb = 'created', 1, 0)"))
        .withColumn("life", F.sum("life").over(session))
    )


def illegal_moves(frames: Frames) -> DataFrame:
    first = F.expr("prev_verb IS NULL AND verb <> 'created'") & F.lit(frames.moment.is_whole)
    odd = _lines(frames).where(
        first
        | F.expr("prev_verb = 'deleted' AND verb <> 'created'")
        | F.expr("prev_verb IN ('created', 'appended') AND verb = 'created'")
    )
    words = "CONCAT(verb, ' follows ', COALESCE(prev_verb, 'nothing'))"
    return told(odd, words, key=_NAME)


def events_repeated(frames: Frames) -> DataFrame:
    twice = (
        _lines(frames)
        .where("verb = 'appended'")
        .groupBy(_NAME, "life", F.col("p.event.id").alias("event"))
        .agg(F.count("*").alias("times"), F.max("global_seq").alias("global_seq"))
        .where("times > 1")
    )
    words = "CONCAT('event ', event, ' was appended ', times, ' times')"
    return told(twice, words, key=_NAME, run_id="''")


def rows_differ(frames: Frames) -> DataFrame:
    newest = Window.partitionBy(_NAME)
    known = (
        _lines(frames)
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
    encoded = [
        f"CASE WHEN {name} = '_' THEN '%5F' ELSE REPLACE(REPLACE(REPLACE(URL_ENCODE({name}), "
        "'+', '%20'), '*', '%2A'), '%7E', '~') END"
        for name in ("app_name", "user_id", "session_id")
    ]
    rows = frames.table("sessions").selectExpr(
        f"CONCAT_WS('/', {', '.join(encoded)}) AS {_NAME}", "event_count"
    )
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
    return told(both.where("fault <> ''"), "fault", key=_NAME, global_seq="last_seq", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("session_moves", "A session is created before it is used, and not after its deletion.",
          illegal_moves),
    Check("session_event_once", "An event is appended to a session once.", events_repeated),
    Check("session_row", "A session's row counts the events that were appended.", rows_differ,
          BOUNDS),
)  # fmt: skip
