"""History is one table at every moment, whatever writes, archives and prunes meanwhile."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tape import spark as tape_spark
from tape.model.entry import Entry
from tape.pipeline.lake.log import LakeLog
from tape.ports.store import Store
from tape.stores.blocking import Stores
from tests.pipeline.lake.processes import start
from tests.pipeline.lake.world import archive, fill, history, rows, some_events


def check(found: list[Entry], at_least: int) -> None:
    """Contiguous from the first, and each as it was written: event n is entry n."""
    assert [entry.global_seq for entry in found] == list(range(1, len(found) + 1))
    assert len(found) >= at_least
    for entry, event in zip(found, some_events(1, len(found)), strict=True):
        assert (entry.event_type, entry.payload_json, entry.entity_id, entry.idempotency_key) == (
            event.event_type, event.payload_json, event.entity_id, event.idempotency_key,
        )  # fmt: skip


@contextmanager
def archiving(spark: SparkSession, url: str, lake: Path, keep_removed: str) -> Iterator[list[int]]:
    """Archive and compact all the time; how much each run archived."""
    over, runs, faults = threading.Event(), list[int](), list[BaseException]()

    def work() -> None:
        try:
            while not over.is_set():
                done = archive(
                    spark, url, lake, rows_per_file=400, compact=True, keep_removed=keep_removed
                )
                runs.append(done.counts["archived"])
        except BaseException as fault:  # noqa: BLE001 - looked at below
            faults.append(fault)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield runs
    finally:
        over.set()
        thread.join()
    assert faults == []


def pruned_through(url: str) -> int:
    async def read(store: Store) -> int:
        return await store.retention.read_pruned_through()

    return Stores().store(url)(read)


def race(spark: SparkSession, url: str, lake: Path, reads: int) -> None:
    fill(url, 500)
    archive(spark, url, lake, rows_per_file=250)
    writer, pruner = start("write", url), start("prune", url, str(lake))
    with archiving(spark, url, lake, "0") as runs:
        seen, read = 500, 0
        while read < reads or not sum(runs) or pruned_through(url) < 400:
            found = rows(history(spark, url, lake))
            check(found, seen)
            seen, read = len(found), read + 1
    removed, written = [int(process.communicate(timeout=60)[0]) for process in (pruner, writer)]
    assert removed >= 400  # so there was something to read from the lake alone
    check(rows(history(spark, url, lake)), written)
    assert LakeLog(lake).read().through <= written


pytestmark = pytest.mark.timeout(300)  # Spark's first job alone takes a minute on a busy machine


@pytest.fixture
def postgres_url(migrated_postgres_url: str) -> str:
    return migrated_postgres_url


def test_history_is_whole_while_everything_moves(
    spark: SparkSession, sqlite_url: str, tmp_path: Path
) -> None:
    race(spark, sqlite_url, tmp_path / "lake", reads=2)


@pytest.mark.long
def test_history_is_whole_for_long(spark: SparkSession, store_url: str, tmp_path: Path) -> None:
    race(spark, store_url, tmp_path / "lake", reads=60)


@pytest.mark.long
def test_sparks_own_reader_sees_it_whole(
    spark: SparkSession, store_url: str, tmp_path: Path
) -> None:
    fill(store_url, 500)
    lake = tmp_path / "lake"
    archive(spark, store_url, lake, rows_per_file=100)
    writer, pruner = start("write", store_url), start("prune", store_url, str(lake))
    with archiving(spark, store_url, lake, "10m"):
        for _read in range(30):
            check(rows(tape_spark.history(spark, store_url, str(lake))), 500)
    for process in (pruner, writer):
        process.communicate(timeout=60)
