"""An audit of a small journal is quick: what is empty is not looked at, and it starts at once."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

import tape
from tape.pipeline.jobs.audit import finding
from tape.pipeline.jobs.audit.catalogue import CHECKS
from tape.pipeline.jobs.audit.check import Check, columns_read
from tape.pipeline.jobs.audit.finding import run_checks
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, AuditScope, Frames
from tape.pipeline.jobs.audit.small_tables import JOURNAL, schema_of

ENTRIES = 1_000
MOST_CPU_S = 45.0
MOST_S = 15.0
MEASURED = """
import ctypes, json, os, resource, subprocess, sys, time
PR_SET_CHILD_SUBREAPER = 36  # Java outlives the Python that has started it, and is counted too
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
begun = time.monotonic()
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
seconds = time.monotonic() - begun
try:
    while True:
        os.wait()
except ChildProcessError:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    print(json.dumps([done.returncode, done.stdout, done.stderr, seconds, cpu]))
"""


class Measured(NamedTuple):
    code: int
    out: str
    err: str
    seconds: float
    cpu_s: float


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a store of a thousand entries."""
    with tape.connect(f"sqlite:{tmp_path / 'tape.db'}") as client:
        client.record_many([tape.NewEvent("x", f'{{"n": {n}}}') for n in range(ENTRIES)])
    return tmp_path


def audit_measured(folder: Path) -> Measured:
    """Audit the store, as somebody would type it who has not done so before."""
    kept = {n: t for n, t in os.environ.items() if not n.startswith(("TAPE_", "SPARK_"))}
    kept["XDG_CACHE_HOME"] = str(folder / "cache")
    command = [sys.executable, "-m", "tape.cli", "pipeline", "audit", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command, "--master", "local[2]"],
        cwd=folder, env=kept, capture_output=True, text=True, check=True, timeout=280,
    )  # fmt: skip
    return Measured(*json.loads(done.stdout))


@pytest.mark.middle
@pytest.mark.timeout(300)
def test_an_audit_of_a_thousand_entries_costs_little(folder: Path) -> None:
    measured = audit_measured(folder)
    assert measured.code == 0, measured.err
    assert json.loads(measured.out.splitlines()[-1])["entries"] == ENTRIES
    assert measured.cpu_s <= MOST_CPU_S, measured


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_audit_of_a_thousand_entries_takes_fifteen_seconds(folder: Path) -> None:
    """Whether it is the first on this machine or not."""
    runs = [audit_measured(folder) for _ in range(3)]
    assert [run.code for run in runs] == [0, 0, 0], runs
    assert max(run.seconds for run in runs) <= MOST_S, runs


def test_a_check_over_nothing_is_not_computed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def found(_frames: Frames, checks: Sequence[Check]) -> DataFrame:
        asked.extend(check.name for check in checks)
        return spark.createDataFrame([], "check STRING")

    monkeypatch.setattr(finding, "violations", found)
    journal = spark.createDataFrame([], schema_of(JOURNAL, ENTRY_COLUMNS.split()))
    tables = {*columns_read(CHECKS)} - {JOURNAL}

    def results(empty: set[str]) -> list[int]:
        frames = Frames(journal, {}, AuditScope(0, 0), empty=empty, keep_local=lambda frame: frame)
        return [result.count for result in run_checks(frames)]

    assert results(tables) == [0] * len(CHECKS)
    assert asked == []
    assert results(tables - {"timers"}) == [0] * len(CHECKS)
    assert sorted(asked) == ["json_columns", "timer_row", "timers_columns"]
