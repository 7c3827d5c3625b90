"""Checks of tasks: made by an entry that matches, once, and never silent about a failure."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import ENTRIES, LATER, Check, told
from tape.pipeline.jobs.audit.frames import Frames
from tape.pipeline.jobs.audit.matching import with_expressions, without_match

MOVES: Final = """(
    (prev_verb = 'dead_lettered' AND verb IN ('replayed', 'dropped'))
    OR (prev_verb = 'replayed' AND verb IN ('dead_lettered', 'failed'))
)"""
_NEEDED: Final = "(1, 2, 5)"
"""Statuses of tasks that still need the entry that made them."""
_ROWS: Final = "compares tasks of which the journal says nothing new since before they were read"


def _sourced(frames: Frames) -> DataFrame:
    """Tasks, each with the entry that made it where that is there."""
    return frames.shared("sourced_tasks", lambda: _with_sources(frames))


def _with_sources(frames: Frames) -> DataFrame:
    sources = frames.entries.selectExpr(
        "global_seq AS source_global_seq", "subject AS source_subject", "run_id"
    )
    return frames.table("tasks").drop("subject").join(sources, "source_global_seq", "left")


def sources_missing(frames: Frames) -> DataFrame:
    """Below where the journal begins, its own look at the task's source is the only one."""
    begins = frames.moment.begins_after
    unknown = frames.table("tasks").select("task_id", F.col("subject").alias("kept_subject"))
    odd = (
        _sourced(frames)
        .join(unknown, "task_id")
        .where(
            f"""source_subject IS NULL AND
        (source_global_seq > {begins} OR (status IN {_NEEDED} AND kept_subject = ''))"""
        )
    )
    words = "'the entry that made it is not there'"
    return told(odd, words, key="task_id", global_seq="source_global_seq", run_id="''")


def repeated(frames: Frames) -> DataFrame:
    twice = (
        frames.table("tasks")
        .groupBy("task_id")
        .agg(F.count("*").alias("times"), F.max("source_global_seq").alias("source"))
        .where("times > 1")
    )
    words = "CONCAT('it is there ', times, ' times, queued or ended')"
    return told(twice, words, key="task_id", global_seq="source", run_id="''")


def patterns_differ(frames: Frames) -> DataFrame:
    patterns = with_expressions(frames.table("reactions"))
    odd = (
        _sourced(frames)
        .join(F.broadcast(patterns), "reaction_id")
        .where("source_subject IS NOT NULL AND NOT (source_subject RLIKE expression)")
    )
    words = "CONCAT(source_subject, ' does not match ', subject_pattern)"
    return told(odd, words, key="task_id", global_seq="source_global_seq", run_id="run_id")


def predicates_differ(frames: Frames) -> DataFrame:
    """By the server's own code, on whole entries: only for reactions that have a predicate."""
    asking = (
        frames.table("reactions")
        .where("predicate_cel <> ''")
        .select("reaction_id", "predicate_cel")
    )
    asked = (
        frames.table("tasks")
        .join(F.broadcast(asking), "reaction_id")
        .selectExpr("task_id", "predicate_cel", "source_global_seq AS global_seq")
    )
    seen = frames.journal.where(F.col("global_seq") <= frames.moment.head).join(asked, "global_seq")
    odd = seen.mapInArrow(
        without_match, "global_seq BIGINT, run_id STRING, task_id STRING, fault STRING"
    )
    return told(odd, "fault", key="task_id")


def shards_differ(frames: Frames) -> DataFrame:
    most = frames.table("reaction_tallies_again").select("reaction_id", "shards")
    odd = frames.table("tasks").join(most, "reaction_id").where("shard >= shards OR shard < 0")
    words = "CONCAT('it is of shard ', shard, ' of ', shards)"
    return told(odd, words, key="task_id", global_seq="source_global_seq", run_id="''")


def _told_of(frames: Frames) -> DataFrame:
    """What the journal says of tasks, each with what it said before."""
    return frames.shared("task_lines", lambda: _in_order(frames))


def _in_order(frames: Frames) -> DataFrame:
    task = Window.partitionBy("task_id").orderBy("global_seq")
    return (
        frames.entries.where("kind = 'task'")
        .withColumn("task_id", F.coalesce("p.task_id", F.lit("")))
        .withColumn("prev_verb", F.lag("verb").over(task))
    )


def illegal_moves(frames: Frames) -> DataFrame:
    first = F.expr("prev_verb IS NULL AND verb IN ('replayed', 'dropped')")
    odd = _told_of(frames).where(
        F.expr(f"prev_verb IS NOT NULL AND NOT {MOVES}") | (first & F.lit(frames.moment.is_whole))
    )
    words = "CONCAT(verb, ' follows ', COALESCE(prev_verb, 'nothing'))"
    return told(odd, words, key="task_id")


def rows_differ(frames: Frames) -> DataFrame:
    """What the journal said last of a task against how the task stands."""
    last = (
        _told_of(frames)
        .groupBy("task_id")
        .agg(F.max_by("verb", "global_seq").alias("said"), F.max("global_seq").alias("global_seq"))
    )
    rows = frames.table("tasks").select("task_id", "status", "completed_at_ms")
    unknown = "FALSE" if frames.moment.is_whole else "TRUE"
    faults = f"""CASE
        WHEN global_seq > {frames.moment.before} THEN NULL
        WHEN status IS NULL THEN CONCAT('it was ', said, ' and is not there')
        WHEN status = 5 AND NOT ({unknown} AND said IS NULL)
            AND COALESCE(said, '') <> 'dead_lettered'
            THEN CONCAT('it is a dead letter, the journal says ', COALESCE(said, 'nothing'))
        WHEN status = 4 AND NOT ({unknown} AND said IS NULL)
            AND COALESCE(said, '') NOT IN ('failed', 'dropped')
            THEN CONCAT('it has failed, the journal says ', COALESCE(said, 'nothing'))
        WHEN status IN (1, 2, 3) AND said IN ('dead_lettered', 'failed', 'dropped')
            THEN CONCAT('it was ', said, ', and it is ',
                GET(ARRAY('', 'pending', 'claimed', 'done'), CAST(status AS INT)))
    END"""
    both = last.join(rows, "task_id", "full").withColumn("fault", F.expr(faults))
    return told(both.where("fault <> ''"), "fault", key="task_id", run_id="''")


def reactions_missing(frames: Frames) -> DataFrame:
    known = frames.table("reactions_again").select("reaction_id")
    odd = frames.table("tasks").join(known, "reaction_id", "left_anti")
    words = "'its reaction was never registered'"
    return told(odd, words, key="task_id", global_seq="source_global_seq", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("task_source", "The entry that made a task is there.", sources_missing, LATER),
    Check("task_once", "There is one task of a reaction, shard and entry.", repeated,
          "the queue and what has ended are read as one, at one moment"),
    Check("task_reaction", "A task's reaction is known.", reactions_missing,
          "the tasks were read before the reactions, which are never removed"),
    Check("task_shard", "A task is of a shard that its reaction had.", shards_differ,
          "a reaction's most shards are read after the tasks, and never become fewer"),
    # Settings can be changed; tasks that were made before stay as they are.
    Check("task_pattern", "The entry that made a task matches the reaction's pattern.",
          patterns_differ, LATER, severity="warning"),
    Check("task_predicate", "The reaction's predicate is true of the entry that made a task.",
          predicates_differ, LATER, severity="warning"),
    Check("task_moves", "A task is dead-lettered before it is replayed or dropped.",
          illegal_moves, ENTRIES),
    Check("task_row", "A task failed or is a dead letter just if the journal says so.",
          rows_differ, _ROWS),
)  # fmt: skip
