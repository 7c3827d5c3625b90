"""What is let in, and what is refused with which reason at which position."""

import time

import pytest

import tape.predicates
from tape.errors import InvalidArgument, TooLarge
from tape.predicates import PredicateError, PredicateLimits, check


def test_public_names() -> None:
    assert tape.predicates.__all__ == [
        "DEFAULT_LIMITS",
        "ENVELOPE",
        "STORED_LIMITS",
        "Checker",
        "Predicate",
        "PredicateError",
        "PredicateLimits",
        "SqlCondition",
        "TextExpression",
        "check",
        "check_text",
    ]


@pytest.mark.parametrize("expression", ["", "   ", "\n\t"])
def test_blank_is_always_true(expression: str) -> None:
    predicate = check(expression)
    assert predicate.always_true
    assert predicate.evaluate({}) is True
    assert predicate.names == frozenset()


def test_says_which_names_it_needs() -> None:
    predicate = check('kind == "value" && payload.all(subject, subject != "x")')
    assert predicate.names == {"kind", "payload"}
    assert not predicate.always_true


def test_equal_by_expression_and_immutable() -> None:
    assert check("seq > 1") == check("seq > 1")
    assert check("seq > 1") != check("seq > 2")
    with pytest.raises(AttributeError):
        check("seq > 1").expression = "seq > 2"  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize(
    ("expression", "position", "reason"),
    [
        ("knd == 'value'", 0, "undeclared reference to 'knd'"),
        ("kind == 'a' &&\n  'é😀' == knd", 25, "undeclared reference to 'knd'"),
        ("kind == 1", 5, "no matching overload"),
        ("kind ==", 7, "Syntax error"),
        ("kind == 'a' )", 12, "Syntax error"),
        ("payload.foo()", 11, "undeclared reference to 'foo'"),
        ("kind", 0, "a predicate must be bool, this is string"),
        ("seq + 1", 0, "a predicate must be bool, this is int"),
        ("null", 0, "a predicate must be bool, this is null"),
        ("[true]", 0, "a predicate must be bool, this is list<bool>"),
        ("kind == 'a\x00'", 10, "NUL"),
        ("kind == '\ud800'", 9, "not valid Unicode"),
        ("1 == google.protobuf.Int32Value{value: 1}", 5, "messages are not supported"),
        ("type(1) == google.protobuf.Any", 26, "google.protobuf.Any is not supported"),
        ("true || kind.matches('(')", 20, "invalid regular expression: missing )"),
        ("(" * 30 + "true" + ")" * 30, 24, "brackets nest deeper than 24"),
        ("kind == '('" + " && [" * 30, 11 + 24 * 5 + 4, "brackets nest deeper than 24"),
        ("1" + " + 1" * 200 + " == 1", 0, "nests too deeply"),
        ("payload" + ".a" * 200, 0, "nests too deeply"),
    ],
)
def test_refused(expression: str, position: int, reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check(expression, field="filter_expr")
    assert refused.value.field == "filter_expr"
    assert refused.value.position == position
    assert reason in str(refused.value)


def test_length_is_limited_in_bytes() -> None:
    padding = "é" * 2040
    with pytest.raises(TooLarge, match="4097 bytes, the limit is 4096"):
        check(f"kind == '{padding}xxxxxx' ")
    check(f"kind == '{padding}xxxxxx'")


def test_limits_are_configurable() -> None:
    with pytest.raises(InvalidArgument, match="nest deeper than 2"):
        check("(((true)))", limits=PredicateLimits(nesting=2))
    with pytest.raises(TooLarge):
        check("true", limits=PredicateLimits(length=3))


@pytest.mark.parametrize(
    "expression",
    [
        "'((((((((((((((((((((((((((((((' == kind",
        '"""(((((((((((((((((((((((((((((("""== kind',
        r"r'\((((((((((((((((((((((((((((((' == kind",
        r"'\'(((((((((((((((((((((((((((((((' == kind",
        "kind == 'a' // ((((((((((((((((((((((((((((((",
    ],
)
def test_brackets_in_text_do_not_nest(expression: str) -> None:
    check(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 24 + "true" + ")" * 24,
        "!(" * 23 + "has(payload.a)" + ")" * 23,
        "[1].exists(x, " * 15 + "x == 1" + ")" * 15,
        "size([1].map(x, " * 10 + "1" + "))" * 10 + " > 0",
        " ? true : ".join(["payload.a > 1"] * 20),
        "!has(payload.a) && payload" + ".a" * 28 + " == 1",
        "seq" + " + seq" * 28 + " > 0",
        " || ".join(f"payload.a == {n}" for n in range(200)),
    ],
)
def test_what_nests_within_the_limits_runs(expression: str) -> None:
    assert check(expression).evaluate({"payload": {"a": 3}, "seq": 1}) in (True, False)


@pytest.mark.parametrize(
    "expression",
    [
        "payload.a" + " + payload.a" * 28 + " == 1",
        "payload.a" + " - payload.a" * 28 + " == 1",
        "(payload.a == " * 7 + "payload.a" + " ? payload.a : payload.b)" * 7 + " == 1",
        "!(" * 23 + "payload.a == payload.b" + ")" * 23,
    ],
)
def test_no_part_is_translated_again_at_each_level(expression: str) -> None:
    """Twenty levels took half a minute when each of them wrote what is below it twice."""
    started = time.thread_time()
    check(expression)
    assert time.thread_time() - started < 1


def test_a_regular_expression_is_bounded_by_its_compiled_size() -> None:
    check("kind.matches('^[a-z]{1,300}$')")
    with pytest.raises(InvalidArgument, match="compiles to more than 2000 instructions"):
        check(r"kind.matches('\\pL{5}')")
    dynamic = check(r"payload.matches('\\pL{5}' + payload)")
    with pytest.raises(PredicateError, match="compiles to more than 2000 instructions"):
        dynamic.evaluate({"payload": "a"})


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a{0,1000}|" * 20, "more than 2000 instructions"),
        ("a{0,1000}" * 400, "more than 2000 instructions"),
        (r"(?i)" + r"\PL" * 1300, "more than 64 Unicode classes"),
    ],
)
def test_a_regular_expression_is_refused_before_it_takes_long(pattern: str, reason: str) -> None:
    """RE2 took from a tenth of a second to two seconds for these."""
    started = time.thread_time()
    with pytest.raises(InvalidArgument, match=reason):
        check(f"kind.matches(r'{pattern}')")
    assert time.thread_time() - started < 0.1


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("payload.x >", "Syntax error: the expression ends too early"),
        ("size(payload", "Syntax error: missing ')' at the end"),
    ],
)
def test_an_expression_that_ends_too_early_is_told_so(expression: str, reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check(expression)
    assert str(refused.value) == f"predicate_cel at position {len(expression)}: {reason}"
