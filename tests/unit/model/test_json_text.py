"""JSON text from outside: bounded, valid, and kept as it was written."""

import enum
import math
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.errors import InvalidArgument, TooLarge
from tape.model.json_text import check_json, to_json
from tape.settings import Limits

LIMITS = Limits()
SMALL = replace(LIMITS, payload_bytes=20)


def check(text: str, limits: Limits = LIMITS) -> str:
    return check_json(text, limits, field="payload_json")


def dump(value: Any, limits: Limits = LIMITS) -> str:
    return to_json(value, limits, field="payload")


def nested(depth: int, innermost: str = "1", opening: str = "[", closing: str = "]") -> str:
    return opening * depth + innermost + closing * depth


@pytest.mark.parametrize(
    "text",
    [
        "null", "1", "-0.5e3", '"ä"', "[]", "{}", ' {"a" : [1, 2]} ', '"\\u0000"',
        '"\\ud83d\\ude00"', "123456789012345678901234567890", "9223372036854775808",
        "0.1000000000000000000000000001", '{"a": 1, "a": 2}',
    ],
)  # fmt: skip
def test_valid_text_is_kept_to_the_letter(text: str) -> None:
    assert check(text) == text


def test_no_text_counts_as_null() -> None:
    assert check("") == "null"


@pytest.mark.parametrize(
    ("text", "position"),
    [("{", 1), ("[1,]", 2), ("nul", 3), ("1 2", 2), ('{"a" 1}', 5), ("NaN", 0), ("[Infinity]", 1)],
)
def test_what_is_not_json_is_refused_with_its_position(text: str, position: int) -> None:
    with pytest.raises(InvalidArgument, match="not valid JSON") as refused:
        check(text)
    assert (refused.value.field, refused.value.position) == ("payload_json", position)


@pytest.mark.parametrize(
    "text", [" ", "'a'", '"\\ud800"', '"\\udfff x"', '"\0"', '"\n"', "\ufeff1", "-", "1e999", "01"]
)
def test_near_misses_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        check(text)


def test_a_lone_surrogate_is_refused_with_its_position() -> None:
    with pytest.raises(InvalidArgument, match="lone surrogate") as refused:
        check('"ab\ud800"')
    assert refused.value.position == 3


@pytest.mark.parametrize(
    "text", ['"' + "x" * 18 + '"', '"' + "é" * 9 + '"', '"' + "😀" * 4 + '12"']
)
def test_size_is_counted_in_bytes(text: str) -> None:
    assert len(text.encode()) == 20
    assert check(text, SMALL) == text
    assert dump(orjson.loads(text), SMALL) == text
    longer = text[:-1] + 'x"'
    with pytest.raises(TooLarge, match="21 bytes, the limit is 20"):
        check(longer, SMALL)
    with pytest.raises(TooLarge, match="21 bytes"):
        dump(orjson.loads(longer), SMALL)


def test_a_mebibyte_is_the_default_limit() -> None:
    text = '"' + "x" * ((1 << 20) - 2) + '"'
    assert check(text) == text
    with pytest.raises(TooLarge):
        check(text[:-1] + 'x"')


@pytest.mark.parametrize("innermost", ["1", "", '"[[{{"'])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_sixty_four_levels_are_the_limit(innermost: str, opening: str, closing: str) -> None:
    if not innermost and opening != "[":
        innermost, depth = "{}", 63
    else:
        depth = 64
    text = nested(depth, innermost, opening, closing)
    assert check(text) == text
    assert dump(orjson.loads(text)) == text
    deeper = nested(depth + 1, innermost, opening, closing)
    with pytest.raises(TooLarge, match="deeper than 64"):
        check(deeper)
    with pytest.raises(TooLarge, match="deeper than 64"):
        dump(orjson.loads(deeper))


def test_an_empty_container_is_a_level() -> None:
    check(nested(63, "{}"))
    with pytest.raises(TooLarge):
        check(nested(64, "{}"))
    with pytest.raises(TooLarge):
        check(nested(64, "[]"))


def test_breadth_is_not_depth() -> None:
    assert check("[" + ",".join(["[]"] * 500) + "]")
    assert check('"' + "[" * 500 + '"')


def test_depth_beyond_any_parser_is_refused_as_well() -> None:
    with pytest.raises(InvalidArgument):
        check(nested(100_000, ""))


class Level(enum.Enum):
    BAD = math.nan


@dataclass
class Reading:
    value: Any


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: x,
        lambda x: [x],
        lambda x: (1, x),
        lambda x: {"a": {"b": [x]}},
        Reading,
        lambda x: [Reading([Reading(x)])],
    ],
)
def test_what_json_has_no_form_for_is_refused_not_nulled(bad: float, wrap: Any) -> None:
    with pytest.raises(InvalidArgument, match="no JSON form"):
        dump(wrap(bad))


def test_an_enumeration_hides_nothing() -> None:
    with pytest.raises(InvalidArgument, match="no JSON form"):
        dump({"level": Level.BAD})


def test_a_true_null_is_fine() -> None:
    assert dump({"a": None, "b": [None, 1.5]}) == '{"a":null,"b":[null,1.5]}'


@pytest.mark.parametrize("value", [object(), {1: 2}, 2**64, "\ud800", {"\ud800": 1}, {1, 2}, b"x"])
def test_what_cannot_be_written_as_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="cannot be written as JSON"):
        dump(value)


def test_depth_counts_whatever_becomes_a_container() -> None:
    value: Any = 1
    for _ in range(65):
        value = Reading(value)
    with pytest.raises(TooLarge):
        dump(value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab", max_size=3), inner),
)


@given(JSON)
def test_values_survive(value: Any) -> None:
    text = dump(value)
    assert check(text) == text
    assert orjson.loads(text) == value
