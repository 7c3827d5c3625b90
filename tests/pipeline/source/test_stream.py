"""`spark.readStream.format("tape")`: every entry once, in steps as large as allowed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery

import tape.spark
from tape.errors import InvalidArgument, Pruned
from tape.pipeline.schema import ENTRY_SCHEMA
from tape.pipeline.source.options import read_options
from tape.pipeline.source.stream import JournalStream
from tape.stores.blocking import Stores
from tests.pipeline.source.journals import odd_entries, prune, write_journal

NUMBERS = [*range(1, 151), *range(10_000, 10_100)]
WRITER = """
import sys, tape
url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with tape.connect(url) as client:
    for number in range(count):
        client.record("raced", entity_id=f"{name}/{number}")
"""


@pytest.fixture(params=["sqlite", "migrated_postgres"])
def url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


def stream(url: str, **options: str) -> JournalStream:
    return JournalStream(
        Stores(), read_options({"url": url, **options}, streaming=True), ENTRY_SCHEMA
    )


class Seen:
    """What came, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, batch: DataFrame, _number: int) -> None:
        self.batches.append(sorted(row.global_seq for row in batch.select("global_seq").collect()))

    @property
    def numbers(self) -> list[int]:
        return [number for batch in self.batches for number in batch]


def run_through(frame: DataFrame, seen: Seen, checkpoint: Path) -> StreamingQuery:
    """All that is available now, to the end."""
    writer = frame.writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_offsets_count_entries_and_are_checked(url: str) -> None:
    write_journal(url, odd_entries(NUMBERS))
    every = stream(url)
    assert every.initialOffset() == {"global_seq": 0}
    assert stream(url, start="latest").initialOffset() == {"global_seq": 10_099}
    assert stream(url, start="140").initialOffset() == {"global_seq": 140}
    assert every.getDefaultReadLimit() == ReadAllAvailable()
    assert stream(url, max_entries_per_trigger="20").getDefaultReadLimit() == ReadMaxRows(20)
    at = {"global_seq": 140}
    assert every.latestOffset(at, ReadMaxRows(20)) == {"global_seq": 10_009}
    assert every.latestOffset(at, ReadMaxRows(110)) == {"global_seq": 10_099}
    assert every.latestOffset(at, ReadMaxRows(10**6)) == {"global_seq": 10_099}
    assert every.latestOffset({"global_seq": 10_099}, ReadMaxRows(1)) == {"global_seq": 10_099}
    assert every.partitions(at, at) == []

    with pytest.raises(InvalidArgument, match="10100 is beyond the end of this journal, 10099"):
        every.latestOffset({"global_seq": 10_100}, ReadAllAvailable())
    with pytest.raises(InvalidArgument, match="beyond the end"):
        every.partitions(at, {"global_seq": 10_100})
    with pytest.raises(InvalidArgument, match="start: 10100 is beyond the end"):
        stream(url, start="10100").initialOffset()
    for foreign in ({}, {"topic": {"0": 5}}, {"global_seq": "5"}, {"global_seq": -1}):
        with pytest.raises(InvalidArgument, match="does the checkpoint belong to another stream"):
            every.latestOffset(foreign, ReadAllAvailable())


def test_what_was_pruned_is_not_skipped_in_silence(url: str) -> None:
    write_journal(url, odd_entries(NUMBERS))
    prune(url, 50)
    every = stream(url)
    assert every.initialOffset() == {"global_seq": 50}
    with pytest.raises(Pruned, match="offset: entries up to 50 have been pruned and 50 is asked"):
        every.latestOffset({"global_seq": 49}, ReadAllAvailable())
    with pytest.raises(Pruned, match="start: entries up to 50"):
        stream(url, start="0").initialOffset()
    with pytest.raises(Pruned):
        every.partitions({"global_seq": 0}, {"global_seq": 100})


def test_all_that_is_there_in_steps_and_on_from_the_checkpoint(
    spark: SparkSession, sqlite_url: str, tmp_path: Path
) -> None:
    written = write_journal(sqlite_url, odd_entries(NUMBERS))
    frame = tape.spark.follow(
        spark, sqlite_url, max_entries_per_trigger=100, pattern="/tape/event/**", partition_rows=60
    )
    seen = Seen()
    query = run_through(frame, seen, tmp_path / "at")
    events = [e.global_seq for e in written if e.kind == "event"]
    assert seen.numbers == events
    ends = [
        json.loads(p.json)["sources"][0]["endOffset"]["global_seq"] for p in query.recentProgress
    ]
    assert ends[:3] == [100, 10_049, 10_099]
    last = json.loads(query.lastProgress.json)["sources"][0]  # type: ignore[union-attr]
    assert last["latestOffset"]["global_seq"] == 10_099

    more = write_journal(sqlite_url, odd_entries(range(20_000, 20_010)))
    again = Seen()
    run_through(frame, again, tmp_path / "at")
    assert again.numbers == [e.global_seq for e in more if e.kind == "event"]


def race(spark: SparkSession, url: str, folder: Path, *, writers: int, each: int) -> None:
    write_journal(url, [])
    seen = Seen()
    frame = tape.spark.follow(spark, url, max_entries_per_trigger=each)
    query = frame.writeStream.foreachBatch(seen).option("checkpointLocation", str(folder)).start()
    try:
        racing = [
            subprocess.Popen([sys.executable, "-c", WRITER, url, f"w{n}", str(each)])
            for n in range(writers)
        ]
        assert [process.wait() for process in racing] == [0] * writers
        query.processAllAvailable()
    finally:
        query.stop()
    with tape.connect(url) as client:
        there = [entry.global_seq for entry in client.follow(live=False)]
    assert len(there) == writers * each
    assert len(seen.batches) > 1
    assert seen.numbers == there


def test_nothing_is_skipped_or_read_twice_while_others_write(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    race(spark, url, tmp_path / "at", writers=3, each=200)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_is_skipped_or_read_twice_for_long(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    race(spark, url, tmp_path / "at", writers=6, each=8_000)
