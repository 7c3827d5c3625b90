"""CEL's functions over CEL values: each checks the exact types it is given, or raises.

`FUNCTIONS` is the whole language apart from selection, logic and macros. Both evaluators call it;
the Python generator writes a few of the commonest cases out in place.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import add, mul, sub
from typing import Any, Final

from tape.predicates import moments, regex
from tape.predicates.conversions import (
    int64,
    to_bool,
    to_bytes,
    to_double,
    to_duration,
    to_int,
    to_string,
    to_timestamp,
    to_uint,
    uint64,
)
from tape.predicates.values import (
    CelType,
    Duration,
    EvaluationError,
    Timestamp,
    Type,
    UInt,
    charge_compared,
    charge_key,
    compared,
    equal,
    no_overload,
    settled,
    stored_key,
    type_name,
)
from tape.predicates.work import (
    CALL,
    ELEMENT,
    MOMENT,
    REGEX,
    REGEX_CLASS,
    REGEX_COMPILED,
    REGEX_REFUSED,
    SCANNED,
    SHORT,
    Work,
    charge,
    charge_search,
)


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


def plus(left: Any, right: Any, work: Work) -> object:
    kind, other = type(left), type(right)
    if kind is int and other is int:
        return int64(left + right)
    if kind is other and kind in (str, bytes, list):
        charge(work, (10 if kind is list else 2) * (len(left) + len(right)))
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


def less(left: object, right: object, work: Work) -> bool:
    return compared(left, right, "_<_", work) == -1


def less_or_equal(left: object, right: object, work: Work) -> bool:
    return compared(left, right, "_<=_", work) in (-1, 0)


def greater(left: object, right: object, work: Work) -> bool:
    return compared(left, right, "_>_", work) == 1


def greater_or_equal(left: object, right: object, work: Work) -> bool:
    return compared(left, right, "_>=_", work) in (0, 1)


def not_equal(left: object, right: object, work: Work) -> bool:
    return not equal(left, right, work)


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


def index(container: object, key: object, work: Work) -> object:
    charge_key(key, work)
    return at(container, key)


def at(container: object, key: object) -> object:
    """The element, of a key that is short."""
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


PIECE: Final = 10_000
EXACT: Final = 2**53
"""Up to here Python's exact comparison of int and float and CEL's rounded one agree."""


def is_plain(value: object) -> bool:
    """Whether Python compares it with anything just as CEL does: no number that a bool equals, or
    that rounding could make equal to another."""
    kind = type(value)
    if kind is int or kind is float:
        return abs(value) < EXACT and value not in (0, 1)  # type: ignore[arg-type]  # a number
    return kind is str


def is_in(value: object, container: object, work: Work) -> bool:
    if type(container) is list:
        if is_plain(value) and (type(value) is not str or len(value) <= SHORT):
            charge(work, SCANNED * len(container))
            return _is_among(value, container)
        charge(work, ELEMENT * len(container))
        return any(equal(value, element, work) for element in container)
    if type(container) is dict and type(value) in (bool, int, UInt, float, str):
        if type(value) is str:
            if len(value) > SHORT:
                charge_key(value, work)
            return value in container
        return stored_key(value) in container
    raise no_overload("@in", value, container)


def _is_among(value: object, elements: list[object]) -> bool:
    """Look through a long list in pieces: no other thread runs while Python looks through one."""
    if len(elements) <= PIECE:
        return value in elements
    return any(value in elements[at : at + PIECE] for at in range(0, len(elements), PIECE))


def size(value: object) -> int:
    if type(value) in (str, bytes, list, dict):
        return len(value)  # type: ignore[arg-type]  # sized, by the line above
    raise no_overload("size", value)


def _two_strings(function: str, left: object, right: object) -> tuple[str, str]:
    if type(left) is str and type(right) is str:
        return left, right
    raise no_overload(function, left, right)


def contains(text: object, part: object, work: Work) -> bool:
    whole, found = _two_strings("contains", text, part)
    charge_search(work, len(whole), len(found))
    return found in whole


def starts_with(text: object, part: object, work: Work) -> bool:
    whole, found = _two_strings("startsWith", text, part)
    charge_compared(whole, found, work)
    return whole.startswith(found)


def ends_with(text: object, part: object, work: Work) -> bool:
    whole, found = _two_strings("endsWith", text, part)
    charge_compared(whole, found, work)
    return whole.endswith(found)


def matches(text: object, pattern: object, work: Work) -> bool:
    whole, expression = _two_strings("matches", text, pattern)
    # As often as it is asked, and not only at first: what is remembered must not matter.
    characters = min(len(expression), regex.MOST_CHARACTERS)
    charge(work, CALL * characters + REGEX_CLASS * regex.classes(expression[:characters]))
    try:
        compiled = regex.compiled(expression)
    except regex.TooManyInstructions:
        charge(work, REGEX_REFUSED)
        raise
    charge(work, REGEX_COMPILED * compiled.size)
    return searched(compiled, whole, work)


def searched(compiled: regex.Regex, text: object, work: Work) -> bool:
    if type(text) is not str:
        raise no_overload("matches", text, "")
    try:
        encoded = text.encode()
    except UnicodeError as error:
        raise EvaluationError("the text is not valid Unicode") from error
    charge(work, REGEX * compiled.size * len(encoded))
    return compiled.search(encoded) is not None


def type_of(value: object) -> CelType:
    return CelType(type_name(value))


def _field(field: str, value: object, *rest: Any) -> int:
    """`rest` is a time zone, if one is given, and the work."""
    zone, work = rest if len(rest) == 2 else ("UTC", *rest)
    charge(work, MOMENT)
    if type(value) is Timestamp and type(zone) is str:
        return moments.timestamp_field(field, value, zone or "UTC")
    if type(value) is Duration:
        return moments.duration_field(field, value)
    raise no_overload(field, value)


_FIELDS: Final = {
    name: partial(_field, name) for name in [*moments.TIMESTAMP_FIELDS, "getMilliseconds"]
}
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
    **_FIELDS,
}

METERED: Final = frozenset(
    {
        "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_[_]", "@in", "_+_", "contains",
        "startsWith", "endsWith", "matches", "int", "uint", "double", "string", "bytes",
        "timestamp", "duration", *_FIELDS,
    }
)  # fmt: skip
"""Functions whose time depends on their arguments: they take the work as well, and charge it."""

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
