"""Checks of values: versions without a gap, each with what was there before it."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import VERSIONS, Check, told
from tape.pipeline.jobs.audit.frames import Frames

_KEY: Final = "CONCAT(namespace, '/', name)"


def _changes(frames: Frames) -> DataFrame:
    """Changes of values in order, each with the version and the value before it."""
    return frames.shared("value_changes", lambda: _in_order(frames))


def _in_order(frames: Frames) -> DataFrame:
    value = Window.partitionBy("namespace", "name").orderBy("global_seq")
    return (
        frames.entries.where("kind = 'value' AND p.value.version IS NOT NULL")
        .selectExpr(
            "global_seq", "run_id", "verb", "p.value.namespace AS namespace",
            "p.value.key AS name", "p.value.version AS version", "p.value.deleted AS deleted",
            "p.value.writer AS writer", "p.prev_version AS prev_version", "value_hash",
            "prev_hash",
        )
        .withColumn("version_before", F.lag("version").over(value))
        .withColumn("hash_before", F.lag("value_hash").over(value))
    )  # fmt: skip


def versions_skipped(frames: Frames) -> DataFrame:
    first = F.expr("version_before IS NULL AND version <> 1") & F.lit(frames.moment.is_whole)
    odd = _changes(frames).where(F.expr("version <> version_before + 1") | first)
    words = "CONCAT('version ', version, ' follows ', COALESCE(version_before, 0))"
    return told(odd, words, key=_KEY)


def previous_differs(frames: Frames) -> DataFrame:
    odd = _changes(frames).where(
        """prev_version <> version - 1
        OR (version_before = version - 1 AND prev_hash <> hash_before)"""
    )
    words = """CASE WHEN prev_version <> version - 1
        THEN CONCAT('version ', version, ' names version ', prev_version, ' as the one before')
        ELSE CONCAT('what it says was before is not what version ', version - 1, ' wrote') END"""
    return told(odd, words, key=_KEY)


def deleted_otherwise(frames: Frames) -> DataFrame:
    odd = _changes(frames).where("deleted <> (verb = 'deleted')")
    return told(odd, "CONCAT('its subject says ', verb, ', its value deleted ', deleted)", key=_KEY)


def rows_differ(frames: Frames) -> DataFrame:
    """The row must equal the entry of its version, and no version that was there before is newer.

    Where the journal's beginning is unknown, so may be the entry of an old version.
    """
    changes = _changes(frames)
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
    return told(both.where("fault <> ''"), "fault", key=_KEY, global_seq="last_seq", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("value_versions", "The versions of a value are numbered from 1 without a gap.",
          versions_skipped),
    Check("value_previous", "A change of a value holds what was there before it.",
          previous_differs),
    Check("value_deleted", "A deletion of a value is told as one, and nothing else is.",
          deleted_otherwise),
    Check("value_row", "A value's row is what the entry of its version wrote.", rows_differ,
          VERSIONS),
)  # fmt: skip
