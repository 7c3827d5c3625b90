"""Generated expressions over generated entries: Spark, Python and SQL must agree on each."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tape.errors import InvalidArgument
from tape.model.entry import Entry
from tape.predicates import Predicate, check
from tests.pipeline.predicates.deciding import (
    Database,
    Postgres,
    Sqlite,
    by_python,
    by_spark,
    frame,
)
from tests.pipeline.predicates.generated import (
    EVERY_RULE,
    Entries,
    Expressions,
    an_entry,
    plain_entries,
)

SEED = 20_261_116


def entries_of(random: Random, count: int) -> list[Entry]:
    maker = Entries(random)
    return [maker.entry(number) for number in range(1, count + 1)]


def predicates_of(random: Random, count: int) -> list[Predicate]:
    return [one for one, _ in zip(_checked(Expressions(random)), range(count), strict=False)]


def _checked(maker: Expressions) -> Iterator[Predicate]:
    while True:
        try:
            predicate = check(maker.expression())
        except InvalidArgument:
            continue  # what the checker refuses no engine is asked
        yield predicate


def compare(
    rows: DataFrame, entries: list[Entry], predicates: list[Predicate], postgres_url: str
) -> Counter[str]:
    found = by_spark(rows, predicates)
    counted = found.engines
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        databases: dict[str, Database] = {
            "sqlite": Sqlite(entries),
            "postgres": Postgres(connection, entries),
        }
        for predicate, verdicts in zip(predicates, found.verdicts, strict=True):
            expected = by_python(predicate, entries)
            _assert_same("spark", predicate, entries, verdicts, expected)
            for name, database in databases.items():
                told = database.verdicts(predicate)
                if told is not None:
                    counted[name] += 1
                    _assert_same(name, predicate, entries, told, expected)
            counted.update(str(verdict) for verdict in expected)
    return counted


def _assert_same(
    engine: str,
    predicate: Predicate,
    entries: list[Entry],
    found: list[bool | None],
    expected: list[bool | None],
) -> None:
    for entry, one, other in zip(entries, found, expected, strict=True):
        assert one is other, f"{engine}: {one}, Python: {other}: {predicate.expression} of {entry}"


def test_engines_agree(spark: SparkSession, migrated_postgres_url: str) -> None:
    random = Random(SEED)
    predicates = [*map(check, EVERY_RULE), *predicates_of(random, 55)]
    entries = entries_of(random, 40)
    entries += [an_entry(number, text) for number, text in enumerate(plain_entries(), 41)]
    counted = compare(frame(spark, entries), entries, predicates, migrated_postgres_url)
    assert len(entries) * len(predicates) > 10_000
    assert counted["column"] > len(predicates) / 2
    assert min(counted["udf"], counted["sqlite"], counted["postgres"]) > 10
    assert min(counted["True"], counted["False"], counted["None"]) > 1_000


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_engines_agree_at_length(spark: SparkSession, migrated_postgres_url: str) -> None:
    for seed in range(10):
        random = Random(seed)
        entries, predicates = entries_of(random, 80), predicates_of(random, 150)
        compare(frame(spark, entries), entries, predicates, migrated_postgres_url)


SHREDDED = [
    *("payload.a > 1.0", "payload.a == 2", "payload.a in [1, 2, 3]", "payload.b >= 2.5"),
    *("payload.a < payload.b", "double(payload.a) * 2.0 == 4.0", "payload.text == '2'"),
    *("payload.text.startsWith('x')", "has(payload.c)", "payload.c == null", "payload.flag"),
    *("payload.list.exists(x, x == 2)", "2 in payload.list", "size(payload.list) == 3"),
    *("payload.nested.deep != 'a'", "int(payload.b) == 4"),
]
BY_PYTHON = ["payload.a + 1 == 3", "payload.a + 1.0 == 3.0"]


@pytest.mark.middle
def test_a_shredded_lake(spark: SparkSession, tmp_path: Path, migrated_postgres_url: str) -> None:
    """Spark infers a type for each field from the first rows of a file, and later writes 2 as 2.0
    and 4.0 as 4 where that fits the type."""
    first = (
        '{"a": 1.5, "b": 7, "text": "x", "flag": true, "list": [1, 2, 3], "nested": {"deep": "a"}}'
    )
    odd = [
        '{"a": 2, "b": 4.0, "text": "2", "flag": 1, "list": [1.5], "nested": {"deep": 1}, "c": 0}',
        '{"a": 3.0, "b": 4, "text": 2, "flag": "true", "list": [2.0, "2", null], "c": null}',
        '{"a": "2", "b": null, "text": "xy", "flag": false, "list": {"2": 1}, "nested": []}',
    ]
    texts = [first] * 5_000 + odd * 3
    entries = [an_entry(number, text) for number, text in enumerate(texts, 1)]
    frame(spark, entries).write.parquet(str(tmp_path / "lake"))
    lake = spark.read.parquet(str(tmp_path / "lake"))
    predicates = [check(expression) for expression in (*SHREDDED, *BY_PYTHON)]
    assert compare(lake, entries, predicates, migrated_postgres_url)["column"] == len(SHREDDED)
    numbers = F.schema_of_variant(F.variant_get("payload", "$.a", "variant"))
    assert lake.where(numbers == "BIGINT").count() == 0
