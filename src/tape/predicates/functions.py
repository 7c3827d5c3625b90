"""CEL's functions over CEL values: each checks the exact types it is given, or raises.

`FUNCTIONS` is the whole language apart from selection, logic and macros. Both evaluators call it;
the Python generator writes a few of the commonest cases out in place.
"""

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from operator import add, mul, sub
from typing import Any, Final

import re2  # type: ignore[import-untyped]  # the wheel has no stubs

from tape.predicates import moments
from tape.predicates.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    CelType,
    Duration,
    EvaluationError,
    Meter,
    Timestamp,
    Type,
    UInt,
    compared,
    equal,
    no_overload,
    settled,
    stored_key,
    type_name,
)

# Possessive throughout: a payload's text must not cost more than one walk along it.
_DOUBLE: Final = re.compile(
    r"[+-]?+(?:(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+|(?i:nan|inf(?:inity)?+))",
    re.ASCII,
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


def boolean(value: object) -> bool:
    """The value, if it is a bool: what `&&`, `||`, `!`, `?:` and the whole predicate insist on."""
    if value is True or value is False:
        return value
    raise EvaluationError(f"expected bool, found {type_name(value)}")


def _arithmetic(symbol: str, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> object:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return int64(operation(left, right))
        if kind is float:
            return operation(left, right)
        if kind is UInt:
            return uint64(operation(int(left), int(right)))
    raise no_overload(symbol, left, right)


def plus(left: Any, right: Any) -> object:
    kind, other = type(left), type(right)
    if kind is other and kind in (str, bytes, list):
        return left + right
    if {kind, other} == {Timestamp, Duration}:
        return moments.timestamp_in_range(left.nanos + right.nanos)
    if kind is Duration and other is Duration:
        return moments.duration_in_range(left.nanos + right.nanos)
    return _arithmetic("_+_", add, left, right)


def minus(left: Any, right: Any) -> object:
    kind, other = type(left), type(right)
    if kind is Timestamp and other is Timestamp:
        return moments.between(left, right)
    if kind is Timestamp and other is Duration:
        return moments.timestamp_in_range(left.nanos - right.nanos)
    if kind is Duration and other is Duration:
        return moments.duration_in_range(left.nanos - right.nanos)
    return _arithmetic("_-_", sub, left, right)


def divide(left: Any, right: Any) -> object:
    if type(left) is float and type(right) is float and right == 0.0:
        if left == 0.0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)
    return _arithmetic("_/_", _quotient, left, right)


def _quotient(left: Any, right: Any) -> Any:
    if type(left) is float:
        return left / right
    if right == 0:
        raise EvaluationError("divide by zero")
    # CEL truncates towards zero; Python's // rounds down.
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


def remainder(left: Any, right: Any) -> object:
    if type(left) is float:
        raise no_overload("_%_", left, right)
    return _arithmetic("_%_", _rest, left, right)


def _rest(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("modulus by zero")
    return int(math.copysign(1, left)) * (abs(left) % abs(right))


def negate(value: Any) -> object:
    if type(value) is int:
        return int64(-value)
    if type(value) is float:
        return -value
    raise no_overload("-_", value)


def invert(value: object) -> bool:
    return not boolean(value)


def less(left: object, right: object) -> bool:
    return compared(left, right, "_<_") == -1


def less_or_equal(left: object, right: object) -> bool:
    return compared(left, right, "_<=_") in (-1, 0)


def greater(left: object, right: object) -> bool:
    return compared(left, right, "_>_") == 1


def greater_or_equal(left: object, right: object) -> bool:
    return compared(left, right, "_>=_") in (0, 1)


def not_equal(left: object, right: object, meter: Meter | None = None) -> bool:
    return not equal(left, right, meter)


def select(operand: object, field: str) -> object:
    if type(operand) is not dict:
        raise EvaluationError(f"{type_name(operand)} has no fields")
    if field not in operand:
        raise EvaluationError(f"no such key: {field}")
    return settled(operand[field])


def has_field(operand: object, field: str) -> bool:
    if type(operand) is not dict:
        raise EvaluationError(f"{type_name(operand)} has no fields")
    return field in operand


def index(container: object, key: object) -> object:
    if type(container) is dict:
        if type(key) not in (bool, int, UInt, float, str):
            raise no_overload("_[_]", container, key)
        if stored_key(key) not in container:
            raise EvaluationError("no such key")
        return settled(container[stored_key(key)])
    if type(container) is list:
        if type(key) is float and key.is_integer():
            key = int(key)
        if type(key) is not int and type(key) is not UInt:
            raise no_overload("_[_]", container, key)
        if not 0 <= key < len(container):
            raise EvaluationError("index out of range")
        return settled(container[key])
    raise no_overload("_[_]", container, key)


def is_in(value: object, container: object, meter: Meter | None = None) -> bool:
    if type(container) is list:
        if meter is not None:
            meter.visit(container)
        return any(equal(value, element, meter) for element in container)
    if type(container) is dict and type(value) in (bool, int, UInt, float, str):
        return stored_key(value) in container
    raise no_overload("@in", value, container)


def size(value: object) -> int:
    if type(value) in (str, bytes, list, dict):
        return len(value)  # type: ignore[arg-type]  # sized, by the line above
    raise no_overload("size", value)


def _two_strings(function: str, left: object, right: object) -> tuple[str, str]:
    if type(left) is str and type(right) is str:
        return left, right
    raise no_overload(function, left, right)


def contains(text: object, part: object) -> bool:
    whole, found = _two_strings("contains", text, part)
    return found in whole


def starts_with(text: object, part: object) -> bool:
    whole, found = _two_strings("startsWith", text, part)
    return whole.startswith(found)


def ends_with(text: object, part: object) -> bool:
    whole, found = _two_strings("endsWith", text, part)
    return whole.endswith(found)


_REGEX_OPTIONS: Final = re2.Options()
_REGEX_OPTIONS.log_errors = False


def regex(pattern: str) -> Any:
    """RE2, because its time is linear in the text: a pattern of Python's `re` can hang a server."""
    try:
        return re2.compile(pattern, _REGEX_OPTIONS)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise EvaluationError(f"invalid regular expression: {text}") from error


def matches(text: object, pattern: object) -> bool:
    whole, expression = _two_strings("matches", text, pattern)
    try:
        return regex(expression).search(whole) is not None
    except UnicodeError as error:
        raise EvaluationError("the text is not valid Unicode") from error


def to_int(value: Any) -> int:
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
        return int64(_digits(value, "int"))
    if kind is Timestamp:
        return value.nanos // moments.SECOND  # type: ignore[no-any-return]  # nanos is an int
    raise no_overload("int", value)


def _digits(text: str, target: str) -> int:
    found = _INT(text)
    digits = found[2].lstrip("0") if found else ""
    if found is None or len(digits) > 20:
        raise EvaluationError(f"cannot convert string to {target}")
    return int(f"{found[1]}0{digits}")


def to_uint(value: Any) -> UInt:
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
        return uint64(_digits(value, "uint"))
    raise no_overload("uint", value)


def to_double(value: Any) -> float:
    """From text by one fixed grammar: an optional sign, then decimal digits with an optional point
    and exponent, or `nan`, `inf`, `infinity` in any case. Beyond a double's range is infinity."""
    kind = type(value)
    if kind is str:
        if _DOUBLE(value) is None:
            raise EvaluationError("cannot convert string to double")
        return float(value)
    if kind is float:
        return value  # type: ignore[no-any-return]  # a float, by the line above
    if kind is int or kind is UInt:
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


def to_string(value: Any) -> str:  # noqa: PLR0911  # one return per type
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]  # a str, by the line above
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is UInt:
        return str(int(value))
    if kind is float:
        return _double_text(value)
    if kind is bytes:
        try:
            return bytes.decode(value)
        except UnicodeDecodeError as error:
            raise EvaluationError("malformed UTF-8 bytes") from error
    if kind is Timestamp:
        return moments.timestamp_text(value)
    if kind is Duration:
        return moments.duration_text(value)
    raise no_overload("string", value)


def to_bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is str:
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


def to_timestamp(value: Any) -> Timestamp:
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        return moments.timestamp_in_range(value * moments.SECOND)
    if type(value) is str:
        return moments.parse_timestamp(value)
    raise no_overload("timestamp", value)


def to_duration(value: Any) -> Duration:
    if type(value) is Duration:
        return value
    if type(value) is str:
        return moments.parse_duration(value)
    raise no_overload("duration", value)


def type_of(value: object) -> CelType:
    return CelType(type_name(value))


def _field(field: str, value: object, zone: object = "UTC") -> int:
    if type(value) is Timestamp and type(zone) is str:
        return moments.timestamp_field(field, value, zone or "UTC")
    if type(value) is Duration:
        return moments.duration_field(field, value)
    raise no_overload(field, value)


FUNCTIONS: Final[dict[str, Callable[..., object]]] = {
    "_+_": plus,
    "_-_": minus,
    "_*_": partial(_arithmetic, "_*_", mul),
    "_/_": divide,
    "_%_": remainder,
    "-_": negate,
    "!_": invert,
    "_==_": equal,
    "_!=_": not_equal,
    "_<_": less,
    "_<=_": less_or_equal,
    "_>_": greater,
    "_>=_": greater_or_equal,
    "_[_]": index,
    "@in": is_in,
    "size": size,
    "contains": contains,
    "startsWith": starts_with,
    "endsWith": ends_with,
    "matches": matches,
    "int": to_int,
    "uint": to_uint,
    "double": to_double,
    "string": to_string,
    "bytes": to_bytes,
    "bool": to_bool,
    "timestamp": to_timestamp,
    "duration": to_duration,
    "type": type_of,
    **{name: partial(_field, name) for name in [*moments.TIMESTAMP_FIELDS, "getMilliseconds"]},
}

METERED: Final = frozenset({"_==_", "_!=_", "@in"})
"""Functions that may walk deep into their arguments and take the meter along."""

_RESULTS: Final[dict[str, Type]] = {
    **dict.fromkeys(("!_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "bool"), "bool"),
    **dict.fromkeys(("contains", "startsWith", "endsWith", "matches"), "bool"),
    **dict.fromkeys(moments.TIMESTAMP_FIELDS, "int"),
    "getMilliseconds": "int",
    "size": "int",
    "int": "int",
    "uint": "uint",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "timestamp": "timestamp",
    "duration": "duration",
    "type": "type",
}


def result_type(function: str, arguments: Sequence[Type]) -> Type:
    """The type of every value the function can return for arguments of these types."""
    if function in _RESULTS:
        return _RESULTS[function]
    if function != "_[_]" and len(set(arguments)) == 1 and arguments[0] in _CLOSED:
        return arguments[0]
    return "dyn"


_CLOSED: Final[frozenset[Type]] = frozenset(
    {"int", "uint", "double", "string", "bytes", "list", "duration"}
)
