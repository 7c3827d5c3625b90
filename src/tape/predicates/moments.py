"""Timestamps and durations: their text forms, their ranges and their fields."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from tape.predicates.values import INT_MAX, INT_MIN, Duration, EvaluationError, Timestamp

SECOND: Final = 1_000_000_000
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
_LONGEST_SECONDS: Final = 315_576_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]++))?+"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_DURATION: Final = re.compile(r"([+-]?)((?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:h|ms|m|s|us|ns))+|0)")
_DURATION_PART: Final = re.compile(r"([0-9]*)\.?([0-9]*)(h|ms|m|s|us|ns)")
_UNITS: Final = {
    "h": 3600 * SECOND, "m": 60 * SECOND, "s": SECOND, "ms": 1_000_000, "us": 1_000, "ns": 1,
}  # fmt: skip
_FIXED_ZONE: Final = re.compile(r"([+-]?)([0-9]{1,2}):([0-9]{2})")


def timestamp_in_range(nanos: int) -> Timestamp:
    if not _FIRST_SECOND <= nanos // SECOND <= _LAST_SECOND:
        raise EvaluationError("timestamp out of range")
    return Timestamp(nanos)


def duration_in_range(nanos: int) -> Duration:
    if abs(nanos) > _LONGEST_SECONDS * SECOND:
        raise EvaluationError("duration out of range")
    return Duration(nanos)


def between(later: Timestamp, earlier: Timestamp) -> Duration:
    nanos = later.nanos - earlier.nanos
    if not INT_MIN <= nanos <= INT_MAX:
        raise EvaluationError("integer overflow")
    return Duration(nanos)


def parse_timestamp(text: str) -> Timestamp:
    """RFC 3339, with any number of fraction digits (beyond nanoseconds they are dropped)."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise EvaluationError("not an RFC 3339 timestamp")
    *date, fraction, sign, hours, minutes = found.groups()
    year, month, day, hour, minute, second = map(int, date)
    leap = second == 60
    try:
        moment = datetime(year, month, day, hour, minute, 59 if leap else second, tzinfo=UTC)
    except ValueError as error:
        raise EvaluationError("not an RFC 3339 timestamp") from error
    seconds = (moment - _EPOCH) // timedelta(seconds=1) + leap
    if sign:
        shift = int(hours) * 3600 + int(minutes) * 60
        seconds += -shift if sign == "+" else shift
    return timestamp_in_range(seconds * SECOND + int((fraction or "")[:9].ljust(9, "0")))


def parse_duration(text: str) -> Duration:
    """A sign and then parts such as `1h30m2.5s`, or `0`."""
    found = _DURATION.fullmatch(text) if len(text) <= 128 else None
    if found is None:
        raise EvaluationError("not a duration")
    nanos = 0
    for whole, fraction, unit in _DURATION_PART.findall(found[2]):
        nanos += int(whole or "0") * _UNITS[unit]
        nanos += int(fraction or "0") * _UNITS[unit] // 10 ** len(fraction)
    return duration_in_range(-nanos if found[1] == "-" else nanos)


def _fraction(nanos: int) -> str:
    """Three, six or nine digits, as protobuf's JSON form writes them."""
    if nanos == 0:
        return ""
    digits = f"{nanos:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return "." + digits


def timestamp_text(value: Timestamp) -> str:
    seconds, nanos = divmod(value.nanos, SECOND)
    moment = _EPOCH + timedelta(seconds=seconds)
    return f"{moment:%Y}".zfill(4) + f"{moment:-%m-%dT%H:%M:%S}{_fraction(nanos)}Z"


def duration_text(value: Duration) -> str:
    seconds, nanos = divmod(abs(value.nanos), SECOND)
    return f"{'-' if value.nanos < 0 else ''}{seconds}{_fraction(nanos)}s"


@lru_cache(1)
def _zone_names() -> frozenset[str]:
    return frozenset(available_timezones())


@lru_cache(None)
def _named_zone(name: str) -> ZoneInfo:
    """All that are asked for are kept, a few hundred at most: Python itself keeps eight, and to
    read one takes as long as forty calls."""
    return ZoneInfo(name)


def _zone(name: str) -> tzinfo:
    fixed = _FIXED_ZONE.fullmatch(name)
    try:
        if fixed is None:
            if name not in _zone_names():  # looking for a file takes long
                raise EvaluationError("no such time zone")
            return _named_zone(name)
        shift = timedelta(hours=int(fixed[2]), minutes=int(fixed[3]))
        return timezone(-shift if fixed[1] == "-" else shift)
    except (LookupError, ValueError, OSError) as error:
        raise EvaluationError("no such time zone") from error


def _local(value: Timestamp, zone: str) -> datetime:
    moment = _EPOCH + timedelta(seconds=value.nanos // SECOND)
    try:
        return moment.astimezone(_zone(zone))
    except OverflowError as error:
        raise EvaluationError("timestamp out of range") from error


TIMESTAMP_FIELDS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
}


def timestamp_field(field: str, value: Timestamp, zone: str) -> int:
    if field == "getMilliseconds":
        _zone(zone)
        return value.nanos % SECOND // 1_000_000
    return TIMESTAMP_FIELDS[field](_local(value, zone))


_DURATION_UNITS: Final = {
    "getHours": 3600 * SECOND, "getMinutes": 60 * SECOND, "getSeconds": SECOND,
}  # fmt: skip


def duration_field(field: str, value: Duration) -> int:
    """Whole hours, minutes or seconds of it all; milliseconds only of what is left over."""
    whole, sign = abs(value.nanos), -1 if value.nanos < 0 else 1
    if field == "getMilliseconds":
        return sign * (whole % SECOND // 1_000_000)
    if field not in _DURATION_UNITS:
        raise EvaluationError(f"no such overload: {field}(duration)")
    return sign * (whole // _DURATION_UNITS[field])
