"""Checks of values: versions without a gap, each with what was there before it."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import VERSIONS, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, Frames, FrameSource

KINDS: Final = ("value",)
_KEY: Final = "CONCAT(namespace, '/', name)"


def _in_order(frames: Frames) -> DataFrame:
    """Changes of values in order, each with the version and the value before it."""
    value = Window.partitionBy("namespace", "name").orderBy("global_seq")
    return (
        frames.entries_of("value")
        .where("p.value.version IS NOT NULL")
        .selectExpr(
            "global_seq", "run_id", "verb", "p.value.namespace AS namespace",
            "p.value.key AS name", "p.value.version AS version", "p.value.deleted AS deleted",
            "p.value.writer AS writer", "p.prev_version AS prev_version", "value_hash",
            "prev_hash",
        )
        .select(
            "*",
            F.lag("version").over(value).alias("version_before"),
            F.lag("value_hash").over(value).alias("hash_before"),
        )
    )  # fmt: skip


CHANGES: Final = FrameSource("value_changes", _in_order, KINDS, {"journal": ENTRY_COLUMNS})

versions_skipped: Final = RowRule(
    CHANGES,
    lambda moment: (
        "version <> version_before + 1 "
        f"OR (version_before IS NULL AND version <> 1 AND {moment.is_whole})"
    ),
    "CONCAT('version ', version, ' follows ', COALESCE(version_before, 0))",
    key=_KEY,
)
previous_differs: Final = RowRule(
    CHANGES,
    """prev_version <> version - 1
    OR (version_before = version - 1 AND prev_hash <> hash_before)""",
    """CASE WHEN prev_version <> version - 1
        THEN CONCAT('version ', version, ' names version ', prev_version, ' as the one before')
        ELSE CONCAT('what it says was before is not what version ', version - 1, ' wrote') END""",
    key=_KEY,
)
deleted_otherwise: Final = RowRule(
    CHANGES,
    "deleted <> (verb = 'deleted')",
    "CONCAT('its subject says ', verb, ', its value deleted ', deleted)",
    key=_KEY,
)


def rows_differ(frames: Frames) -> DataFrame:
    """The row must equal the entry of its version, and no version that was there before is newer.

    Where the journal's beginning is unknown, so may be the entry of an old version.
    """
    changes = frames.get(CHANGES)
    rows = frames.table("values").selectExpr(
        "namespace", "key AS name", "version AS row_version", "XXHASH64(value_json) AS row_hash",
        "deleted AS row_deleted", "writer AS row_writer",
    )  # fmt: skip
    newest = changes.groupBy("namespace", "name").agg(
        F.expr(f"MAX(version) FILTER (WHERE global_seq <= {frames.moment.before})").alias("least"),
        F.max("version").alias("most"),
        F.max("global_seq").alias("last_seq"),
    )
    same = changes.selectExpr(
        "namespace", "name", "version AS row_version", "global_seq", "run_id", "value_hash",
        "deleted", "writer",
    ).dropDuplicates(["namespace", "name", "row_version"])  # fmt: skip
    unknown = "FALSE" if frames.moment.is_whole else "TRUE"
    faults = f"""CASE
        WHEN row_version IS NULL AND least IS NULL THEN NULL
        WHEN row_version IS NULL THEN 'it has no row'
        WHEN most IS NULL THEN IF({unknown}, NULL, 'it has a row and no entry')
        WHEN row_version < least OR row_version > most
            THEN CONCAT('its row is at version ', row_version, ', its journal at ', most)
        WHEN value_hash <> row_hash OR deleted <> row_deleted OR writer <> row_writer
            THEN CONCAT('its row is not what version ', row_version, ' wrote')
    END"""
    both = (
        newest.join(rows, ["namespace", "name"], "full")
        .join(same, ["namespace", "name", "row_version"], "left")
        .withColumn("fault", F.expr(faults))
    )
    return violation_rows(
        both.where("fault <> ''"), "fault", key=_KEY, global_seq="last_seq", run_id="''"
    )


CHECKS: Final[tuple[Check, ...]] = (
    Check("value_versions", "The versions of a value are numbered from 1 without a gap.",
          versions_skipped),
    Check("value_previous", "A change of a value contains the previous value.",
          previous_differs),
    Check("value_deleted", "A deletion of a value is recorded as one, and no other change is.",
          deleted_otherwise),
    Check("value_row", "A value's row agrees with the entry of its version.", rows_differ,
          VERSIONS, kinds=KINDS,
          reads={**CHANGES.reads, "values": "namespace key value_json version writer deleted"}),
)  # fmt: skip
