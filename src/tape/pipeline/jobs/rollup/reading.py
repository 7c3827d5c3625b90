"""The tables of a rollup, for whoever wants to look at them."""

from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from tape.errors import InvalidArgument
from tape.pipeline.jobs.rollup.bars import BARS_SCHEMA
from tape.pipeline.jobs.rollup.counts import COUNTS_SCHEMA
from tape.pipeline.jobs.rollup.klines import KLINES_SCHEMA, REJECTED_SCHEMA
from tape.pipeline.jobs.rollup.latency import HISTOGRAM_SCHEMA, LATENCY_SCHEMA
from tape.pipeline.jobs.rollup.tables import Tables

ROLLUP_TABLES: Final = {
    "counts": ("counts", COUNTS_SCHEMA),
    "latency": ("latency", LATENCY_SCHEMA),
    "histogram": ("latency", HISTOGRAM_SCHEMA),
    "bars": ("bars", BARS_SCHEMA),
    "klines": ("bars", KLINES_SCHEMA),
    "rejected": ("bars", REJECTED_SCHEMA),
}


def rollup(spark: SparkSession, out: str | Path, table: str) -> DataFrame:
    """One table of those under `out`, as it was published last; empty if there is none yet."""
    if table not in ROLLUP_TABLES:
        raise InvalidArgument(f"{table!r} is not one of {', '.join(ROLLUP_TABLES)}", field="table")
    folder, schema = ROLLUP_TABLES[table]
    return Tables(Path(out) / folder).read(spark, table, schema)
