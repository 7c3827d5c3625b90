"""CEL values as Python values, and the rules that Python would bend.

    null None · bool bool · int int · uint UInt · double float · string str · bytes bytes
    list list · map dict · timestamp Timestamp · duration Duration · type CelType

A payload enters as parsed JSON, untouched. Two things about it are put right where it is read:
an integer beyond 64 bits is a double (`settled`), and Python's True must never pass for 1, which is
why every dispatch here asks for the exact `type()` and why bool map keys are stored as `BoolKey`.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from tape.predicates.work import ELEMENT, MEMBER, NODE, SHORT, Work, charge

Type = Literal[
    "bool", "int", "uint", "double", "string", "bytes", "null", "timestamp", "duration",
    "list", "map", "type", "dyn",
]  # fmt: skip
"""What is known of an expression's type before it runs; `dyn` is anything."""

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


class EvaluationError(Exception):
    """What CEL calls an error value: absorbed by `&&`, `||`, `all` and `exists`."""


class UInt(int):
    """An unsigned 64-bit integer; equal to the int of the same value, never added to one."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    nanos: int


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    nanos: int


@dataclass(frozen=True, slots=True)
class CelType:
    name: str


class BoolKey(Enum):
    """A bool as a map key: as plain True it would collide with 1."""

    FALSE = 0
    TRUE = 1


_TYPE_NAMES: Final[dict[type, str]] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    CelType: "type",
}
TYPE_NAMES: Final = frozenset(_TYPE_NAMES.values())

_NUMBERS: Final = frozenset({int, UInt, float})
_ORDERED: Final = frozenset({bool, str, bytes, Timestamp, Duration})


def settled(value: object) -> object:
    """A value as read from JSON, with integers that int64 cannot hold turned into doubles."""
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    return value


def type_name(value: object) -> str:
    return _TYPE_NAMES[type(value)]


def no_overload(function: str, *arguments: object) -> EvaluationError:
    types = ", ".join(type_name(argument) for argument in arguments)
    return EvaluationError(f"no such overload: {function}({types})")


def items(value: object, cost: int, work: Work) -> list[object]:
    """What a macro iterates over, the elements of a list or the keys of a map, and `cost` for
    each of its turns."""
    if type(value) is list:
        charge(work, cost * len(value))
        return value
    if type(value) is dict:
        charge(work, (cost + NODE) * len(value))
        return [plain_key(key) for key in value]
    raise EvaluationError(f"cannot iterate over {type_name(value)}")


def equal(left: object, right: object, work: Work) -> bool:
    """CEL `==`: numbers by value across types, everything else only within its own type."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        return _numbers_equal(left, right)
    if kind is not other:
        return False
    if kind is list:
        return _lists_equal(left, right, work)  # type: ignore[arg-type]  # both are lists here
    if kind is dict:
        return _maps_equal(left, right, work)  # type: ignore[arg-type]  # both are maps here
    if kind is str or kind is bytes:
        charge_compared(left, right, work)  # type: ignore[arg-type]  # both are text here
    return left == right


def charge_compared(left: str | bytes, right: str | bytes, work: Work) -> None:
    shorter = min(len(left), len(right))
    if shorter > SHORT:
        charge(work, shorter)


def charge_key(key: object, work: Work) -> None:
    """For looking a key up in a map: a text that is there is compared with the key."""
    if type(key) is str and len(key) > SHORT:
        charge(work, len(key))


def _numbers_equal(left: object, right: object) -> bool:
    left, right = settled(left), settled(right)
    if type(left) is float or type(right) is float:
        # An int meets a double as a double, rounding included; that is what the conformance
        # data asks of ordering, and equality has to agree with it.
        return float(left) == float(right)  # type: ignore[arg-type]  # both are numbers
    return left == right


def _lists_equal(left: list[object], right: list[object], work: Work) -> bool:
    if len(left) != len(right):
        return False
    charge(work, ELEMENT * len(left))
    return all(equal(a, b, work) for a, b in zip(left, right, strict=True))


def _maps_equal(left: dict[object, object], right: dict[object, object], work: Work) -> bool:
    if len(left) != len(right):
        return False
    charge(work, MEMBER * len(left))
    for key, value in left.items():
        charge_key(key, work)
        if key not in right or not equal(value, right[key], work):
            return False
    return True


def compared(left: Any, right: Any, function: str, work: Work) -> int | None:
    """Negative, zero or positive as left comes before, with or after right; None for a NaN."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        if kind is float or other is float:
            left, right = float(left), float(right)
            if math.isnan(left) or math.isnan(right):
                return None
    elif kind is not other or kind not in _ORDERED:
        raise no_overload(function, left, right)
    elif kind is str or kind is bytes:
        charge_compared(left, right, work)
    return int(left > right) - int(left < right)


def stored_key(key: object) -> object:
    """A map key in the form the dict holds it."""
    if key is True:
        return BoolKey.TRUE
    if key is False:
        return BoolKey.FALSE
    return key


def plain_key(key: object) -> object:
    """The CEL value of a key that a dict holds."""
    return key is BoolKey.TRUE if type(key) is BoolKey else key
