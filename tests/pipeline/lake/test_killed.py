"""An archive run that is killed at any moment leaves a lake that the next run completes."""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tape import spark as tape_spark
from tape.pipeline.jobs.archive import job as archive_job
from tape.pipeline.lake.files import missing_file
from tape.pipeline.lake.log import LakeLog
from tests.pipeline.lake.processes import start, told
from tests.pipeline.lake.world import archive, entries_of, fill, rows

pytestmark = pytest.mark.timeout(300)  # Spark's first job alone takes a minute on a busy machine


class Stopped(BaseException):
    """As if the process were gone: nothing of ours handles it."""


def expect_complete(spark: SparkSession, url: str, lake: Path) -> None:
    """The same as an undisturbed run leaves: every entry once, in files that are there."""
    log = LakeLog(lake)
    found = log.read()
    assert missing_file(log.path, found.files) is None
    assert [file.after for file in found.files] == [0, *(f.through for f in found.files[:-1])]
    assert rows(tape_spark.lake(spark, str(lake))) == entries_of(url)
    named = {file.path for file in found.files} | found.removed.keys()
    assert {f"data/{path.name}" for path in (lake / "data").iterdir()} == named
    assert list((lake / "_staging").iterdir()) == []


def stop_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool) -> None:
    genuine: Callable[..., Any] = getattr(owner, name)

    def stopping(*arguments: Any, **named: Any) -> Any:
        if after:
            genuine(*arguments, **named)
        raise Stopped

    monkeypatch.setattr(owner, name, stopping)


def test_stopped_before_and_after_each_thing_it_does(
    spark: SparkSession, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    places = [
        (archive_job, "verify"), (archive_job, "adopt"), (LakeLog, "_publish"),
        (archive_job, "compacted"), (archive_job, "forgotten"), (archive_job, "delete_files"),
    ]  # fmt: skip
    written = 0
    for owner, name in places:
        for after in (False, True):
            fill(sqlite_url, 40, first=written + 1)
            written += 40
            with monkeypatch.context() as patch:
                # What is being written is lost with the process; its files are not.
                patch.setattr(
                    "tape.pipeline.jobs.archive.writing.shutil.rmtree", lambda *_, **__: 0
                )
                stop_at(patch, owner, name, after=after)
                with pytest.raises(Stopped):
                    archive(spark, sqlite_url, lake, compact=True, keep_removed="0")
    archive(spark, sqlite_url, lake, keep_removed="0", keep_orphans="0")
    expect_complete(spark, sqlite_url, lake)


@pytest.mark.middle
def test_a_killed_worker_fails_the_step_and_no_more(
    spark: SparkSession, sqlite_url: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    fill(sqlite_url, 2000)
    archive(spark, sqlite_url, lake, upto=100)
    killed = 0

    over = threading.Event()

    def kill_workers() -> None:
        nonlocal killed
        while not over.wait(0.2):
            for pid in python_workers(spark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1

    killer = threading.Thread(target=kill_workers)
    killer.start()
    # Spark tells of a dead worker in one way where it plans and in another where it reads.
    with contextlib.suppress(PySparkException, Py4JError):
        archive(spark, sqlite_url, lake, rows_per_file=200, upto=1300)
    over.set()
    killer.join()
    assert killed > 0
    archive(spark, sqlite_url, lake, rows_per_file=200, keep_orphans="0")
    expect_complete(spark, sqlite_url, lake)


def python_workers(spark: SparkSession) -> list[int]:
    """What the Python daemons of this session's JVM have forked."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    root = int(jvm.java.lang.ProcessHandle.current().pid())
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    # Not the daemons: without one the whole session is of no use, which is Spark's to mend.
    return [worker for daemon in children.get(root, []) for worker in children.get(daemon, [])]


def killed_driver(spark: SparkSession, url: str, lake: Path, kills: int) -> None:
    rng = random.Random(kills)
    for _kill in range(kills):
        process = start("archive", url, str(lake), "60")
        assert told(process) == "ready"
        for _step in range(rng.randrange(1, 4)):
            if told(process) == "done":
                break
        time.sleep(rng.uniform(0, 0.5))  # somewhere in the next step: any moment will do
        os.killpg(process.pid, signal.SIGKILL)  # driver, JVM and Python workers at once
        process.communicate()
    archive(spark, url, lake, rows_per_file=60, compact=True, keep_removed="0", keep_orphans="0")
    expect_complete(spark, url, lake)


@pytest.mark.middle
def test_killed_with_all_it_has_started(
    spark: SparkSession, sqlite_url: str, tmp_path: Path
) -> None:
    fill(sqlite_url, 1500)
    killed_driver(spark, sqlite_url, tmp_path / "lake", kills=1)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_killed_ten_times(spark: SparkSession, sqlite_url: str, tmp_path: Path) -> None:
    fill(sqlite_url, 12_000)
    killed_driver(spark, sqlite_url, tmp_path / "lake", kills=10)
