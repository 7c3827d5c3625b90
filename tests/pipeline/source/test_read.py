"""`spark.read.format("tape")`: what it gives is what is in the journal, narrowed as asked."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tape.spark
from tape.journal.follow import envelope
from tape.model.entry import Entry
from tape.model.subject import parse_pattern
from tape.predicates import PredicateError, check
from tests.pipeline.source.journals import odd_entries, prune, run_sql, write_journal

NUMBERS = [*range(1, 300), *range(1_000, 1_300)]
WHERE = 'payload.n > 1.0 || trace_id == "it\'s"'


@pytest.fixture(params=["sqlite", "migrated_postgres"])
def url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


def read(spark: SparkSession, url: str, **options: str | int) -> DataFrame:
    return spark.read.format("tape").options(url=url, **options).load()


def rows(frame: DataFrame) -> list[Entry]:
    return sorted(Entry(*row) for row in frame.collect())


def holds(entry: Entry, where: str) -> bool:
    try:
        return check(where).evaluate(envelope(entry, with_payload=True))
    except PredicateError:
        return False


def test_the_journal_as_a_table(spark: SparkSession, url: str) -> None:
    written = write_journal(url, odd_entries(NUMBERS))
    whole = read(spark, url, partition_rows=100, batch_rows=30)
    assert whole.rdd.getNumPartitions() > 4
    assert rows(whole) == written

    ranged = read(spark, url, **{"from": 250, "upto": 1_010})
    assert rows(ranged) == [e for e in written if 250 < e.global_seq <= 1_010]
    narrow = spark.read.format("tape").schema("subject string, seq bigint").options(url=url).load()
    assert sorted(narrow.collect()) == sorted((e.subject, e.seq) for e in written)

    for pattern in ("/tape/event/recorded/order/**", "/tape/*/recorded/*/acc/*", "/tape/event/**"):
        matches = parse_pattern(pattern).matches
        chosen = read(spark, url, pattern=pattern, where=WHERE)
        assert rows(chosen) == [e for e in written if matches(e.subject) and holds(e, WHERE)]
    with pytest.raises(PySparkException, match="PredicateError: where, at entry"):
        read(spark, url, where=WHERE, on_error="fail").count()


def test_one_frame_serves_many_queries(spark: SparkSession, url: str) -> None:
    """Pushed filters would stay with the frame (Spark 4.3), so by default none are pushed."""
    written = write_journal(url, odd_entries(range(1, 200)))
    frame = read(spark, url)
    few, rest = frame.where("global_seq <= 10"), frame.where("global_seq > 150")
    assert (few.count(), frame.count(), few.union(rest).count()) == (10, 199, 59)

    # The same filters, decided by the store for one query and by Spark for another.
    event = (F.col("kind") == "event") & F.col("subject").startswith("/tape/event/recorded/order")
    text = F.col("trace_id").isin("", "it's", "ü") & (F.col("caused_by") >= "b")
    number = (F.col("global_seq") > 20) & (F.col("schema_version") != 7)
    plain = frame.where(event & text & number)
    pushed = read(spark, url, push_filters="true").where(event & text & number)
    plan = pushed._jdf.queryExecution().executedPlan().toString()
    assert "schema_version" in plan.split("Filter", 1)[1].split("\n", 1)[0]
    assert "trace_id" not in plan.split("Filter", 1)[1].split("\n", 1)[0]
    assert rows(pushed) == rows(plain)
    assert 0 < plain.count() < len(written)


def test_the_payload_as_a_variant_and_other_tables(spark: SparkSession, sqlite_url: str) -> None:
    write_journal(sqlite_url, odd_entries(range(1, 50)))
    parsed = tape.spark.journal(spark, sqlite_url, payload="variant", upto=20)
    texts = parsed.selectExpr("payload_json", "to_json(payload) AS again").collect()
    assert {row.again for row in texts if row.payload_json == '{"n":1,"n":3}'} == {'{"n":3}'}
    with pytest.raises(PySparkException, match="adds the parsed column"):
        read(spark, sqlite_url, payload="variant").count()

    columns = "namespace, key, value_json, version, ts_ms, writer, deleted"
    made = f"INSERT INTO tape_values ({columns}) VALUES ('n', 'k', '1', 3, 4, '', TRUE)"
    run_sql(sqlite_url, [made])
    (value,) = read(spark, sqlite_url, table="values").collect()
    assert value == ("n", "k", "1", 3, 4, "", True)
    assert (
        read(spark, sqlite_url, table="runs").schema["status"].dataType.simpleString() == "bigint"
    )


def test_what_cannot_be_read_is_said(spark: SparkSession, url: str) -> None:
    write_journal(url, odd_entries(range(1, 50)))
    prune(url, 20)
    assert read(spark, url).count() == 29
    for options, said in (
        ({"from": 19}, "Pruned: from: entries up to 20 have been pruned and 20 is asked for"),
        ({"from": 50}, "InvalidArgument: from: 50 is beyond the end of this journal, 49"),
        ({"patern": "x"}, "InvalidArgument: patern: is not an option .* did you mean pattern"),
        ({"where": "kind = 'x'"}, "InvalidArgument: where at position 5"),
    ):
        with pytest.raises(PySparkException, match=said):
            read(spark, url, **options).count()
    with pytest.raises(PySparkException, match="schema: there is no column 'nothing'"):
        spark.read.format("tape").schema("nothing long").options(url=url).load().count()
