"""Archive and history: the lake has exactly what the journal has, and the two read as one."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tape import spark as tape_spark
from tape.errors import InvalidArgument, Pruned, StoreFailed, StoreMismatch
from tape.model.entry import Entry
from tape.pipeline.lake import files as lake_files
from tape.pipeline.lake.log import LakeLog
from tape.ports.retention import PruneStep
from tape.settings import Settings
from tape.stores.by_url import open_store
from tests.pipeline.lake.world import (
    COLUMNS,
    archive,
    entries_of,
    fill,
    history,
    rows,
)


def prune(url: str, upto: int) -> None:
    async def step() -> None:
        store = await open_store(url, Settings())
        await store.retention.prune(PruneStep(0, upto, 10**6))
        await store.close()

    asyncio.run(step())


def test_a_lake_grows_compacts_and_reads_as_one_with_the_journal(
    spark: SparkSession, sqlite_url: str, tmp_path: Path
) -> None:
    lake, url = tmp_path / "a lake", sqlite_url
    fill(url, 600)
    first = archive(spark, url, lake, rows_per_file=120, upto=500)
    assert first.counts == {"archived": 500, "files": 5, "deleted": 0}
    assert first.facts["covered"] == "1..500"
    again = archive(spark, url, lake, rows_per_file=120, upto=500)
    assert again.counts == {"archived": 0, "files": 0, "deleted": 0}
    everything = entries_of(url)
    log = LakeLog(lake)
    small = [file.path for file in log.read().files]
    assert _rows_of([lake / path for path in small]) == everything[:500]  # sorted, text as it was

    prune(url, 400)  # what is archived is no longer in the journal, and nobody notices
    done = archive(spark, url, lake, rows_per_file=1000, compact=True, keep_removed="1h")
    assert (done.counts["archived"], done.counts["compacted"]) == (100, 6)
    assert len(log.read().files) == 1
    assert all((lake / path).exists() for path in small)  # for those who still read them
    fill(url, 50, first=601)
    everything += entries_of(url)[-50:]
    assert rows(history(spark, url, lake)) == everything
    assert archive(spark, url, lake, keep_removed="0", upto=1).counts["deleted"] == 6
    assert not any((lake / path).exists() for path in small)

    native = tape_spark.history(spark, url, str(lake), payload="variant")
    price = F.try_variant_get("payload", "$.price", "double")
    assert rows(native.where(price == 1.5)) == [e for e in everything if "price" in e.payload_json]
    chosen: dict[str, Any] = {"from": 350, "upto": 620, "pattern": "/tape/event/recorded/order/**"}
    orders = [e for e in everything[350:620] if e.event_type == "order"]
    assert rows(tape_spark.history(spark, url, str(lake), **chosen)) == orders
    found = history(spark, url, lake, where="payload.sym == 'A'", **chosen)
    kept = rows(found.where("global_seq > 355 and entity_id in ('s 1', 's 2', 's 3')"))
    assert kept == [
        e for e in orders if e.global_seq > 355 and '"sym"' in e[5] and e.entity_id in "s 1s 2s 3"
    ]
    with pytest.raises(PySparkException, match="pruned"):
        spark.read.format("tape").options(url=url, **{"from": 10}).load().count()


def _rows_of(paths: Sequence[Path]) -> list[Entry]:
    tables = [pq.read_table(path, columns=COLUMNS) for path in paths]
    return [Entry(**row) for table in tables for row in table.to_pylist()]


def test_the_same_with_postgres(
    spark: SparkSession, migrated_postgres_url: str, tmp_path: Path
) -> None:
    url, lake = migrated_postgres_url, tmp_path / "lake"
    fill(url, 300)
    everything = entries_of(url)
    archive(spark, url, lake, rows_per_file=150, upto=200)
    prune(url, 150)
    assert rows(history(spark, url, lake)) == everything


def test_delta_follows_the_lake(
    spark: SparkSession, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    fill(sqlite_url, 300)
    options = {"format": "delta", "rows_per_file": 60}
    # One that is killed between its commit and Delta's leaves it to the next run.
    monkeypatch.setattr("tape.pipeline.jobs.archive.job._mirror_to_delta", lambda _log, _lake: None)
    archive(spark, sqlite_url, lake, upto=200, **options)
    monkeypatch.undo()
    archive(spark, sqlite_url, lake, **options)
    archive(spark, sqlite_url, lake, format="delta", compact=True)
    table = DeltaTable(str(lake))
    assert table.history(1)[0]["tape.covered_through"] == "300"
    assert table.transaction_version("tape") == LakeLog(lake).read().number
    read = table.to_pyarrow_table().sort_by("global_seq").select(COLUMNS)
    assert [tuple(row.values()) for row in read.to_pylist()] == entries_of(sqlite_url)
    with pytest.raises(InvalidArgument, match="delta"):
        archive(spark, sqlite_url, lake)
    monkeypatch.setattr("tape.pipeline.lake.delta.find_spec", lambda _name: None)
    with pytest.raises(InvalidArgument, match="pip install"):
        archive(spark, sqlite_url, lake, format="delta")


def test_what_does_not_fit_together_is_refused(
    spark: SparkSession, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    fill(sqlite_url, 200)
    # Files that are not what the journal has are not committed.
    genuine = lake_files.written_under
    monkeypatch.setattr(
        "tape.pipeline.jobs.archive.writing.written_under", lambda folder: genuine(folder)[1:]
    )
    with pytest.raises(StoreFailed, match="nothing was committed"):
        archive(spark, sqlite_url, lake, rows_per_file=100)
    monkeypatch.undo()
    assert LakeLog(lake).read().number == 0
    assert (
        archive(spark, sqlite_url, lake, rows_per_file=100, keep_orphans="0").counts["files"] == 2
    )

    other = f"sqlite:{tmp_path / 'other.db'}"
    fill(other, 100)
    with pytest.raises(StoreMismatch, match="only to 100"):
        archive(spark, other, lake)
    fill(other, 200, first=101)
    with pytest.raises(StoreMismatch, match="another journal's"):
        archive(spark, other, lake)
    with pytest.raises(PySparkException, match="another journal's"):
        history(spark, other, lake).count()
    with pytest.raises(PySparkException, match="is not a lake"):
        history(spark, other, tmp_path / "nothing").count()

    prune(other, 150)
    elsewhere = tmp_path / "elsewhere"  # begun when half was gone: it has the other half
    archive(spark, other, elsewhere)
    assert [e.global_seq for e in rows(history(spark, other, elsewhere))] == list(range(151, 301))
    with pytest.raises((Pruned, PySparkException), match="pruned"):
        history(spark, other, elsewhere, **{"from": 10}).count()

    victim = lake / LakeLog(lake).read().files[0].path
    whole = victim.read_bytes()
    victim.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PySparkException, match="damaged"):
        history(spark, sqlite_url, lake).count()
    victim.unlink()
    with pytest.raises(PySparkException, match="missing from the lake"):
        history(spark, sqlite_url, lake).count()
    shutil.rmtree(lake / "_tape")
    (lake / "notes.txt").write_text("mine")
    with pytest.raises(InvalidArgument, match="empty folder"):
        archive(spark, sqlite_url, lake)
