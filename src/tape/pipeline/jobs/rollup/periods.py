"""Spans of time that divide a UTC day: `30s`, `1m`, `4h`, `1d`."""

import re
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from tape.errors import InvalidArgument

DAY_MS: Final = 86_400_000
_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": DAY_MS}
_WRITTEN: Final = re.compile(r"([1-9]\d{0,4})([smhd])").fullmatch


class Period(NamedTuple):
    name: str
    ms: int


def parse_period(text: str, field: str) -> Period:
    """A span that divides a day, so that no window or bar lies in two of them."""
    written = _WRITTEN(text)
    if written is None:
        raise InvalidArgument(f"{text!r} is not a span of time like 30s, 5m, 1h or 1d", field=field)
    ms = int(written[1]) * _UNITS[written[2]]
    if ms > DAY_MS or DAY_MS % ms:
        raise InvalidArgument(f"{text} does not divide a day", field=field)
    return Period(text, ms)


def start_of(time_ms: Column, period_ms: int) -> Column:
    """The start of the span that a time lies in; days are those of UTC."""
    return time_ms - F.pmod(time_ms, F.lit(period_ms))


def day_of(time_ms: Column) -> Column:
    """The UTC day, `2026-11-16`, whatever the session's time zone is."""
    days = (start_of(time_ms, DAY_MS) / F.lit(DAY_MS)).cast("int")
    return F.date_from_unix_date(days).cast("string")
