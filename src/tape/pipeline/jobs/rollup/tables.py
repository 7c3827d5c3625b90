"""Parquet tables under one folder that change together, and remember how far they have come.

    bars/_versions/00000007.json       which folders make up each table, up to which global_seq
    bars/_data/00000007-5f0c/bars/day=2026-11-16/…

A version is published by making its file, which only one can: everything before is as if it had not
been, everything after is there as a whole. A day that changes gets a new folder; those that no
version of the last few names are removed. The names start with `_` so that nobody reads a folder of
old and new by mistake: `RollupTables.read` reads a version.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from tape.errors import TapeError

_VERSIONS: Final = "_versions"
_DATA: Final = "_data"
KEPT: Final = 4


@dataclass(frozen=True, slots=True)
class Version:
    """`parts` are the folders of each table by partition; `owed` says that what changed with this
    version is yet to be told."""

    number: int = 0
    through: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, dict[str, str]] = field(default_factory=dict)
    owed: bool = False
    series: str = field(default_factory=lambda: uuid.uuid4().hex)

    def folders(self, root: Path, table: str, partitions: Iterable[str] | None) -> list[Path]:
        """Where the table is, or those of its partitions that there are."""
        parts = self.parts.get(table, {})
        wanted = parts if partitions is None else [name for name in partitions if name in parts]
        return [root / parts[name] for name in wanted]

    def settled(self) -> "Version":
        """Make the next version, with nothing owed."""
        return replace(self, number=self.number + 1, owed=False)


class RollupTables:
    def __init__(self, root: str | Path) -> None:
        self._root = Path(root).absolute()

    def version(self) -> Version:
        """The one that was published last; number 0 if none was."""
        newest = self._newest(1)
        return newest[0] if newest else Version()

    def read(
        self, spark: SparkSession, table: str, schema: str, partitions: Iterable[str] | None = None
    ) -> DataFrame:
        """The table as it was published last, or only those partitions of it that there are."""
        return _at(spark, schema, self.version().folders(self._root, table, partitions))

    def draft(self, upto: int) -> "DraftVersion":
        before = self.version()
        folder = f"{_DATA}/{before.number + 1:08d}-{uuid.uuid4().hex[:8]}"
        return DraftVersion(self._root, folder, before, upto)

    def publish(self, version: Version) -> None:
        """Make it the one that counts; durable when it returns."""
        folder = self._root / _VERSIONS
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{version.number:08d}.json"
        fresh = folder / f".{uuid.uuid4().hex}"
        with fresh.open("w") as file:
            json.dump({name: getattr(version, name) for name in Version.__slots__}, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, target)
        except FileExistsError:
            raise TapeError(
                f"{self._root} was changed by another run meanwhile: run it again"
            ) from None
        finally:
            fresh.unlink()
        _sync_folder(folder)
        self._sweep()

    def _newest(self, most: int) -> list[Version]:
        files = sorted((self._root / _VERSIONS).glob("*.json"), reverse=True)[:most]
        return [Version(**json.loads(file.read_text())) for file in files]

    def _sweep(self) -> None:
        kept = self._newest(KEPT)
        named = {
            path for version in kept for parts in version.parts.values() for path in parts.values()
        }
        for attempt in (self._root / _DATA).glob("*"):
            # Another run may be at work on the version after the last.
            if int(attempt.name.split("-")[0]) >= kept[0].number:
                continue
            for part in attempt.glob("*/*"):
                if part.is_dir() and str(part.relative_to(self._root)) not in named:
                    shutil.rmtree(part)
            if not any(attempt.glob("*/*/")):
                shutil.rmtree(attempt)
        for file in sorted((self._root / _VERSIONS).glob("*.json"))[:-KEPT]:
            file.unlink()


@dataclass(slots=True)
class DraftVersion:
    """The version to come: partitions that are written to it replace those of the one before."""

    root: Path
    folder: str
    before: Version
    upto: int
    written: dict[str, dict[str, str]] = field(default_factory=dict)
    owed: bool = False

    @property
    def number(self) -> int:
        return self.before.number + 1

    def read(
        self, spark: SparkSession, table: str, schema: str, partitions: Iterable[str] | None = None
    ) -> DataFrame:
        """The table as it was before."""
        return _at(spark, schema, self.before.folders(self.root, table, partitions))

    def write(self, table: str, frame: DataFrame, partitions: Iterable[str], by: str) -> None:
        """`frame` has exactly these partitions, named by its column `by`, which is not kept."""
        path = f"{self.folder}/{table}"
        frame.repartition(by).write.partitionBy(by).parquet(_local(self.root / path))
        self.written[table] = {name: f"{path}/{by}={name}" for name in partitions}

    def write_one(self, table: str, partition: str, frame: DataFrame) -> None:
        """All of the frame as one partition of the table."""
        path = f"{self.folder}/{table}/{partition}"
        frame.write.parquet(_local(self.root / path))
        self.written[table] = {partition: path}

    def read_written(self, spark: SparkSession, table: str, schema: str) -> DataFrame:
        """What was written of the table, without computing it again."""
        return _at(spark, schema, [self.root / path for path in self.written[table].values()])

    def version(self, settings: Mapping[str, Any]) -> Version:
        """What is to be published: what was before, with what was written instead."""
        _sync(self.root / self.folder)
        parts = {name: dict(found) for name, found in self.before.parts.items()}
        for table, found in self.written.items():
            parts.setdefault(table, {}).update(found)
        return Version(
            number=self.number,
            through=self.upto,
            settings=dict(settings),
            parts=parts,
            owed=self.owed,
            series=self.before.series,
        )


def _at(spark: SparkSession, schema: str, folders: list[Path]) -> DataFrame:
    if not folders:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*map(_local, folders))


def _local(path: Path) -> str:
    """Whatever file system Spark takes for its own by default."""
    return f"file://{path}"


def _sync(folder: Path) -> None:
    """Spark leaves it to the system when files reach the disk; a version waits for it."""
    for path in folder.rglob("*"):
        if path.is_dir():
            _sync_folder(path)
            continue
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
