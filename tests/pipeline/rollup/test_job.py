"""The job on a journal: every aggregate, by increments, cut short and run again."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tape
from tape.cli.root import run
from tape.errors import InvalidArgument, Pruned
from tape.model.subject import parse_subject
from tape.pipeline.job import Job, JobContext
from tape.pipeline.jobs.rollup.bars import BARS_SCHEMA
from tape.pipeline.jobs.rollup.counts import COUNTS_SCHEMA
from tape.pipeline.jobs.rollup.job import Rollup
from tape.pipeline.jobs.rollup.latency import LATENCY_SCHEMA
from tape.pipeline.jobs.rollup.tables import RollupTables, Version
from tape.ports.retention import Retention
from tape.ports.store import Store
from tape.stores.blocking import Stores
from tests.pipeline.rollup.arrivals import Arrival, arrivals
from tests.pipeline.rollup.by_pandas import bars_by_pandas
from tests.pipeline.rollup.told import Rows, as_values, told

HOUR_MS = 3_600_000


@tape.effect
async def look_up(number: int) -> int:
    return number


@tape.app("quote")
async def quote(ctx: tape.Context, number: int) -> int:
    return await look_up(number)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'tape.db'}"


@pytest.fixture
def work(spark: SparkSession, url: str) -> JobContext:
    return JobContext(spark, url, Stores().store(url, creating=True))


def record(url: str, rng: random.Random, arrived: list[Arrival]) -> None:
    """Klines that happened up to minutes ago, and a few runs."""
    with tape.connect(url) as client:
        now = int(time.time() * 1000)
        client.record_many(
            tape.event(
                one.event_type,
                json.loads(one.payload_json),
                entity_id=one.event_type,
                occurred_at_ms=now - rng.choice([0, 3, 70, 5_000, 123_457]),
            )
            for one in arrived
        )
        for number in range(3):
            client.run(quote, number)


def entries(url: str) -> list[tape.Entry]:
    with tape.connect(url) as client:
        return list(client.follow(live=False))


def counted(journal: list[tape.Entry]) -> Rows:
    found = Counter(
        (
            entry.ts_ms - entry.ts_ms % HOUR_MS,
            "/tape/" + "/".join(entry.subject.removeprefix("/tape/").split("/")[:3]),
            entry.kind,
            entry.event_type,
        )
        for entry in journal
    )
    return {(*key, count) for key, count in found.items()}


def measured(journal: list[tape.Entry]) -> Rows:
    """Percentiles of the nearest rank, from all samples."""
    samples: dict[tuple[int, str, str], list[int]] = {}
    begun: dict[tuple[str, str], int] = {}

    def add(entry: tape.Entry, of: str, name: str, latency_ms: int) -> None:
        window = entry.ts_ms - entry.ts_ms % HOUR_MS
        samples.setdefault((window, of, name), []).append(latency_ms)

    for entry in journal:
        kind, verb, name, *_rest = parse_subject(entry.subject)
        if kind == "event":
            add(entry, kind, entry.event_type, entry.ts_ms - entry.occurred_at_ms)
        elif kind in ("run", "effect"):
            act = (kind, entry.payload.get("idempotency_key", entry.run_id))
            started = begun.setdefault(act, entry.ts_ms)
            if verb in ("terminal", "confirmed"):
                add(entry, kind, name, entry.ts_ms - started)
    made: Rows = set()
    for key, found in samples.items():
        found.sort()
        ranks = [found[ceil(len(found) * hundredths / 100) - 1] for hundredths in (50, 90, 99)]
        made.add((*key, len(found), *map(_kept, ranks), found[-1]))
    return made


def _kept(latency_ms: int) -> int:
    excess = max(latency_ms.bit_length() - 11, 0)
    return latency_ms >> excess << excess


def tables(work: JobContext, out: Path) -> tuple[Rows, Rows, Rows]:
    def rows(name: str, schema: str) -> Rows:
        return {
            tuple(row) for row in RollupTables(out / name).read(work.spark, name, schema).collect()
        }

    bars = {row[:-1] for row in rows("bars", BARS_SCHEMA)}
    return rows("counts", COUNTS_SCHEMA), rows("latency", LATENCY_SCHEMA), bars


def files(out: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in out.rglob("*")}


@pytest.mark.middle
def test_increments_cut_short_and_run_again(
    work: JobContext, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(11)
    arrived, _bad = arrivals(rng, minutes=40)
    half = len(arrived) // 2
    out = tmp_path / "out"
    everything = Rollup(out=str(out), values=True)
    only_bars = replace(everything, what=("bars",))

    record(url, rng, arrived[:half])
    everything.run(work)
    first = tables(work, out)[2]
    assert told(url) == as_values(first)

    record(url, rng, arrived[half:])
    for step in ("published", "settled"):
        with monkeypatch.context() as patch:
            patch.setattr(RollupTables, "publish", killed_before(step, RollupTables.publish))
            with pytest.raises(KeyboardInterrupt):
                only_bars.run(work)
    everything.run(work)

    journal = entries(url)
    counts, latencies, bars = tables(work, out)
    assert counts == counted(journal)
    assert latencies == measured(journal)
    bad = [entry.payload_json for entry in journal if entry.event_type == "market.klines.bad"]
    kept = [Arrival(entry.event_type, entry.payload_json) for entry in journal if entry.entity_id]
    assert bars == bars_by_pandas(kept, bad)
    assert told(url) == as_values(bars)
    changes = [entry for entry in journal if entry.kind == "value"]
    assert len(changes) == len(first) + len(bars - first)

    before = files(out)
    assert everything.run(work).counts == {"read": 0}
    assert files(out) == before


def killed_before(
    step: str, publish: Callable[[RollupTables, Version], None]
) -> Callable[[RollupTables, Version], None]:
    """As a kill leaves it: tables written and not published; values told and not marked so."""

    def killed(tables: RollupTables, version: Version) -> None:
        if version.owed == (step == "published"):
            raise KeyboardInterrupt
        publish(tables, version)

    return killed


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"what": ("averages",)}, "what: 'averages' is not one of counts, latency, bars"),
        ({"what": ()}, "what: names none of counts, latency, bars"),
        ({"window": "7m"}, "window: 7m does not divide a day"),
        ({"window": "1w"}, "window: '1w' is not a span of time"),
        ({"to": ("1m",)}, "to: 1m is not made of 1m"),
        ({"base": "15m", "to": ("1h", "20m")}, "to: 20m is not made of 15m"),
        ({"to": ()}, "to: names no period"),
        ({"depth": 0}, "depth: must be at least 1"),
        ({"events": ""}, "events: is empty"),
        ({"out": "s3://bucket"}, "out: 's3://bucket' is not a folder"),
    ],
)
def test_bad_options_are_refused(
    work: JobContext, tmp_path: Path, options: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(InvalidArgument, match=wrong):
        Rollup(**{"out": str(tmp_path / "out"), **options}).run(work)
    assert not (tmp_path / "out").exists()


def test_tables_of_another_making_are_left_alone(work: JobContext, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = RollupTables(out / "counts")
    made.publish(made.draft(0).version({"window": "1h", "depth": 3}))
    with pytest.raises(InvalidArgument, match=r"was made with .*'1h'.*: name another folder"):
        Rollup(out=str(out), what=("counts",), window="1d").run(work)
    made.publish(made.draft(10**9).version({"window": "1h", "depth": 3}))
    with pytest.raises(InvalidArgument, match="it was made from another store"):
        Rollup(out=str(out), what=("counts",)).run(work)


def test_a_pruned_journal_needs_its_lake(
    work: JobContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    made = RollupTables(out / "counts")
    made.publish(made.draft(3).version({"window": "1h", "depth": 3}))

    async def pruned(_store: Store) -> Retention:
        return Retention(pruned_through=5, first=6, head=9, holds=[])

    monkeypatch.setattr("tape.pipeline.jobs.rollup.job._look", pruned)
    with pytest.raises(Pruned, match="is at 3, but the journal is pruned up to 5"):
        Rollup(out=str(out), what=("counts",)).run(work)


def test_the_command_says_what_the_job_is_told(
    monkeypatch: pytest.MonkeyPatch, sqlite_url: str
) -> None:
    asked: list[Job] = []
    monkeypatch.setenv("TAPE_STORE", sqlite_url)
    tape.connect(sqlite_url).close()
    monkeypatch.setattr(
        "tape.cli.pipeline.rollup.run_jobs", lambda _target, jobs, **_rest: asked.extend(jobs)
    )
    assert run(["pipeline", "rollup", "--out", "o"]) == 0
    assert (
        run(["pipeline", "rollup", "--out", "o", "--what", "bars", "--to", "1h", "--values"]) == 0
    )
    assert asked == [Rollup(out="o"), Rollup(out="o", what=("bars",), to=("1h",), values=True)]
