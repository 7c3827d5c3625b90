"""Bars (OHLCV) made of klines: exact, and showing where klines are missing."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tape.pipeline.jobs.rollup.klines import EXACT, IDENTITY, NAMES, NUMBERS
from tape.pipeline.jobs.rollup.periods import Period, start_of

BARS_SCHEMA: Final = (
    "venue string, market string, symbol string, tf string, open_time bigint, "
    f"open {EXACT}, high {EXACT}, low {EXACT}, close {EXACT}, volume {EXACT}, "
    "klines int, complete boolean, changed_at bigint"
)
"""`klines` is how many the bar is made of; it is `complete` with all that its period has.

`changed_at` is how far the journal had been read when the bar became what it is.
"""
_CONTENT: Final = (*NUMBERS, "klines")


def bars_of(klines: DataFrame, base: Period, periods: Sequence[Period]) -> DataFrame:
    """The bars of these periods; each kline must be there once, see `klines.latest`."""
    placed = _placed_in(klines, periods)
    made = placed.groupBy(*IDENTITY).agg(
        F.min_by("open", "at").alias("open"),
        F.max("high").alias("high"),
        F.min("low").alias("low"),
        F.max_by("close", "at").alias("close"),
        F.sum("volume").cast(EXACT).alias("volume"),
        F.count(F.lit(1)).cast("int").alias("klines"),
        F.first("period_ms").alias("period_ms"),
    )
    complete = (F.col("klines") * F.lit(base.ms) == F.col("period_ms")).alias("complete")
    return made.select("*", complete).drop("period_ms")


def dated(made: DataFrame, before: DataFrame, at: int) -> DataFrame:
    """The bars with `changed_at`: what it was for those that are as before, else `at`."""
    was = before.select(
        *IDENTITY, F.struct(*_CONTENT).alias("was"), F.col("changed_at").alias("since")
    )
    same = F.col("was").eqNullSafe(F.struct(*_CONTENT))
    changed_at = F.when(same, F.col("since")).otherwise(F.lit(at).cast("bigint"))
    joined = made.join(was, list(IDENTITY), "left")
    return joined.select(*made.columns, changed_at.alias("changed_at"))


def _placed_in(klines: DataFrame, periods: Sequence[Period]) -> DataFrame:
    """Each kline once for every bar it is part of: `tf` and `open_time` are the bar's then."""
    places = F.array(
        *(
            F.struct(
                F.lit(period.name).alias("tf"),
                F.lit(period.ms).cast("bigint").alias("period_ms"),
                start_of(F.col("open_time"), period.ms).alias("open_time"),
            )
            for period in periods
        )
    )
    rest = [name for name in klines.columns if name not in ("tf", "open_time")]
    placed = klines.select(*rest, F.col("open_time").alias("at"), F.explode(places).alias("bar"))
    return placed.select(*rest, "at", "bar.*")


def bars_as_values(bars: DataFrame, namespace: str) -> DataFrame:
    """Make values of bars, with the key `venue/market/symbol/tf/open_time`.

    Prices and volumes stay exact, as decimal text.
    """
    names = [_segment(name) for name in NAMES]
    said = F.struct(
        *(F.col(name) for name in IDENTITY),
        *(_plain(name).alias(name) for name in NUMBERS),
        *(F.col(name) for name in ("klines", "complete")),
    )
    return bars.select(
        F.lit(namespace).alias("namespace"),
        F.concat_ws("/", *names, F.col("open_time").cast("string")).alias("key"),
        F.to_json(said).alias("value_json"),
    )


def _segment(name: str) -> Column:
    """A `/` in a symbol must not look like one of the key's."""
    return F.replace(F.replace(F.col(name), F.lit("%"), F.lit("%25")), F.lit("/"), F.lit("%2F"))


def _plain(name: str) -> Column:
    return F.regexp_replace(F.col(name).cast("string"), r"\.?0+$", "")
