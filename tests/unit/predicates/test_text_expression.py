"""Expressions with a text for a result: as CEL's own string() has it, in bounded work."""

from typing import Any, Final

import orjson
import pytest
from cel_expr_python import cel  # type: ignore[import-untyped]  # no py.typed in the wheel
from hypothesis import given, settings
from hypothesis import strategies as st

from tape.errors import InvalidArgument, PredicateError, PredicateTooCostly
from tape.predicates import PredicateLimits, check_text
from tape.predicates.text_expression import TextExpression

NAMES: Final = ("payload", "message")
LONG: Final = "".join(["x"] * 9_999)
"""Of its own: what is compared with itself takes no time."""


def text(expression: str, limits: PredicateLimits | None = None) -> TextExpression:
    return check_text(expression, NAMES, field="key", limits=limits or PredicateLimits())


def test_it_knows_what_it_reads_and_equals_its_like() -> None:
    found = text("payload.a + message.b")
    assert found.names == {"payload", "message"}
    assert found == text("payload.a + message.b") != text("payload.a")
    assert found.evaluate({"payload": {"a": "x"}, "message": {"b": "y"}}) == "xy"


def test_an_error_is_a_predicate_error() -> None:
    for expression in ("payload.none", "payload", "payload.a / 0", "message"):
        with pytest.raises(PredicateError):
            text(expression).evaluate({"payload": {"a": 1}, "message": None})
    with pytest.raises(PredicateError, match="is not set"):
        text("message").evaluate({})


def test_names_are_those_given_and_no_others() -> None:
    for expression in ("subject", "global_seq", "key"):
        with pytest.raises(InvalidArgument, match="undeclared reference"):
            text(expression)


def test_its_work_is_bounded() -> None:
    much = {"payload": list(range(5_000)), "message": "x" * 2_000_000}
    squared = "payload.filter(x, payload.exists(y, y == -1)).size()"
    with pytest.raises(PredicateTooCostly):
        text(squared).evaluate(much)
    copied = "payload.map(x, message + message).size()"
    with pytest.raises(PredicateTooCostly):
        text(copied).evaluate(much)
    few = PredicateLimits(steps=2)
    with pytest.raises(PredicateTooCostly):
        text("payload.exists(x, x == 4999) ? 'a' : 'b'", few).evaluate(much)
    assert text("payload[0]", few).evaluate(much) == "0"


def test_a_name_of_any_type_is_not_taken_for_a_short_text() -> None:
    many = " && ".join(["message == string(payload)"] * 100)
    with pytest.raises(PredicateTooCostly):
        text(many, PredicateLimits(steps=1)).evaluate({"payload": "x" * 9_999, "message": LONG})


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "é", "😀", "1.5"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
EXPRESSIONS: Final = (
    "payload", "payload.a", "payload.b.c", "payload.a + payload.b", "payload[0]", "payload.size()",
    "has(payload.a) ? payload.a : message", "payload == message", "message.a[0]", "payload.a < 3",
    "[payload, message][1]", "{'k': payload}.k", "payload.exists(x, x == message) ? 'in' : 'out'",
    "[payload, 1].map(x, string(x))[0]", "type(payload) == string ? 'text' : 'other'",
    "bytes(payload.a)", "double(payload)", "timestamp('2026-01-02T03:04:05Z')", "duration('90s')",
    "string(payload.a) + '/' + string(payload.b)", "1u", "payload.a && payload.b", "-payload",
)  # fmt: skip
_ORACLE: Final = cel.NewEnv(variables=dict.fromkeys(NAMES, cel.Type.DYN))


def oracle(expression: str, values: dict[str, Any]) -> str | None:
    try:
        result = _ORACLE.compile(f"string({expression})").eval(data=values)
    except RuntimeError:
        return None
    return result.plain_value() if result.type().name() == "STRING" else None


@settings(deadline=None, max_examples=600)
@given(st.sampled_from(EXPRESSIONS), JSON, JSON)
def test_google_agrees(expression: str, payload: Any, other: Any) -> None:
    values = orjson.loads(orjson.dumps({"payload": payload, "message": other}))
    checked = text(expression)
    try:
        found: str | None = checked.evaluate(values)
    except PredicateError:
        found = None
    assert found == oracle(expression, values)
    assert found is None or isinstance(found, str)
