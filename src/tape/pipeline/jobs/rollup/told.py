"""Bars that changed, back to the journal as values."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_TEXTS = ("open", "high", "low", "close", "volume")


def bars_as_values(bars: DataFrame, namespace: str) -> DataFrame:
    """Key `venue/market/symbol/tf/open_time`; prices and volumes stay exact, as decimal text."""
    names = [_segment(name) for name in ("venue", "market", "symbol", "tf")]
    said = F.struct(
        *(F.col(name) for name in ("venue", "market", "symbol", "tf", "open_time")),
        *(_plain(name).alias(name) for name in _TEXTS),
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
