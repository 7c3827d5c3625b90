"""Checks of tasks: made by an entry that matches, once, and never silent about a failure."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.model.entry import Entry
from tape.pipeline.jobs.audit.check import (
    ENTRIES,
    LATER,
    ROW,
    TWICE,
    Check,
    RowRule,
    violation_rows,
)
from tape.pipeline.jobs.audit.frames import (
    ENTRY_COLUMNS,
    AuditScope,
    Frames,
    FrameSource,
    table_source,
)
from tape.pipeline.jobs.audit.matching import with_expressions, without_match

MOVES: Final = """(
    (prev_verb = 'dead_lettered' AND verb IN ('replayed', 'dropped'))
    OR (prev_verb = 'replayed' AND verb IN ('dead_lettered', 'failed'))
)"""
_NEEDED: Final = "(1, 2, 5)"
"""Statuses of tasks that still need the entry that made them."""
_ROWS: Final = "compares tasks of which the journal says nothing new since before they were read"


_JOURNAL: Final = {"journal": ENTRY_COLUMNS}
_TASK: Final = "task_id reaction_id source_global_seq"


def _with_sources(frames: Frames) -> DataFrame:
    """Tasks, each with the entry that made it where that is there."""
    sources = frames.entries.selectExpr(
        "global_seq AS source_global_seq", "subject AS source_subject", "run_id"
    )
    tasks = frames.table("tasks").selectExpr(*_TASK.split(), "status", "subject AS kept_subject")
    return tasks.join(sources, "source_global_seq", "left")


SOURCED: Final = FrameSource(
    "sourced_tasks", _with_sources, (), _JOURNAL | {"tasks": f"{_TASK} status subject"}
)


def _missing(moment: AuditScope) -> str:
    """Below where the journal begins, its own look at the task's source is the only one."""
    return f"""source_subject IS NULL AND (source_global_seq > {moment.begins_after}
        OR (status IN {_NEEDED} AND kept_subject = ''))"""


sources_missing: Final = RowRule(
    SOURCED,
    _missing,
    "'the entry that made it is not there'",
    key="task_id",
    global_seq="source_global_seq",
    run_id="''",
)


def repeated(frames: Frames) -> DataFrame:
    twice = (
        frames.table("tasks")
        .groupBy("task_id")
        .agg(F.count("*").alias("times"), F.max("source_global_seq").alias("source"))
        .where("times > 1")
    )
    words = "CONCAT('it is there ', times, ' times, queued or ended')"
    return violation_rows(twice, words, key="task_id", global_seq="source", run_id="''")


def patterns_differ(frames: Frames) -> DataFrame:
    patterns = with_expressions(frames.table("reactions"))
    odd = (
        frames.get(SOURCED)
        .join(F.broadcast(patterns), "reaction_id")
        .where("source_subject IS NOT NULL AND NOT (source_subject RLIKE expression)")
    )
    words = "CONCAT(source_subject, ' does not match ', subject_pattern)"
    return violation_rows(
        odd, words, key="task_id", global_seq="source_global_seq", run_id="run_id"
    )


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
    return violation_rows(odd, "fault", key="task_id")


def shards_differ(frames: Frames) -> DataFrame:
    most = frames.table("reaction_tallies_again").select("reaction_id", "shards")
    odd = frames.table("tasks").join(most, "reaction_id").where("shard >= shards OR shard < 0")
    words = "CONCAT('it is of shard ', shard, ' of ', shards)"
    return violation_rows(odd, words, key="task_id", global_seq="source_global_seq", run_id="''")


def _in_order(frames: Frames) -> DataFrame:
    """What the journal says of tasks, each with what it said before."""
    task = Window.partitionBy("task_id").orderBy("global_seq")
    return (
        frames.entries_of("task")
        .withColumn("task_id", F.coalesce("p.task_id", F.lit("")))
        .withColumn("prev_verb", F.lag("verb").over(task))
    )


LINES: Final = FrameSource("task_lines", _in_order, ("task",), _JOURNAL)

illegal_moves: Final = RowRule(
    LINES,
    lambda moment: (
        f"(prev_verb IS NOT NULL AND NOT {MOVES}) OR (prev_verb IS NULL "
        f"AND verb IN ('replayed', 'dropped') AND {moment.is_whole})"
    ),
    "CONCAT(verb, ' follows ', COALESCE(prev_verb, 'nothing'))",
    key="task_id",
)


def rows_differ(frames: Frames) -> DataFrame:
    """What the journal said last of a task against how the task stands."""
    last = (
        frames.get(LINES)
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
    return violation_rows(both.where("fault <> ''"), "fault", key="task_id", run_id="''")


def reactions_missing(frames: Frames) -> DataFrame:
    known = frames.table("reactions_again").select("reaction_id")
    odd = frames.table("tasks").join(known, "reaction_id", "left_anti")
    words = "'its reaction was never registered'"
    return violation_rows(odd, words, key="task_id", global_seq="source_global_seq", run_id="''")


def tasks_gone(frames: Frames) -> DataFrame:
    """A cursor counts what it has matched in the transaction that makes the tasks; none is removed
    but one whose work is left to a later entry, and that is counted too. Others can make more."""
    counted = ["reaction_id", "shard", "matched", "coalesced"]
    cursors = frames.table("reaction_cursors").select(counted)
    changed = frames.table("reaction_cursors_again").select(counted).exceptAll(cursors)
    tasks = frames.table("tasks").groupBy("reaction_id").agg(F.count("*").alias("tasks"))
    odd = (
        cursors.groupBy("reaction_id")
        .agg(F.sum("matched").alias("matched"), F.sum("coalesced").alias("coalesced"))
        .join(changed, "reaction_id", "left_anti")
        .join(tasks, "reaction_id", "left")
        .where("COALESCE(tasks, 0) < matched - coalesced")
    )
    words = """CONCAT('its cursors have matched ', matched, ' entries and left ', coalesced,
        ' to later ones; there are ', COALESCE(tasks, 0), ' tasks')"""
    return violation_rows(odd, words, key="reaction_id", global_seq="0", run_id="''")


_HELD: Final = """CASE
    WHEN status NOT IN (1, 2) THEN CONCAT('it is queued with status ', status)
    WHEN status = 2 AND (lease_owner = '' OR lease_expires_at_ms <= 0 OR claimed_at_ms <= 0)
        THEN 'it is in hand, and nobody has it'
    WHEN status = 2 AND next_attempt_at_ms > 0 THEN 'it is in hand, and waits'
    WHEN (debounce_key <> '') <> (debounce_until_ms > 0)
        THEN CONCAT('its burst ', debounce_key, ' ends at ', debounce_until_ms)
END"""
held_otherwise: Final = RowRule(
    table_source(
        "task_queue",
        "reaction_id shard source_global_seq status next_attempt_at_ms lease_owner "
        "lease_expires_at_ms claimed_at_ms debounce_key debounce_until_ms",
    ),
    f"{_HELD} <> ''",
    _HELD,
    key="CONCAT_WS('/', reaction_id, shard, source_global_seq)",
    global_seq="source_global_seq",
    run_id="''",
)
# An attempt does not count once its task is given back, and its last owner may still complete it.
_ENDED: Final = """CASE
    WHEN status NOT BETWEEN 1 AND 5 THEN CONCAT('its status is ', status)
    WHEN (completed_at_ms > 0) <> (status IN (3, 4, 5))
        THEN CONCAT('its status is ', status, ' and it was completed at ', completed_at_ms)
    WHEN status IN (2, 5) AND attempts < 1 THEN 'it was never tried'
    WHEN status = 3 AND lease_owner = '' THEN 'it is done, and nobody has claimed it'
END"""
ended_otherwise: Final = RowRule(
    table_source("tasks", f"{_TASK} status attempts completed_at_ms lease_owner"),
    f"{_ENDED} <> ''",
    _ENDED,
    key="task_id",
    global_seq="source_global_seq",
    run_id="''",
)

CHECKS: Final[tuple[Check, ...]] = (
    Check("task_source", "The entry that made a task exists.", sources_missing, LATER),
    Check("task_once", "There is one task of a reaction, shard and entry.", repeated,
          "the queue and what has ended are read as one, at one moment",
          reads=_JOURNAL | {"tasks": _TASK}),
    Check("task_kept", "There is a task for each entry that a reaction has matched.", tasks_gone,
          TWICE,
          reads=_JOURNAL | {"tasks": "reaction_id",
                            "reaction_cursors": "reaction_id shard matched coalesced",
                            "reaction_cursors_again": "reaction_id shard matched coalesced"}),
    Check("task_held", "A queued task waits or is claimed.", held_otherwise, ROW,
          reads=_JOURNAL),
    Check("task_ended", "A task has a status, and a time if it has ended.", ended_otherwise, ROW,
          reads=_JOURNAL),
    Check("task_reaction", "A task's reaction is known.", reactions_missing,
          "the tasks were read before the reactions, which are never removed",
          reads=_JOURNAL | {"tasks": _TASK, "reactions_again": "reaction_id"}),
    Check("task_shard", "A task is of a shard that its reaction had.", shards_differ,
          "a reaction's most shards are read after the tasks, and never become fewer",
          reads=_JOURNAL | {"tasks": f"{_TASK} shard",
                            "reaction_tallies_again": "reaction_id shards"}),
    # Settings can be changed; tasks that were made before stay as they are.
    Check("task_pattern", "The entry that made a task matches the reaction's pattern.",
          patterns_differ, LATER, severity="warning",
          reads={**SOURCED.reads, "reactions": "reaction_id subject_pattern"}),
    Check("task_predicate", "The reaction's predicate is true of the entry that made a task.",
          predicates_differ, LATER, severity="warning",
          reads={"journal": " ".join(Entry._fields), "tasks": _TASK,
                 "reactions": "reaction_id predicate_cel"}),
    Check("task_moves", "A task is dead-lettered before it is replayed or dropped.",
          illegal_moves, ENTRIES),
    Check("task_row", "A task failed or is a dead letter if and only if the journal says so.",
          rows_differ, _ROWS, kinds=("task",),
          reads=_JOURNAL | {"tasks": f"{_TASK} status completed_at_ms"}),
)  # fmt: skip
