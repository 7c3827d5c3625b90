"""Klines as they come: read from events, judged, and of each the latest.

A kline is an event whose type starts with `market.klines.` and whose payload says

    {"venue": "binance", "market": "spot", "symbol": "BTCUSDT", "tf": "1m",
     "open_time": 1700000040000, "open": "37000.10", "high": "37010", "low": "36990.5",
     "close": "37005", "volume": "12.345", "closed": true}

Prices and volumes are decimal text or JSON numbers with up to 15 digits before and 18 behind the
point, and are kept exactly. One that is not closed yet (`closed` is false) is passed over. A kline
is known by venue, market, symbol, tf and open_time; the one with the highest global_seq counts.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tape.pipeline.jobs.rollup.periods import Period

IDENTITY: Final = ("venue", "market", "symbol", "tf", "open_time")
NAMES: Final = ("venue", "market", "symbol", "tf")
NUMBERS: Final = ("open", "high", "low", "close", "volume")
EXACT: Final = "decimal(38,18)"
KLINES_SCHEMA: Final = (
    "venue string, market string, symbol string, tf string, open_time bigint, "
    f"open {EXACT}, high {EXACT}, low {EXACT}, close {EXACT}, volume {EXACT}, global_seq bigint"
)
REJECTED_SCHEMA: Final = "global_seq bigint, subject string, payload_json string, reason string"
_COLUMNS: Final = (*IDENTITY, *NUMBERS, "global_seq")
_LAST_MS: Final = 253_402_300_799_999  # the end of the year 9999


def kline_events(entries: DataFrame, event_prefix: str) -> DataFrame:
    return entries.where((F.col("kind") == "event") & F.col("event_type").startswith(event_prefix))


def judge(events: DataFrame, base: Period) -> DataFrame:
    """Each event as a kline, with the `reason` why it is none; NULL where it is one.

    Klines of another timeframe and such as are not closed are left out: nothing is wrong with them.
    """
    entry = ("global_seq", "subject", "payload_json")
    read = (
        events.selectExpr(*entry, "try_parse_json(payload_json) AS said")
        .selectExpr(
            *entry,
            "said IS NULL AS no_json",
            *(f"{_text(name)} AS {name}" for name in NAMES),
            *(f"{_member(name)} AS {name}_text" for name in ("open_time", *NUMBERS)),
            f"coalesce({_member('closed')}, 'true') AS closed",
        )
        .selectExpr(
            *entry,
            "no_json",
            *NAMES,
            f"{_whole('open_time_text')} AS open_time",
            *(f"{_exact(f'{name}_text')} AS {name}" for name in NUMBERS),
            "closed",
        )
    )
    judged = read.selectExpr("*", f"{_reason(base)} AS reason")
    return judged.where(f"reason IS NOT NULL OR (tf = '{base.name}' AND closed = 'true')")


def accepted(judged: DataFrame) -> DataFrame:
    return judged.where("reason IS NULL").select(*_COLUMNS)


def rejected(judged: DataFrame) -> DataFrame:
    found = judged.where("reason IS NOT NULL")
    return found.select("global_seq", "subject", "payload_json", "reason")


def latest(klines: DataFrame) -> DataFrame:
    """Of each kline the one recorded last: corrections replace, repetitions collapse."""
    rest = (*NUMBERS, "global_seq")
    newest = F.max_by(F.struct(*rest), "global_seq").alias("newest")
    return klines.groupBy(*IDENTITY).agg(newest).select(*IDENTITY, "newest.*")


def _member(name: str) -> str:
    return f"try_variant_get(said, '$.{name}', 'string')"


def _text(name: str) -> str:
    kind = f"schema_of_variant(try_variant_get(said, '$.{name}', 'variant'))"
    return f"CASE WHEN {kind} = 'STRING' THEN nullif({_member(name)}, '') END"


def _whole(text: str) -> str:
    return rf"CASE WHEN {text} RLIKE r'^\d{{1,15}}$' THEN CAST({text} AS BIGINT) END"


def _exact(text: str) -> str:
    """The number, if it is kept as it was written; else NULL.

    What Spark has read as a double, it writes with an exponent: that one is exact if it is the same
    double afterwards. Fifteen digits before the point leave room for the sum of a day's seconds.
    """
    number = f"TRY_CAST({text} AS {EXACT})"
    plain = rf"{text} RLIKE r'^-?\d{{1,15}}(\.\d{{1,18}}0*)?$'"
    power = rf"{text} RLIKE r'^-?\d+(\.\d+)?[eE][+-]?\d{{1,3}}$'"
    same = f"TRY_CAST({text} AS DOUBLE) = CAST({number} AS DOUBLE)"
    small = f"abs({number}) < 1000000000000000"
    return f"CASE WHEN ({plain} OR ({power} AND {same})) AND {small} THEN {number} END"


def _reason(base: Period) -> str:
    wrong = [
        ("no_json", "the payload is not JSON"),
        *((f"{name} IS NULL", f"{name} is missing or not a text") for name in NAMES),
        ("open_time IS NULL", "open_time is missing or not whole milliseconds"),
        (f"open_time > {_LAST_MS}", "open_time is beyond the year 9999"),
        *((f"{name} IS NULL", f"{name} is missing or not an exact decimal") for name in NUMBERS),
        ("volume < 0", "volume is negative"),
        (
            "low > least(open, close) OR high < greatest(open, close)",
            "open or close is not between low and high",
        ),
        ("closed NOT IN ('true', 'false')", "closed is neither true nor false"),
        (
            f"tf = '{base.name}' AND open_time % {base.ms} != 0",
            f"open_time is not at the start of a {base.name}",
        ),
    ]
    return "CASE " + " ".join(f"WHEN {found} THEN '{reason}'" for found, reason in wrong) + " END"
