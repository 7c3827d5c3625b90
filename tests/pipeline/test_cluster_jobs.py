"""Every job on a standalone cluster, whose executors share files and store with the driver, and on
Spark Connect, whose server does."""

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import tape
from tests.pipeline.backfill.test_job import NAMES, expected, keys, record, register, tasks_of, use
from tests.pipeline.cluster import WORKERS, Cluster, spark_cluster, spark_connect
from tests.pipeline.rollup.arrivals import Arrival, arrivals
from tests.pipeline.rollup.by_pandas import bars_by_pandas
from tests.pipeline.rollup.told import as_values, told

EVENTS = 300
FILES = 4


def land(folder: Path, arrived: list[Arrival]) -> None:
    """As files of JSON lines, the last of each no JSON."""
    folder.mkdir()
    for number in range(FILES):
        lines = [
            json.dumps({"event_type": one.event_type, "payload": json.loads(one.payload_json)})
            for one in arrived[number::FILES]
        ]
        (folder / f"{number}.json").write_text("\n".join([*lines, "{"]) + "\n")


def spec(folder: Path, url: str) -> dict[str, Any]:
    lake = str(folder / "lake")
    return {
        "store": url,
        "jobs": [
            {"ingest": {
                "source": "files", "path": str(folder / "in"), "shape": "event",
                "checkpoint": str(folder / "point"), "quarantine": str(folder / "bad"),
            }},
            {"archive": {"lake": lake, "rows_per_file": 150, "compact": True}},
            {"backfill": {"reactions": list(NAMES), "from_seq": 0, "lake": lake}},
            {"rollup": {"out": str(folder / "rollup"), "lake": lake, "values": True}},
            {"audit": {"lake": lake, "report": str(folder / "audit.json")}},
        ],
    }  # fmt: skip


def on(cluster: Cluster) -> list[str]:
    settings = [part for item in cluster.config.items() for part in ("--conf", "=".join(item))]
    return ["--master", cluster.master, *settings]


def start(file: Path, *where: str, only: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    jobs = [part for job in only for part in ("--only", job)]
    return subprocess.run(
        [sys.executable, "-m", "tape.cli", "pipeline", "run", str(file), "--json", *where, *jobs],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def run(file: Path, *where: str, only: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    done = start(file, *where, only=only)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["job"]: one for one in said}


def executors(cluster: Cluster) -> int:
    return len({path.parent.parent for path in cluster.folder.glob("worker-*/app-*/*")})


def prepare(url: str, folder: Path) -> tuple[Path, list[Arrival], int]:
    """The jobs as a file, what there is to ingest, and how many of that are no klines."""
    arrived, bad = arrivals(random.Random(4), minutes=60)
    land(folder / "in", arrived)
    record(url, count=EVENTS)
    register(url)
    file = folder / "jobs.yaml"
    file.write_text(yaml.safe_dump(spec(folder, url)))
    return file, arrived, bad


def tasks_upto(url: str, head: int) -> set[tuple[str, int, int]]:
    return {task for task in use(url, tasks_of) if task[2] <= head}


@pytest.mark.middle
@pytest.mark.timeout(300)
def test_ingest(sqlite_url: str, tmp_path: Path) -> None:
    file, arrived, _ = prepare(sqlite_url, tmp_path)
    with spark_cluster() as cluster:
        done = run(file, *on(cluster), only=["ingest"])
        assert executors(cluster) == WORKERS
    assert (done["ingest"]["written"], done["ingest"]["quarantined"]) == (len(arrived), FILES)
    with tape.connect(sqlite_url) as client:
        assert len(list(client.follow(live=False))) == EVENTS + len(arrived)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_job(store_url: str, tmp_path: Path) -> None:
    file, arrived, bad = prepare(store_url, tmp_path)
    with spark_cluster() as cluster:
        first = run(file, *on(cluster))
        second = run(file, *on(cluster))
        assert executors(cluster) == WORKERS

    head = EVENTS + len(arrived)
    assert (first["ingest"]["written"], first["ingest"]["quarantined"]) == (len(arrived), FILES)
    assert first["archive"]["archived"] == head
    assert tasks_upto(store_url, head) == keys(expected(store_url, head))
    with tape.connect(store_url) as client:
        journal = list(client.follow(live=False))[EVENTS:head]
    wrong = [entry.payload_json for entry in journal if entry.event_type == "market.klines.bad"]
    kept = [Arrival(entry.event_type, entry.payload_json) for entry in journal]
    assert told(store_url) == as_values(bars_by_pandas(kept, wrong))
    assert first["rollup"]["rejected"] == bad
    assert first["audit"]["errors"] == second["audit"]["errors"] == 0

    # Once more is no more: only the values of the bars are new to the second run.
    assert (second["ingest"]["written"], second["rollup"]["bars_changed"]) == (0, 0)
    assert second["backfill"]["already_there"] == first["backfill"]["made"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_spark_connect_runs_all_but_ingest(sqlite_url: str, tmp_path: Path) -> None:
    file, arrived, bad = prepare(sqlite_url, tmp_path)
    with tape.connect(sqlite_url) as client:
        client.record_many(
            tape.event(one.event_type, json.loads(one.payload_json)) for one in arrived
        )
    head = EVENTS + len(arrived)
    with spark_connect() as address:
        where = ("--remote", address)
        refused = start(file, *where, only=["ingest"])
        done = run(file, *where, only=("archive", "backfill", "rollup", "audit"))
    assert refused.returncode != 0
    assert "with --master" in refused.stderr
    assert done["archive"]["archived"] == head
    assert use(sqlite_url, tasks_of) == keys(expected(sqlite_url, head))
    assert done["rollup"]["rejected"] == bad
    assert done["audit"]["errors"] == 0
