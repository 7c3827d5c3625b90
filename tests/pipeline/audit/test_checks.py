"""Every check finds what breaks it and nothing else; a healthy store passes while it is in use."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tape.journal.ids import UlidFactory
from tape.journal.retention import plan_prune, prune
from tape.pipeline.job import JobContext
from tape.pipeline.jobs.audit import reading
from tape.pipeline.jobs.audit.catalogue import CHECKS
from tape.pipeline.jobs.audit.checks import accepted, subscriptions
from tape.pipeline.jobs.audit.finding import Violation, run_checks
from tape.pipeline.jobs.audit.frames import Frames
from tape.pipeline.jobs.audit.job import Audit
from tape.pipeline.jobs.audit.reading import read_frames
from tape.pipeline.jobs.audit.small_tables import sized_for
from tape.ports.store import Store
from tape.settings import Settings
from tape.stores.blocking import Stores
from tape.stores.by_url import open_store
from tests.pipeline.audit.healthy import (
    drain_nothing,
    make_healthy,
    unsubscribe_all,
    walk_runs,
)
from tests.pipeline.audit.planting import Field
from tests.pipeline.audit.plants import plant_everything
from tests.pipeline.audit.sowing import sow
from tests.pipeline.audit.subscribed import forget_places, live_on

pytestmark = pytest.mark.timeout(300)

WALKED = {"obligation_of_effect", "budget_cap", "lease_takeover", "decision_contiguous"}
"""Warnings: a walk does what Tape lets anybody do, and nobody means."""


def work(spark: SparkSession, url: str) -> JobContext:
    return JobContext(spark, url, Stores().store(url))


def identity(violation: Violation) -> str:
    return violation.run_id or violation.key or str(violation.global_seq)


FEW = (
    "global_seq_unique", "event_id_unique", "run_row", "effect_row", "task_row", "runs_columns",
    "credential_row", "accepted_counts",
)  # fmt: skip
"""Checks of all sorts: by rules, in entries, in runs, in tables."""
SUBSCRIBED = (
    "event_id_unique",
    *(check.name for check in (*subscriptions.CHECKS, *accepted.CHECKS)),
)


@pytest.mark.parametrize(
    ("kind", "is_small", "names"),
    [
        ("sqlite", True, FEW),
        pytest.param("sqlite", True, (), marks=pytest.mark.middle),
        pytest.param("migrated_postgres", True, (), marks=pytest.mark.middle),
        pytest.param("sqlite", False, FEW, marks=pytest.mark.middle),
        pytest.param(
            "sqlite", False, SUBSCRIBED, marks=[pytest.mark.long, pytest.mark.timeout(900)]
        ),
        pytest.param("sqlite", False, (), marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
    ids=["sqlite, few", "sqlite", "postgres", "large", "large, subscribed", "large, all"],
)
def test_a_planted_violation_of_each_check_is_found_by_just_that_check(
    spark: SparkSession,
    kind: str,
    is_small: bool,
    names: tuple[str, ...],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not is_small:
        monkeypatch.setattr(reading, "read_small_tables", lambda *_tables: {})
        monkeypatch.setattr(reading, "read_small_journal", lambda *_journal: None)
    url: str = request.getfixturevalue(f"{kind}_url")
    runs = Stores().store(url, creating=True)(make_healthy)
    field = Field(url, time.time_ns() // 1_000_000)
    sow(field)
    to_double = plant_everything(field, runs)
    assert field.expected.keys() == CHECKS.keys()
    field.db.close()
    read = read_frames(work(spark, url), names)
    # As if pruned entries had come back from a lake, and entries were written meanwhile.
    moment = replace(read.moment, before=field.before, pruned_through=1)
    double = read.journal.where(F.col("global_seq") == to_double).withColumn(
        "event_id", F.lit(next(UlidFactory()))
    )
    keep = read.keep_local
    assert (keep is not None) == is_small
    journal = read.journal.unionByName(double)
    if keep is not None:
        journal = keep(journal)
    frames = Frames(journal, read.tables, moment, empty=read.empty, keep_local=keep)
    with sized_for(spark, 0, local=is_small):
        results = {r.check.name: r for r in run_checks(frames, names, limit=100)}
    frames.release()
    found = {name: {identity(v) for v in result.violations} for name, result in results.items()}
    assert found == {name: field.expected[name] for name in names or CHECKS}
    assert all(result.count == len(result.violations) for result in results.values())


@contextmanager
def writing(url: str) -> Iterator[Callable[[], int]]:
    """Somebody who goes on writing all the time; tells how often it has."""
    stop, rounds = threading.Event(), 0

    async def write() -> None:
        nonlocal rounds
        store: Store = await open_store(url, Settings())
        try:
            while not stop.is_set():
                await walk_runs(store, f"live {rounds}", rounds, 10)
                await live_on(store, rounds)
                rounds += 1
                await asyncio.sleep(0.1)  # Spark needs the processor too
        finally:
            await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(write()))
    thread.start()
    try:
        yield lambda: rounds
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("sqlite", marks=pytest.mark.middle),
        pytest.param("migrated_postgres", marks=pytest.mark.long),
    ],
)
def test_a_healthy_store_passes_while_it_is_written_to(
    spark: SparkSession, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store_url: str = request.getfixturevalue(f"{kind}_url")

    async def make(store: Store) -> None:
        await make_healthy(store)
        await walk_runs(store, "app", 7, 200)

    Stores().store(store_url, creating=True)(make)
    report = tmp_path / "report.json"
    with writing(store_url) as rounds:
        before = rounds()
        summary = Audit(report=str(report)).run(work(spark, store_url))
        assert rounds() > before
    told = json.loads(report.read_text())
    broken = {check["name"] for check in told["checks"] if check["count"]}
    assert broken <= WALKED, [c for c in told["checks"] if c["count"] and c["name"] not in WALKED]
    assert summary.failed == ""
    assert summary.counts["checks"] == len(CHECKS) == len(told["checks"])
    assert summary.counts["entries"] == told["entries"] > 200


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("sqlite", marks=pytest.mark.middle),
        pytest.param("migrated_postgres", marks=pytest.mark.long),
    ],
)
def test_a_healthy_store_passes_after_its_journal_was_pruned(
    spark: SparkSession, kind: str, request: pytest.FixtureRequest
) -> None:
    store_url: str = request.getfixturevalue(f"{kind}_url")

    async def make(store: Store) -> int:
        await make_healthy(store, with_tasks=False)  # a reaction would hold the prune up
        await walk_runs(store, "app", 7, 20)
        await unsubscribe_all(store)
        await drain_nothing(store)
        assert await forget_places(store, "events") > 0
        return (await prune(store, await plan_prune(store, 0, []))).removed

    assert Stores().store(store_url, creating=True)(make) > 20
    summary = Audit().run(work(spark, store_url))
    broken = summary.facts.get("violations", {})
    assert isinstance(broken, dict)
    assert broken.keys() <= WALKED, summary.facts
    assert summary.failed == ""
