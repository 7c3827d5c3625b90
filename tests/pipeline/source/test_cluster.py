"""Reading where executors are other processes in other folders: a standalone cluster."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.cluster import spark_cluster
from tests.pipeline.source.journals import odd_entries, write_journal

# A process has one Spark context, and that of the other tests is local: this one is a process of
# its own, as a user's program would be.
PROGRAM = """
import sys
import tape.spark
from pyspark.sql import functions as F

master, url, checkpoint = sys.argv[1:4]
config = dict(item.split("=", 1) for item in sys.argv[4:])
spark = tape.spark.session(master=master, config=config)
frame = tape.spark.journal(spark, url, partition_rows=100)
homes = F.udf(lambda _: __import__("os").getcwd(), "string")
print("rows", frame.count(), flush=True)
print("homes", frame.select(homes("global_seq")).distinct().count(), flush=True)
counts = []
stream = tape.spark.follow(spark, url, max_entries_per_trigger=200)
query = (
    stream.writeStream.foreachBatch(lambda batch, _: counts.append(batch.count()))
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination()
print("streamed", *counts, flush=True)
spark.stop()
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_cluster_reads_and_follows(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_journal(sqlite_url, odd_entries(range(1, 501)))
    monkeypatch.chdir(tmp_path)
    relative = f"sqlite:{os.path.relpath(sqlite_url.removeprefix('sqlite:'), tmp_path)}"
    with spark_cluster() as cluster:
        config = [f"{name}={value}" for name, value in cluster.config.items()]
        said = subprocess.run(
            [sys.executable, "-c", PROGRAM, cluster.master, relative, "checkpoint", *config],
            check=True, stdout=subprocess.PIPE, text=True,
        ).stdout  # fmt: skip
    assert said.splitlines() == ["rows 500", "homes 2", "streamed 200 200 100"]
