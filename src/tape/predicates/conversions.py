"""CEL's conversions between types: each checks the exact type it is given, or raises.

Reading a text is charged by its length, writing what takes long to write by the piece.
"""

import math
import re
from decimal import Decimal
from typing import Any, Final

from tape.predicates import moments
from tape.predicates.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    Duration,
    EvaluationError,
    Timestamp,
    UInt,
    no_overload,
)
from tape.predicates.work import MOMENT, READ, Work, charge

# Possessive throughout: a payload's text must not cost more than one walk along it.
_DIGITS: Final = r"(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+"
_DOUBLE: Final = re.compile(rf"[+-]?+(?:{_DIGITS}|(?i:nan|inf(?:inity)?+))", re.ASCII).fullmatch
_SHORT_DOUBLE: Final = re.compile(
    r"-?+[0-9]{1,30}+(?:\.[0-9]{1,30}+)?+(?:[eE][+-]?+[0-9]{1,4}+)?+", re.ASCII
).fullmatch
_INT: Final = re.compile(r"([+-]?+)([0-9]++)").fullmatch
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "false", "FALSE", "False"), False),
}


def int64(value: int) -> int:
    if not INT_MIN <= value <= INT_MAX:
        raise EvaluationError("integer overflow")
    return value


def uint64(value: int) -> UInt:
    if not 0 <= value <= UINT_MAX:
        raise EvaluationError("unsigned integer overflow")
    return UInt(value)


def to_int(value: Any, work: Work) -> int:
    kind = type(value)
    if kind is int:
        return value  # type: ignore[no-any-return]  # an int, by the line above
    if kind is UInt:
        return int64(int(value))
    if kind is float:
        if not INT_MIN < value < 2.0**63:
            raise EvaluationError("double out of int64 range")
        return int(value)
    if kind is str:
        return int64(_digits(value, "int", work))
    if kind is Timestamp:
        return value.nanos // moments.SECOND  # type: ignore[no-any-return]  # nanos is an int
    raise no_overload("int", value)


def _digits(text: str, target: str, work: Work) -> int:
    charge(work, READ * len(text))
    found = _INT(text)
    digits = found[2].lstrip("0") if found else ""
    if found is None or len(digits) > 20:
        raise EvaluationError(f"cannot convert string to {target}")
    return int(f"{found[1]}0{digits}")


def to_uint(value: Any, work: Work) -> UInt:
    kind = type(value)
    if kind is UInt:
        return value  # type: ignore[no-any-return]  # a UInt, by the line above
    if kind is int:
        return uint64(value)
    if kind is float:
        if not 0 <= value < 2.0**64:
            raise EvaluationError("double out of uint64 range")
        return UInt(value)
    if kind is str:
        if value.startswith("-"):
            raise EvaluationError("cannot convert string to uint")
        return uint64(_digits(value, "uint", work))
    raise no_overload("uint", value)


def to_double(value: Any, work: Work) -> float:
    """From text by one fixed grammar: an optional sign, then decimal digits with an optional point
    and exponent, or `nan`, `inf`, `infinity` in any case. Beyond a double's range is infinity."""
    kind = type(value)
    if kind is str:
        charge(work, READ * len(value))
        if _DOUBLE(value) is None:
            raise EvaluationError("cannot convert string to double")
        return float(value)
    if kind is float:
        return value  # type: ignore[no-any-return]  # a float, by the line above
    if kind is int or kind is UInt:
        return float(value)
    raise no_overload("double", value)


def quick_double(value: Any) -> float:
    """Of what numbers commonly are; raises for the rest, which takes longer to read."""
    kind = type(value)
    if kind is str:
        if _SHORT_DOUBLE(value) is not None:
            return float(value)
    elif kind is float:
        return value  # type: ignore[no-any-return]  # a float, by the line above
    elif kind is int:
        return float(value)
    raise no_overload("double", value)


def _double_text(value: float) -> str:
    """The shortest digits that read back the same; with an exponent below 1e-4 and from 1e6 up."""
    if not math.isfinite(value):
        return str(value)
    shortest = Decimal(repr(value)).normalize()
    sign, digits, power = shortest.as_tuple()
    exponent = len(digits) + int(power) - 1
    if value == 0 or -4 <= exponent < 6:
        return f"{shortest:f}"
    rest = "".join(map(str, digits[1:]))
    mantissa = f"{'-' if sign else ''}{digits[0]}{'.' if rest else ''}{rest}"
    return f"{mantissa}e{exponent:+03d}"


def to_string(value: Any, work: Work) -> str:  # noqa: PLR0911  # one return per type
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]  # a str, by the line above
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is UInt:
        return str(int(value))
    if kind is float:
        charge(work, MOMENT)
        return _double_text(value)
    if kind is bytes:
        charge(work, READ * len(value))
        try:
            return bytes.decode(value)
        except UnicodeDecodeError as error:
            raise EvaluationError("malformed UTF-8 bytes") from error
    if kind is Timestamp:
        charge(work, 4 * MOMENT)
        return moments.timestamp_text(value)
    if kind is Duration:
        charge(work, MOMENT)
        return moments.duration_text(value)
    raise no_overload("string", value)


def to_bytes(value: Any, work: Work) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is str:
        charge(work, READ * len(value))
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise EvaluationError("the text is not valid Unicode") from error
    raise no_overload("bytes", value)


def to_bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str:
        if value not in _BOOLS:
            raise EvaluationError("cannot convert string to bool")
        return _BOOLS[value]
    raise no_overload("bool", value)


def to_timestamp(value: Any, work: Work) -> Timestamp:
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        return moments.timestamp_in_range(value * moments.SECOND)
    if type(value) is str:
        charge(work, MOMENT + READ * len(value))
        return moments.parse_timestamp(value)
    raise no_overload("timestamp", value)


def to_duration(value: Any, work: Work) -> Duration:
    if type(value) is Duration:
        return value
    if type(value) is str:
        charge(work, MOMENT)
        return moments.parse_duration(value)
    raise no_overload("duration", value)
