"""Which engine decides, and what becomes of payloads and lists that a Column cannot hold."""

import subprocess
import sys

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tape.predicates import check
from tape.predicates.to_spark import explain, spark_predicate
from tests.pipeline.predicates.deciding import by_python, by_spark, frame
from tests.pipeline.predicates.generated import an_entry

COLUMN = [
    "",
    'kind == "effect" && payload.status == "failed" && !has(payload.retry)',
    "payload.value.value_json != prev_value_json && double(payload.value.value_json) > 100.0",
    'payload.items.exists(item, item.sku in ["A-1", "A-2"] && item.quantity > 10)',
    'payload.price > 100.0 && payload.symbol == "BTCUSDT"',
    "payload.high > payload.low",
    'payload.symbol.startsWith("BTC") || subject.endsWith("/USDT")',
    "double(payload.price) * double(payload.quantity) >= 1000.0",
    '"urgent" in payload.tags',
    "size(payload.items) > 3",
    "payload.error != null",
    "payload.closed && ts_ms - 60000 > 0",
    "has(payload.limit) ? payload.amount <= 5 : payload.amount < 1",
    "int(payload.count) % 2 == 0",
    'payload["a.b"][0].c == true',
]
ARITHMETIC = "arithmetic depends on whether JSON wrote an integer: use double()"
UDF = {
    "payload.price + 1.0 > 2.0": ARITHMETIC,
    'subject.matches("^/tape/")': "matches()",
    "payload.a == payload.b": "equality of two values of JSON, which may be lists or maps",
    "payload.a.map(x, x) == [1]": "a list made by map() or filter()",
    "payload.a.exists(x, x.exists(y, y == 1))": "a macro within a macro",
    "payload.a.exists(x, x == subject)": "a macro that looks outside of its list",
    'timestamp(payload.at) > timestamp("2026-01-01T00:00:00Z")': "timestamp()",
}


def test_explain_says_which_engine_and_why(spark: SparkSession) -> None:
    for expression in COLUMN:
        assert explain(check(expression)) == "a Spark Column decides", expression
    for expression, reason in UDF.items():
        assert spark_predicate(check(expression)).why == reason
        assert explain(check(expression)).endswith(f"no Column is exact: {reason}")


def test_usual_predicates_stay_within_generated_code(spark: SparkSession) -> None:
    rows = frame(spark, [an_entry(1, '{"price": 1}')])
    chosen = spark_predicate(check('payload.price > 100.0 && payload.symbol == "BTCUSDT"'))
    plan = rows.where(chosen.column)._jdf.queryExecution().executedPlan().toString()
    assert "*(1) Filter" in plan


def test_payloads_beyond_try_parse_json(spark: SparkSession) -> None:
    """All of these are JSON to the journal, and none of them is to `try_parse_json`."""
    long_number = f"0.{'3' * 1_100}"
    texts = [f'{{"a": 1, "b": {long_number}}}', f'{{"b": [{long_number}], "a": "1"}}']
    entries = [an_entry(number, text) for number, text in enumerate(texts, 1)]
    predicates = [check("payload.a == 1"), check("payload.b < 0.34"), check("size(payload.b) > 1")]
    rows = frame(spark, entries)
    assert by_spark(rows, predicates).verdicts == [by_python(one, entries) for one in predicates]
    unparsed = rows.withColumn("payload", F.try_parse_json("payload_json"))
    needless = spark_predicate(check("payload.a == 1 || global_seq > 0"))
    assert unparsed.where(needless.column).count() == len(entries)
    with pytest.raises(PySparkException, match="entry 1: VARIANT does not hold its payload"):
        unparsed.where(spark_predicate(predicates[0]).column).count()


def test_a_list_too_long_for_the_limit_of_work(spark: SparkSession) -> None:
    rows = frame(spark, [an_entry(1, f'{{"a": [{",".join("1" * 60_000)}]}}')])
    with pytest.raises(PySparkException, match="decide with udf_predicate"):
        rows.where(spark_predicate(check("payload.a.exists(x, x == 2)")).column).count()


def test_tape_loads_no_spark() -> None:
    code = "import sys, tape.predicates; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
