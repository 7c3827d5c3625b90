"""JSON text as it comes from outside: valid, of bounded size and depth, and free of surprises."""

import math
import re
import sys
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, NoReturn

import orjson

from tape.errors import InvalidArgument, TooLarge
from tape.settings import Limits

UNLIMITED = Limits(**{each.name: sys.maxsize for each in fields(Limits)})
"""For whoever leaves it to the bus to judge sizes: it knows the limits."""

_CONTAINERS = (dict, list)
# DEL and C1, marks and overrides of direction, line separators.
_LONG_NUMBER = re.compile("[0-9]{19}")
# Of valid JSON: a text, or a number as a whole part and the rest of it.
_TEXT_OR_NUMBER = re.compile(
    r'"(?:[^"\\]++|\\.)*+"|(-?+[0-9]++)((?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+)'
)
_STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def check_json(text: str, limits: Limits, *, field: str) -> str:
    """`text` if it is one JSON value within the limits; an empty text counts as null."""
    if not text or text == "null":
        return "null"
    size = len(text) if text.isascii() else utf8_length(text, field)
    if size > limits.payload_bytes:
        _too_large(size, limits, field)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidArgument(
            f"not valid JSON: {error.msg}", field=field, position=error.pos
        ) from None
    # A text is no deeper than it has brackets; a flat object, the usual one, has none but its own.
    if ("[" in text or text.find("{", 1) > 0) and (
        text.count("[") + text.count("{") > limits.json_depth
    ):
        _check_depth(value, limits, field)
    return text


def to_json(value: Any, limits: Limits, *, field: str) -> str:
    """A Python value as JSON text. NaN and infinities are refused, not turned into null."""
    try:
        encoded = orjson.dumps(value)
    except TypeError as error:
        raise InvalidArgument(f"cannot be written as JSON: {error}", field=field) from None
    if len(encoded) > limits.payload_bytes:
        _too_large(len(encoded), limits, field)
    if b"null" in encoded:
        _refuse_non_finite(value, field)
    if encoded.count(b"[") + encoded.count(b"{") > limits.json_depth:
        _check_depth(orjson.loads(encoded), limits, field)
    return encoded.decode()


def exceeds_64_bits(json_text: str, *, is_signed: bool = False) -> bool:
    """Whether valid JSON has a whole number that no integer of 64 bits can hold, be it signed or
    not; with `is_signed` no signed one. Beyond 64 bits parsers read a double, another number."""
    if _LONG_NUMBER.search(json_text) is None:
        return False
    most = 2**63 if is_signed else 2**64
    for found in _TEXT_OR_NUMBER.finditer(json_text):
        digits, rest = found.groups()
        if digits is None or rest or len(digits) < 19:
            continue
        if len(digits) > 20 or not -(2**63) <= int(digits) < most:
            return True
    return False


def utf8_length(text: str, field: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            "a lone surrogate is not text", field=field, position=error.start
        ) from None


def _too_large(size: int, limits: Limits, field: str) -> NoReturn:
    raise TooLarge(f"{size} bytes, the limit is {limits.payload_bytes}", field=field)


def _check_depth(value: Any, limits: Limits, field: str) -> None:
    level = [value]
    for _ in range(limits.json_depth):
        level = [c for node in level for c in _children(node) if isinstance(c, _CONTAINERS)]
        if not level:
            return
    raise TooLarge(f"nested deeper than {limits.json_depth} levels", field=field)


def _refuse_non_finite(value: Any, field: str) -> None:
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, float) and not math.isfinite(node):
            raise InvalidArgument(f"{node} has no JSON form", field=field)
        pending.extend(_children(node))


def _children(node: Any) -> Iterable[Any]:
    """What orjson would look into."""
    if isinstance(node, dict):
        return node.values()
    if isinstance(node, Enum):
        return (node.value,)
    if is_dataclass(node):
        return [getattr(node, field.name) for field in fields(node)]
    return node if isinstance(node, list | tuple) else ()


def terminal_safe(json_text: str) -> str:
    """The same JSON value, without characters that steer a terminal or turn text around.

    JSON escapes C0 itself. Outside of its texts JSON is plain ASCII, so each of the others is
    within one, where its escape means the same.
    """
    if json_text.isascii() and "\x7f" not in json_text:
        return json_text
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)
