"""One table of entries, asked by every engine."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tape.errors import PredicateError
from tape.journal.follow import envelope
from tape.model.entry import Entry
from tape.pipeline.schema import ENTRY_SCHEMA
from tape.predicates import Predicate
from tape.predicates.to_spark import SparkPredicate, parsed_payload, spark_predicate

Verdict = bool | None
"""None is an error."""


def by_python(predicate: Predicate, entries: Sequence[Entry]) -> list[Verdict]:
    return [_decided(predicate, entry) for entry in entries]


def _decided(predicate: Predicate, entry: Entry) -> Verdict:
    try:
        return predicate.evaluate(envelope(entry, with_payload=True))
    except PredicateError:
        return None


def frame(spark: SparkSession, entries: Sequence[Entry]) -> DataFrame:
    rows = spark.createDataFrame(list(entries), ENTRY_SCHEMA).coalesce(1)
    return rows.withColumn("payload", parsed_payload(F.col("payload_json"))).cache()


@dataclass
class SparkAnswers:
    verdicts: list[list[Verdict]]
    engines: Counter[str]
    chosen: list[SparkPredicate]


def by_spark(
    entries: DataFrame, predicates: Sequence[Predicate], at_once: int = 90
) -> SparkAnswers:
    """The verdicts of each predicate over all entries, in the order of `global_seq`."""
    chosen = [spark_predicate(predicate) for predicate in predicates]
    verdicts: list[list[Verdict]] = []
    for start in range(0, len(chosen), at_once):
        part = chosen[start : start + at_once]
        named = [one.column.alias(f"p{number}") for number, one in enumerate(part)]
        rows = entries.select("global_seq", *named).collect()
        rows.sort(key=lambda row: row[0])
        verdicts += [[row[number] for row in rows] for number in range(1, len(part) + 1)]
    return SparkAnswers(verdicts, Counter(one.engine for one in chosen), chosen)


_NAMES = (
    *("global_seq", "run_id", "seq", "kind", "subject", "ts_ms", "schema_version", "trace_id"),
    *("payload_json", "event_id", "event_type", "entity_type", "entity_id", "source", "caused_by"),
    "idempotency_key",
)
_JOURNAL = (
    "CREATE TEMP TABLE journal (global_seq BIGINT PRIMARY KEY, run_id TEXT, seq BIGINT, kind TEXT,"
    " subject TEXT, ts_ms BIGINT, schema_version BIGINT, trace_id TEXT, payload_json TEXT,"
    " event_id TEXT, event_type TEXT, entity_type TEXT, entity_id TEXT, source TEXT,"
    " caused_by TEXT, idempotency_key TEXT)"
)


def _rows(entries: Iterable[Entry]) -> list[list[object]]:
    return [[getattr(entry, name) for name in _NAMES] for entry in entries]


class Database(Protocol):
    def verdicts(self, predicate: Predicate) -> list[Verdict] | None:
        """None where its SQL cannot decide exactly."""
        ...


class Sqlite:
    def __init__(self, entries: Sequence[Entry]) -> None:
        self._database = sqlite3.connect(":memory:")
        self._database.execute(_JOURNAL)
        self._database.executemany(
            f"INSERT INTO journal VALUES ({', '.join('?' * len(_NAMES))})", _rows(entries)
        )

    def verdicts(self, predicate: Predicate) -> list[Verdict] | None:
        condition = predicate.sql("sqlite")
        if condition is None:
            return None
        query = f"SELECT ({condition.text}) FROM journal ORDER BY global_seq"
        found = self._database.execute(query, condition.params)
        return [None if value is None else bool(value) for (value,) in found]


class Postgres:
    def __init__(
        self, connection: "psycopg.Connection[tuple[object, ...]]", entries: Sequence[Entry]
    ) -> None:
        connection.execute(_JOURNAL.encode())
        with connection.cursor() as cursor, cursor.copy("COPY journal FROM STDIN") as copy:
            for row in _rows(entries):
                copy.write_row(row)
        self._cursor = psycopg.RawCursor(connection)

    def verdicts(self, predicate: Predicate) -> list[Verdict] | None:
        condition = predicate.sql("postgres")
        if condition is None:
            return None
        query = f"SELECT ({condition.text}) FROM journal ORDER BY global_seq"
        self._cursor.execute(query.encode(), condition.params)
        return [value for (value,) in self._cursor.fetchall()]  # type: ignore[misc]  # a bool or NULL
