"""Every job on a standalone cluster, whose executors share files and store with the driver."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import tape
from tests.pipeline.backfill.test_job import NAMES, expected, keys, record, register, tasks_of, use
from tests.pipeline.cluster import WORKERS, Cluster, spark_cluster
from tests.pipeline.rollup.arrivals import Arrival, arrivals
from tests.pipeline.rollup.by_pandas import bars_by_pandas
from tests.pipeline.rollup.told import as_values, told

EVENTS = 300


def land(folder: Path, arrived: list[Arrival]) -> None:
    """As files of JSON lines, the last of each no JSON."""
    folder.mkdir()
    for number in range(4):
        lines = [
            json.dumps({"event_type": one.event_type, "payload": json.loads(one.payload_json)})
            for one in arrived[number::4]
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


def run(cluster: Cluster, file: Path) -> dict[str, dict[str, Any]]:
    settings = [part for item in cluster.config.items() for part in ("--conf", "=".join(item))]
    done = subprocess.run(
        [sys.executable, "-m", "tape.cli", "pipeline", "run", str(file), "--json", "--master",
         cluster.master, *settings],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["job"]: one for one in said}


@pytest.mark.timeout(600)
def test_every_job(store_url: str, tmp_path: Path) -> None:
    arrived, bad = arrivals(random.Random(4), minutes=60)
    land(tmp_path / "in", arrived)
    record(store_url, count=EVENTS)
    file = tmp_path / "jobs.yaml"
    file.write_text(yaml.safe_dump(spec(tmp_path, store_url)))
    register(store_url)
    with spark_cluster() as cluster:
        first = run(cluster, file)
        homes = {path.parent.parent for path in cluster.folder.glob("worker-*/app-*/*")}
        second = run(cluster, file)
    assert len(homes) == WORKERS  # each had an executor

    head = EVENTS + len(arrived)
    assert (first["ingest"]["recorded"], first["ingest"]["quarantined"]) == (len(arrived), 4)
    assert first["archive"]["archived"] == head
    assert use(store_url, tasks_of) == keys(expected(store_url, head))
    with tape.connect(store_url) as client:
        journal = list(client.follow(live=False))[EVENTS:head]
    wrong = [entry.payload_json for entry in journal if entry.event_type == "market.klines.bad"]
    kept = [Arrival(entry.event_type, entry.payload_json) for entry in journal]
    assert told(store_url) == as_values(bars_by_pandas(kept, wrong))
    assert first["rollup"]["rejected"] == bad
    assert first["audit"]["errors"] == 0

    # Once more is no more: what a run itself has recorded is new to the next one, nothing else is.
    assert (second["ingest"]["recorded"], second["backfill"]["made"]) == (0, 0)
    assert second["rollup"]["bars_changed"] == 0
    assert use(store_url, tasks_of) == keys(expected(store_url, head))
