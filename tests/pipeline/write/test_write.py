"""Rows of Spark in the journal of both stores, beside ordinary writers, and each of them once."""

import threading
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import tape
from tape.model.entry import Entry

ROWS = 5_000


@pytest.fixture(params=["sqlite", "migrated_postgres"])
def url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


def events(spark: SparkSession) -> DataFrame:
    """Rows without keys, and a few with keys that others have."""
    return spark.range(0, ROWS, numPartitions=3).selectExpr(
        "'order.placed' AS event_type",
        "to_json(struct(id)) AS payload_json",
        "IF(id % 1000 = 7, 'taken', IF(id % 1000 = 8, NULL, '')) AS idempotency_key",
        "CAST(id AS STRING) AS entity_id",
        "CAST(IF(id = 3, NULL, 2) AS SMALLINT) AS schema_version",
        "id AS occurred_at_ms",
    )


def journal(url: str) -> list[Entry]:
    with tape.connect(url) as client:
        return list(client.follow(live=False))


class Beside:
    """An ordinary writer that records one event after another for as long as the block lasts."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.wrote = 0

    def _write(self) -> None:
        with tape.connect(self._url) as client:
            while not self._over.is_set():
                client.record("beside", entity_id=str(self.wrote))
                self.wrote += 1

    def __enter__(self) -> "Beside":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()


def test_a_batch_is_in_the_journal_once(spark: SparkSession, url: str) -> None:
    with tape.connect(url) as client:
        client.record("first", idempotency_key="taken")
    rows = events(spark)
    with Beside(url) as beside:
        for _ in range(2):  # the second time it is done already
            rows.write.format("tape").mode("append").options(url=url, write_id="w").save()
    found = journal(url)
    assert [entry.global_seq for entry in found] == list(range(1, len(found) + 1))
    assert [e.entity_id for e in found if e.event_type == "beside"] == [
        str(n) for n in range(beside.wrote)
    ]
    ours = [entry for entry in found if entry.event_type == "order.placed"]
    # Whoever has the key was there first; the rest is there in its order.
    assert [entry.entity_id for entry in ours] == [str(n) for n in range(ROWS) if n % 1000 != 7]
    assert all(entry.payload == {"id": int(entry.entity_id)} for entry in ours)
    assert {entry.entity_id for entry in ours if entry.schema_version == 1} == {"3"}
    assert [entry.occurred_at_ms for entry in ours[1:3]] == [1, 2]
    assert ours[0].occurred_at_ms == ours[0].ts_ms
    assert len({entry.event_id for entry in found}) == len(found)


def test_values_and_refusals(spark: SparkSession, sqlite_url: str) -> None:
    values = spark.range(0, 4, numPartitions=1).selectExpr(
        "'bars' AS namespace", "CAST(id % 3 AS STRING) AS key", "to_json(struct(id)) AS value_json"
    )
    target = {"url": sqlite_url, "into": "values", "write_id": "bars"}
    for epoch in ("0", "1", "1"):
        values.write.format("tape").mode("append").options(**target, epoch=epoch).save()
    with tape.connect(sqlite_url) as client:
        listed = client.list_values("bars")
        assert [(v.key, v.value, v.version) for v in listed] == [
            ("0", {"id": 3}, 4), ("1", {"id": 1}, 2), ("2", {"id": 2}, 2),
        ]  # fmt: skip
    bad = spark.range(0, 3, numPartitions=1).selectExpr(
        "'e' AS event_type", "IF(id = 2, '{', '1') AS payload_json", "CAST(id AS STRING) entity_id"
    )
    with pytest.raises(PySparkException, match="payload_json at position 1: not valid JSON"):
        bad.write.format("tape").mode("append").options(url=sqlite_url).save()
    with pytest.raises(PySparkException, match="mode: the journal can only be appended to"):
        bad.write.format("tape").mode("overwrite").options(url=sqlite_url).save()
    assert {entry.kind for entry in journal(sqlite_url)} == {"value"}


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "in").mkdir()
    return spark.readStream.schema("event_type string, entity_id string").json(str(tmp_path / "in"))


def test_a_stream_goes_on_and_a_new_checkpoint_begins_anew(
    spark: SparkSession, lines: DataFrame, sqlite_url: str, tmp_path: Path
) -> None:
    def run(checkpoint: str, **options: str) -> None:
        query = (
            lines.writeStream.format("tape")
            .options(url=sqlite_url, checkpointLocation=str(tmp_path / checkpoint), **options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    (tmp_path / "in" / "a").write_text('{"event_type":"e","entity_id":"1"}\n')
    run("one")
    (tmp_path / "in" / "b").write_text('{"event_type":"e","entity_id":"2"}\n')
    run("one")
    assert [entry.entity_id for entry in journal(sqlite_url)] == ["1", "2"]
    run("two", write_id="named")
    assert sorted(entry.entity_id for entry in journal(sqlite_url)) == ["1", "1", "2", "2"]
    # It would be at epoch 0 of a write that is beyond: everything would be skipped in silence.
    with pytest.raises(PySparkException, match="'named' belongs to another write"):
        run("three", write_id="named")
    assert len(journal(sqlite_url)) == 4
