"""Entries into Parquet files, one for each partition, in the journal's order; small ones merged."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from tape.pipeline.lake.files import WrittenFile, staging_folder, written_under
from tape.pipeline.lake.manifest import LakeFile
from tape.pipeline.schema import ENTRY_WITH_PAYLOAD
from tape.pipeline.source.frames import with_payload

SMALL: Final = 0.5
"""A file with less than this part of the rows a file should have is small."""


def journal_range(
    spark: SparkSession, url: str, after: int, upto: int, rows_per_file: int
) -> DataFrame:
    """Entries of a range, in partitions that are each in order and follow one another."""
    options: dict[str, str | int] = {
        "url": url, "from": after, "upto": upto, "partition_rows": rows_per_file,
    }  # fmt: skip
    entries = with_payload(spark.read.format("tape").options(**options).load())
    return entries.select(*ENTRY_WITH_PAYLOAD.names)


def merged(spark: SparkSession, root: Path, groups: Sequence[Sequence[LakeFile]]) -> DataFrame:
    """The files of each group as one partition, in order."""
    return reduce(DataFrame.unionAll, (_merged(spark, root, group) for group in groups))


def _merged(spark: SparkSession, root: Path, group: Sequence[LakeFile]) -> DataFrame:
    paths = [f"file://{root / file.path}" for file in group]
    files = spark.read.schema(ENTRY_WITH_PAYLOAD).parquet(*paths)
    return files.coalesce(1).sortWithinPartitions("global_seq")


@contextmanager
def written(entries: DataFrame, root: Path) -> Iterator[list[WrittenFile]]:
    """What the entries have become, for whoever takes the files over before this ends."""
    folder = staging_folder(root)
    try:
        entries.write.option("compression", "zstd").parquet(f"file://{folder}")
        yield written_under(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def small_groups(files: Sequence[LakeFile], rows_per_file: int) -> list[list[LakeFile]]:
    """Runs of small neighbours, each to become one file of at most so many rows."""
    groups: list[list[LakeFile]] = []
    group: list[LakeFile] = []
    rows = 0
    for file in files:
        small = file.rows < SMALL * rows_per_file
        if group and (not small or rows + file.rows > rows_per_file):
            groups.append(group)
            group, rows = [], 0
        if small:
            group.append(file)
            rows += file.rows
    return [group for group in [*groups, group] if len(group) > 1]
