"""Checks of runs: no gap in their journals, only legal moves, and rows that say the same."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import QUIET, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import (
    ENTRY_COLUMNS,
    IN_RUNS,
    RUN_LINES,
    STATUSES,
    Frames,
)
from tape.pipeline.jobs.audit.recheck import named_otherwise

MOVES: Final = {
    "runnable": ("running", "stuck", "cancelled", "compensating"),
    "running": (
        "running", "runnable", "waiting", "terminal", "failed", "cancelled", "stuck",
        "compensating",
    ),
    "waiting": ("runnable", "running", "stuck", "cancelled", "compensating"),
    "compensating": ("failed", "cancelled", "stuck"),
    "stuck": ("runnable", "compensating", "cancelled"),
    # An effect that was on its way was confirmed after the end, and has to be unwound.
    "failed": ("compensating",),
    "cancelled": ("compensating",),
}  # fmt: skip
"""What a run's status may become. A terminal one stays so."""
_LEGAL: Final = " OR ".join(
    f"(status_before = '{one}' AND verb IN ({', '.join(repr(s) for s in others)}))"
    for one, others in MOVES.items()
)
_NAMES: Final = ("app_name", "user_id", "session_id", "invocation_id")
_JOURNAL: Final = {"journal": ENTRY_COLUMNS}
_ROW: Final = (
    f"run_id seq_cursor fencing_token lease_owner ended_at_ms waiting_on ending status "
    f"parent_run_id pool app_version cancel_reason {' '.join(_NAMES)}"
)
_CANCELLED: Final = (
    "kind = 'run' AND (verb IN ('cancel_requested', 'cancelled') OR p.ending <=> 'cancelled')"
)
"""Entries with which a run may be given a reason to be cancelled; the first of them demands it."""

gaps: Final = RowRule(
    RUN_LINES,
    lambda moment: (
        "(prev_seq IS NOT NULL AND seq <> prev_seq + 1) "
        f"OR (prev_seq IS NULL AND seq <> 1 AND {moment.is_whole})"
    ),
    "CONCAT('seq ', seq, ' follows ', COALESCE(prev_seq, 0))",
)
out_of_order: Final = RowRule(
    RUN_LINES,
    "prev_global_seq >= global_seq AND prev_seq < seq",
    "CONCAT('seq ', seq, ' was recorded before seq ', prev_seq)",
)
begun_otherwise: Final = RowRule(
    RUN_LINES,
    "whole AND prev_seq IS NULL AND kind <> 'run'",
    "CONCAT('its first entry is of kind ', kind)",
)
illegal_moves: Final = RowRule(
    RUN_LINES,
    f"""kind = 'run' AND CASE
        WHEN verb = 'cancel_requested' THEN status_before <> 'running'
        WHEN status_before IS NULL THEN whole AND verb NOT IN ('runnable', 'running')
        ELSE NOT ({_LEGAL})
    END""",
    "CONCAT(verb, ' follows ', COALESCE(status_before, 'nothing'))",
)


def misnamed(frames: Frames) -> DataFrame:
    first = frames.of("run").where("seq = 1 AND is_json")
    named = first.select("global_seq", "run_id", *(F.col(f"p.{name}") for name in _NAMES))
    odd = named.mapInArrow(named_otherwise, "global_seq BIGINT, run_id STRING, fault STRING")
    return violation_rows(odd, "fault")


def parents_missing(frames: Frames) -> DataFrame:
    children = frames.of("run").where("seq = 1 AND p.parent_run_id <> ''")
    known = frames.table("runs").select("run_id").union(frames.lines.select("run_id"))
    odd = children.withColumn("parent", F.col("p.parent_run_id")).join(
        known.select(F.col("run_id").alias("parent")), "parent", "left_anti"
    )
    return violation_rows(odd, "'its parent does not exist'", key="parent")


def parents_untold(frames: Frames) -> DataFrame:
    runs = frames.rows_of_settled("runs")
    ended = runs.where("status IN (4, 5, 8) AND parent_run_id <> ''").select(
        "run_id", F.col("parent_run_id").alias("parent")
    )
    open_runs = runs.where("status IN (1, 2, 3)").select(F.col("run_id").alias("parent"))
    waiting = (
        frames.table("gates")
        .where("awaited AND NOT released")
        .selectExpr("run_id AS parent", "SUBSTRING(gate_name, 5) AS run_id", "gate_name")
    )
    odd = (
        ended.join(waiting.where("gate_name LIKE 'run:%'"), ["parent", "run_id"])
        .join(open_runs, "parent", "left_semi")
    )  # fmt: skip
    words = "CONCAT('it has ended, and run ', parent, ' waits for that')"
    return violation_rows(odd, words, key="gate_name", global_seq="0")


def _stand(frames: Frames) -> DataFrame:
    """How each run stands by its entries, and the row that should say the same."""
    run = Window.partitionBy("run_id")
    newest = run.orderBy(F.desc("seq"), F.desc("global_seq"))
    began = F.struct(*(f"p.{name}" for name in (*_NAMES, "parent_run_id", "pool", "app_version")))
    status = F.expr(f"CASE WHEN kind = 'run' AND verb IN {STATUSES} THEN verb END")
    token = F.expr("CASE WHEN is_grant THEN p.fencing_token END")
    last = (
        frames.lines.where("whole AND quiet")
        .select(
            "run_id", "global_seq", F.col("seq").alias("last_seq"),
            F.coalesce(status, "status_before").alias("status_now"),
            F.coalesce(token, "lease_before.token", F.lit(0)).alias("token_now"),
            F.row_number().over(newest).alias("place"),
            F.first(began).over(run.orderBy("seq", "global_seq")).alias("began"),
            F.bool_or(F.expr(_CANCELLED)).over(run).alias("cancelled"),
            F.bool_or(F.expr("kind = 'run' AND verb = 'cancel_requested'"))
            .over(run).alias("to_be_cancelled"),
        )
        .where("place = 1")
    )  # fmt: skip
    words = F.array(*(F.lit(word) for word in ("", *STATUSES)))
    rows = frames.table("runs").select(
        "run_id", "seq_cursor", "fencing_token", "lease_owner", "ended_at_ms", "waiting_on",
        "ending", *_NAMES, "parent_run_id", "pool", "app_version", "cancel_reason",
        F.get(words, F.col("status").cast("int")).alias("row_status"),
    )  # fmt: skip
    return last.join(rows, "run_id", "left")


def rows_differ(frames: Frames) -> DataFrame:
    faults = """CASE
        WHEN row_status IS NULL THEN 'it has no row'
        WHEN seq_cursor <> last_seq
            THEN CONCAT('its row is at seq ', seq_cursor, ', its journal at ', last_seq)
        WHEN NOT (row_status <=> status_now)
            THEN CONCAT('its row says ', row_status, ', its journal ', status_now)
        WHEN fencing_token <> token_now
            THEN CONCAT('its row has token ', fencing_token, ', its journal ', token_now)
        WHEN (lease_owner <> '') <> (row_status = 'running')
            THEN CONCAT('it is ', row_status, ' and held by ', lease_owner)
        WHEN (waiting_on <> '') AND row_status <> 'waiting'
            THEN CONCAT('it is ', row_status, ' and waits for ', waiting_on)
        WHEN (ended_at_ms > 0) <> (row_status IN ('terminal', 'failed', 'stuck', 'cancelled'))
            THEN CONCAT('it is ', row_status, ' and has ended at ', ended_at_ms)
        WHEN ending > 0 AND row_status NOT IN ('compensating', 'stuck')
            THEN CONCAT('it is ', row_status, ' and still to be unwound')
        WHEN app_name <> began.app_name OR user_id <> began.user_id
            OR session_id <> began.session_id OR invocation_id <> began.invocation_id
            THEN CONCAT_WS(' ', 'its row is named', app_name, user_id, session_id, invocation_id)
        WHEN parent_run_id <> COALESCE(began.parent_run_id, '')
            THEN CONCAT('its row names parent ', parent_run_id, ', its journal ',
                COALESCE(began.parent_run_id, 'none'))
        WHEN pool <> began.pool OR app_version <> began.app_version
            THEN CONCAT('its row has pool ', pool, ' and version ', app_version,
                ', its journal ', began.pool, ' and ', began.app_version)
        WHEN cancel_reason = '' AND to_be_cancelled
            THEN 'its cancellation was requested, and its row has no reason'
        WHEN cancel_reason <> '' AND NOT cancelled
            THEN CONCAT('nobody has cancelled it, and its row has the reason ', cancel_reason)
    END"""
    return violation_rows(
        _stand(frames).withColumn("fault", F.expr(faults)).where("fault <> ''"), "fault"
    )


def rows_alone(frames: Frames) -> DataFrame:
    """Decided only where the whole journal is at hand."""
    rows = frames.table("runs").where(F.lit(frames.moment.is_whole))
    odd = rows.join(frames.lines.select("run_id"), "run_id", "left_anti")
    return violation_rows(odd, "'it has a row and no entry'", global_seq="0")


CHECKS: Final[tuple[Check, ...]] = (
    Check("run_seq_contiguous", "The entries of a run are numbered from 1 without a gap.", gaps),
    Check("run_seq_order", "Entries of a run are recorded in the order of their seq.",
          out_of_order),
    Check("run_begins", "The first entry of a run is of the run itself.", begun_otherwise),
    Check("run_moves", "A run changes its status only as allowed.", illegal_moves),
    Check("run_name", "A run's id is derived from its name.", misnamed, reads=_JOURNAL,
          kinds=("run",)),
    Check("run_parent", "A run's parent exists.", parents_missing, kinds=("run",),
          reads=_JOURNAL | {"runs": "run_id"}),
    Check("run_parent_told", "Nobody waits for a run that has ended.", parents_untold, QUIET,
          reads=_JOURNAL | {"runs": "run_id status parent_run_id",
                            "gates": "run_id gate_name awaited released"}),
    Check("run_row", "A run's row agrees with its entries.", rows_differ, QUIET,
          reads=_JOURNAL | {"runs": _ROW}, kinds=IN_RUNS),
    Check("run_row_journal", "A run that has a row has entries.", rows_alone,
          "the rows were read before the head, and so were the entries that came with them",
          reads=_JOURNAL | {"runs": "run_id"}),
)  # fmt: skip
