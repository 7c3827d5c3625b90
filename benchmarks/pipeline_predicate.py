"""A predicate over an archived lake: as Spark Columns, beside the same as a Python UDF."""

import tempfile
import time
from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.result import Result, compare
from tape.pipeline.schema import ENTRY_SCHEMA, PAYLOAD
from tape.pipeline.session import session
from tape.predicates import check
from tape.predicates.to_spark import spark_predicate, udf_predicate

ENTRIES = 2_000_000
REPETITIONS = 3
PREDICATES = {
    "a number": "payload.price > 101.5",
    "text and number": 'payload.symbol == "BTCUSDT" && payload.volume >= 10.0',
    "a list": 'payload.tags.exists(tag, tag == "hot") || payload.price < 3.0',
}


def run() -> Iterator[Result]:
    spark = session(master="local[2]", config={"spark.driver.memory": "2g"})
    try:
        with tempfile.TemporaryDirectory(prefix="tape-bench-") as lake:
            _archived(spark).write.parquet(f"{lake}/entries")
            entries = spark.read.parquet(f"{lake}/entries")
            for name, expression in PREDICATES.items():
                yield _compared(entries, name, expression)
    finally:
        spark.stop()


def _compared(entries: DataFrame, name: str, expression: str) -> Result:
    predicate = check(expression)
    chosen = spark_predicate(predicate)
    assert chosen.engine == "column", chosen.why
    by_column, by_udf = chosen.column, udf_predicate(predicate)
    assert entries.where(by_column).count() == entries.where(by_udf).count() > 0
    ours, theirs = [], []
    for _ in range(REPETITIONS):
        ours.append(_rate(entries, by_column))
        theirs.append(_rate(entries, by_udf))
    return compare(
        f"predicate over a lake, {name}", "entries/s", ours, "the same as a Python UDF", theirs,
        n=ENTRIES, at_least=3.0,
    )  # fmt: skip


def _rate(entries: DataFrame, condition: Column) -> float:
    started = time.perf_counter()
    entries.where(condition).agg(F.count("*"), F.max("global_seq")).collect()
    return ENTRIES / (time.perf_counter() - started)


def _archived(spark: SparkSession) -> DataFrame:
    """Entries as an archive holds them: the payload as text and parsed."""
    number = F.col("id")
    payload = F.format_string(
        '{"symbol":"%s","price":%.2f,"volume":%d.25,"tags":["%s","feed"],"note":"%s"}',
        F.when(number % 4 == 0, "BTCUSDT").otherwise("ETHUSDT"), (number % 20_000) / 100.0,
        number % 40, F.when(number % 50 == 0, "hot").otherwise("cold"), F.lit("x" * 80),
    )  # fmt: skip
    known = {
        "global_seq": number + 1,
        "kind": F.lit("event"),
        "subject": F.concat(F.lit("/tape/event/recorded/price.changed/asset/"), number % 1000),
        "payload_json": payload,
        "ts_ms": F.lit(1_700_000_000_000) + number,
        "occurred_at_ms": F.lit(1_700_000_000_000) + number,
        "event_id": F.lpad(number.cast("string"), 26, "0"),
        "event_type": F.lit("price.changed"),
        "schema_version": F.lit(1),
    }
    blank = {"string": F.lit(""), "bigint": F.lit(0), "int": F.lit(0)}
    columns = [
        known.get(field.name, blank[field.dataType.simpleString()])
        .cast(field.dataType)
        .alias(field.name)
        for field in ENTRY_SCHEMA
    ]
    entries = spark.range(ENTRIES, numPartitions=4).select(*columns)
    return entries.withColumn(PAYLOAD, F.parse_json("payload_json"))
