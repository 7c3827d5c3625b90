"""The journal read by Spark, all columns into nothing: beside tuned JDBC, and beside bare ADBC.

TAPE_BENCH_ENTRIES makes it shorter. Spark's own JDBC needs Postgres's driver, a jar that Spark
fetches by its Maven coordinates; where it cannot, that comparison is left out and says so.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from pyspark.sql import DataFrameReader, SparkSession

from benchmarks.result import Result, compare
from benchmarks.workload import PAYLOAD, on_loop, opened, postgres, sqlite_file
from tape.errors import SparkUnavailable
from tape.pipeline.session import session

ENTRIES = int(os.environ.get("TAPE_BENCH_ENTRIES", "2000000"))
REPETITIONS = 3
JDBC_DRIVER = "org.postgresql:postgresql:42.7.7"
JDBC_PARTITIONS = 4
COLUMNS = (
    "global_seq, kind, subject, payload_json, ts_ms, event_id, event_type, entity_type, entity_id, "
    "source, occurred_at_ms"
)
ROW = (
    "n, 'event', '/tape/event/recorded/price.changed/asset/' || n, '{payload}', 1794790544652 + n, "
    "'01M7GXMN7M77V20N3' || (100000000 + n), 'price.changed', 'asset', '' || n, 'bench', "
    "1794790544652 + n"
)
FILL = """
import sqlite3, sys
sqlite3.connect(sys.argv[1], isolation_level=None).execute(sys.argv[2])
"""
ADBC = """
import sys, time
from adbc_driver_sqlite.dbapi import connect
with connect(f"file:{sys.argv[1]}?mode=ro") as db, db.cursor() as cursor:
    started = time.perf_counter()
    cursor.execute("SELECT * FROM tape_journal")
    rows = sum(batch.num_rows for batch in cursor.fetch_record_batch())
    print(rows / (time.perf_counter() - started))
"""


def run() -> Iterator[Result]:
    spark, has_jdbc = _session()
    try:
        with sqlite_file() as path:
            yield _from_sqlite(spark, path)
        if has_jdbc:
            with postgres() as server:
                yield _from_postgres(spark, server.create_database("bench"))
    finally:
        spark.stop()


def _session() -> tuple[SparkSession, bool]:
    config = {"spark.driver.memory": "2g"}
    try:
        return session(master="local[2]", packages=[JDBC_DRIVER], config=config), True
    except SparkUnavailable as fault:
        print(f"pipeline.read.postgres is left out, no JDBC driver: {fault}", file=sys.stderr)
    return session(master="local[2]", config=config), False


def _from_sqlite(spark: SparkSession, path: Path) -> Result:
    url = f"sqlite:{path}"
    on_loop(_made(url))
    numbers = f"SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < {ENTRIES}"
    insert = f"INSERT INTO tape_journal ({COLUMNS}) SELECT {_row()} FROM numbers"
    # In a process of its own, as the readers are: see stores.sqlite.bulk.
    statement = f"WITH RECURSIVE numbers AS ({numbers}) {insert}"
    subprocess.run([sys.executable, "-c", FILL, path, statement], check=True)

    def bare() -> float:
        said = subprocess.run([sys.executable, "-c", ADBC, path], check=True, capture_output=True)
        return float(said.stdout)

    ours, theirs = _turns(_rate_of(spark.read.format("tape").options(url=url)), bare)
    return compare(
        "pipeline.read.sqlite", "entries/s", ours, "ADBC to Arrow, no Spark", theirs,
        n=ENTRIES, at_least=0.8,
    )  # fmt: skip


def _from_postgres(spark: SparkSession, url: str) -> Result:
    on_loop(_made(url))
    with psycopg.connect(url, autocommit=True) as database:
        numbers = f"generate_series(1, {ENTRIES}) AS numbers (n)"
        database.execute(
            f"INSERT INTO tape_journal ({COLUMNS}) SELECT {_row()} FROM {numbers}".encode()
        )
        database.execute("VACUUM ANALYZE tape_journal")
    place = urlsplit(url)
    jdbc = spark.read.format("jdbc").options(
        url=f"jdbc:postgresql://{place.hostname}:{place.port}{place.path}",
        driver="org.postgresql.RunDriver", user=place.username or "", dbtable="tape_journal",
        fetchsize=10_000, partitionColumn="global_seq", lowerBound=1,
        upperBound=ENTRIES, numPartitions=JDBC_PARTITIONS,
    )  # fmt: skip
    ours, theirs = _turns(_rate_of(spark.read.format("tape").options(url=url)), _rate_of(jdbc))
    return compare(
        "pipeline.read.postgres", "entries/s", ours, "Spark's JDBC, tuned", theirs,
        n=ENTRIES, at_least=0.9,
    )  # fmt: skip


async def _made(url: str) -> None:
    async with opened(url):
        pass


def _row() -> str:
    return ROW.format(payload=PAYLOAD)


def _rate_of(reader: DataFrameReader) -> Callable[[], float]:
    def rate() -> float:
        started = time.perf_counter()
        reader.load().write.format("noop").mode("overwrite").save()
        return ENTRIES / (time.perf_counter() - started)

    return rate


def _turns(
    ours: Callable[[], float], theirs: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Both once to warm up, then in turns."""
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(REPETITIONS)]
    return [mine for mine, _ in pairs], [other for _, other in pairs]
