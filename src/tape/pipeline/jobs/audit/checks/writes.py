"""Checks of writes in bulk: no more is recorded than was staged, and the rest can be."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import ROW, TWICE, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import Frames, table_source

_WRITE: Final = "write_id epoch origin chunks recorded rows duplicates updated_at_ms"
_LIST: Final = "write_id epoch parts_json"
_CHUNK: Final = "write_id epoch part number rows"
_LIST_KEY: Final = "CONCAT(write_id, '/', epoch)"

counts_impossible: Final = RowRule(
    table_source("writes", _WRITE),
    """recorded > chunks OR chunks < 0 OR recorded < 0 OR rows < 0 OR duplicates < 0 OR epoch < 0
    OR origin = ''""",
    """CONCAT(recorded, ' of ', chunks, ' chunks of epoch ', epoch, ' are recorded: ', rows,
    ' rows and ', duplicates, ' duplicates, of "', origin, '"')""",
    key="write_id",
    global_seq="0",
    run_id="''",
)


def lists_differ(frames: Frames) -> DataFrame:
    """What is not finished must be on a list, and all of the list must be staged."""
    writes = frames.table("writes").intersect(frames.table("writes_again"))
    lists = frames.table("write_lists").selectExpr(
        "write_id", "epoch",
        "FROM_JSON(parts_json, 'ARRAY<ARRAY<STRING>>') AS parts",
    ).selectExpr(
        "write_id", "epoch", "parts",
        "AGGREGATE(parts, 0L, (sum, part) -> sum + TRY_CAST(GET(part, 1) AS BIGINT)) AS listed",
    )  # fmt: skip
    staged = frames.table("write_chunks").groupBy("write_id", "epoch").agg(
        F.count("*").alias("staged")
    )  # fmt: skip
    faults = """CASE
        WHEN recorded < chunks AND parts IS NULL
            THEN CONCAT(recorded, ' of ', chunks, ' chunks are recorded, and no list has the rest')
        WHEN parts IS NOT NULL AND NOT (listed <=> chunks)
            THEN CONCAT('it has ', chunks, ' chunks, its list ', COALESCE(listed, 0))
        WHEN COALESCE(staged, 0) < chunks - recorded
            THEN CONCAT(chunks - recorded, ' chunks are to be recorded, ', COALESCE(staged, 0),
                ' are staged')
    END"""
    both = writes.join(lists, ["write_id", "epoch"], "left").join(
        staged, ["write_id", "epoch"], "left"
    )
    odd = both.withColumn("fault", F.expr(faults)).where("fault <> ''")
    return violation_rows(odd, "fault", key="write_id", global_seq="0", run_id="''")


def chunks_impossible(frames: Frames) -> DataFrame:
    """Of parts that are on a list: others may be of a task that lost, and are nobody's."""
    parts = frames.table("write_lists").selectExpr(
        "write_id", "epoch", "EXPLODE(FROM_JSON(parts_json, 'ARRAY<ARRAY<STRING>>')) AS listed"
    ).selectExpr(
        "write_id", "epoch", "GET(listed, 0) AS part", "TRY_CAST(GET(listed, 1) AS BIGINT) AS most"
    )  # fmt: skip
    odd = frames.table("write_chunks").join(parts, ["write_id", "epoch", "part"], "left").where(
        "number < 0 OR rows < 0 OR number >= most"
    )  # fmt: skip
    words = """CONCAT('chunk ', number, ' of part ', part, ' has ', rows, ' rows; the part has ',
        COALESCE(most, 0), ' chunks')"""
    return violation_rows(odd, words, key=_LIST_KEY, global_seq="0", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("write_counts", "A write in bulk has recorded no more chunks than it has.",
          counts_impossible, ROW),
    Check("write_list", "An unfinished bulk write has its list, and its chunks are staged.",
          lists_differ, TWICE,
          reads={"writes": _WRITE, "writes_again": _WRITE, "write_lists": _LIST,
                 "write_chunks": _CHUNK}),
    Check("write_chunks", "A staged chunk belongs to its part.", chunks_impossible,
          "a list is written once, and its chunks before it",
          reads={"write_lists": _LIST, "write_chunks": _CHUNK}),
)  # fmt: skip
