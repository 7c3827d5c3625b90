"""Bars are what pandas makes of the same klines, in many increments. Short: see the job's test."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tape.pipeline.jobs.rollup.bars import BARS_SCHEMA
from tape.pipeline.jobs.rollup.klines import REJECTED_SCHEMA
from tape.pipeline.jobs.rollup.periods import parse_period
from tape.pipeline.jobs.rollup.rolls import Bars
from tape.pipeline.jobs.rollup.tables import RollupTables
from tape.pipeline.schema import ENTRY_SCHEMA
from tests.pipeline.rollup.arrivals import Arrival, arrivals
from tests.pipeline.rollup.by_pandas import Bar, bars_by_pandas

ROLL = Bars(
    parse_period("1m", "base"),
    tuple(parse_period(text, "to") for text in ("5m", "15m", "1h", "1d")),
    "market.klines.",
)


def entries(spark: SparkSession, arrived: Sequence[Arrival], after: int) -> DataFrame:
    rows = []
    for number, one in enumerate(arrived, after + 1):
        row = dict.fromkeys(ENTRY_SCHEMA.names, "") | {
            "global_seq": number, "seq": 0, "ts_ms": 0, "schema_version": 1, "occurred_at_ms": 0,
            "kind": "event", "event_type": one.event_type, "payload_json": one.payload_json,
        }  # fmt: skip
        rows.append(tuple(row[name] for name in ENTRY_SCHEMA.names))
    return spark.createDataFrame(rows, ENTRY_SCHEMA)


def take(
    spark: SparkSession, tables: RollupTables, arrived: Sequence[Arrival], upto: int
) -> dict[str, int]:
    after = tables.version().through
    draft = tables.draft(upto)
    done = ROLL.advance(spark, entries(spark, arrived[after:upto], after), draft)
    tables.publish(draft.version(ROLL.settings))
    return done


def published(spark: SparkSession, tables: RollupTables) -> dict[Bar, int]:
    """The bars, and how far the journal had been read when each became what it is."""
    rows = tables.read(spark, "bars", BARS_SCHEMA).collect()
    bars: dict[Bar, int] = {tuple(row)[:-1]: row.changed_at for row in rows}
    assert len(bars) == len(rows)
    return bars


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_many_bars_in_many_increments(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    check_increments(spark, tmp_path, random.Random(seed), minutes=5_000, increments=12)


def check_increments(
    spark: SparkSession, folder: Path, rng: random.Random, minutes: int, increments: int
) -> None:
    arrived, bad = arrivals(rng, minutes)
    ends = [*sorted(rng.sample(range(1, len(arrived)), increments - 1)), len(arrived)]
    tables = RollupTables(folder)
    before: dict[Bar, int] = {}
    rejected = 0
    for upto in ends:
        done = take(spark, tables, arrived, upto)
        bars = published(spark, tables)
        assert bars == dict.fromkeys(bars, upto) | {
            bar: before[bar] for bar in bars.keys() & before
        }
        assert done["bars_changed"] == len(bars.keys() - before)
        rejected += done["rejected"]
        before = bars
    reasons = tables.read(spark, "rejected", REJECTED_SCHEMA).collect()
    assert rejected == len(reasons) == bad
    assert before.keys() == bars_by_pandas(arrived, [row.payload_json for row in reasons])
