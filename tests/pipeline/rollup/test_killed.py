"""kill -9 of the job with all its processes: tables and values are as if it had run once."""

import json
import random
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tape
import tape.spark
from tests.pipeline.rollup.arrivals import Arrival, arrivals
from tests.pipeline.rollup.by_pandas import bars_by_pandas
from tests.pipeline.rollup.told import as_values, told
from tests.pipeline.write.killing import Sign, run_killed


def more(out: Path, pattern: str, chance: random.Random) -> Sign:
    """Some time after there is more of it than when the driver began."""
    before: list[int] = []
    since: list[float] = []
    wait_s = chance.uniform(0, 1)

    def came() -> bool:
        count = len(list(out.glob(pattern)))
        before[:] = before or [count]
        if not since and count > before[0]:
            since.append(time.monotonic())
        return bool(since) and time.monotonic() >= since[0] + wait_s

    return came


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_killed_again_and_again(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(3)
    arrived, _bad = arrivals(rng, minutes=300)
    url, out = f"sqlite:{tmp_path / 'tape.db'}", tmp_path / "out"
    with tape.connect(url) as client:
        client.record_many(
            tape.event(one.event_type, json.loads(one.payload_json), entity_id="x")
            for one in arrived
        )
    signs = ["bars/_data/*/klines", "bars/_data/*/bars", "bars/_versions/*.json"] * 2
    kills = [("everything", more(out, pattern, rng)) for pattern in signs]
    command = [
        "-m", "tape.cli", "pipeline", "rollup", "--store", url, "--out", str(out), "--what", "bars",
        "--values", "--slice-entries", str(len(arrived) // 3), "--master", "local[2]",
    ]  # fmt: skip
    assert run_killed(command, kills) >= 2  # type: ignore[arg-type]  # of these victims

    with tape.connect(url) as client:
        journal = list(client.follow(live=False))
    bad = [entry.payload_json for entry in journal if entry.event_type == "market.klines.bad"]
    kept = [Arrival(entry.event_type, entry.payload_json) for entry in journal if entry.entity_id]
    rows = tape.spark.rollup(spark, out, "bars").collect()
    bars = {tuple(row)[:-1] for row in rows}
    assert len(rows) == len(bars)
    assert bars == bars_by_pandas(kept, bad)
    assert told(url) == as_values(bars)
