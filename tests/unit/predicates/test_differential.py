"""Generated expressions over generated entries: every way to decide must agree.

The generated Python code, the plain evaluator, Google's C++ evaluator and both databases are asked
the same questions. Payloads are generated as JSON text, so that equal keys, escapes and odd numbers
reach each engine as they would from a producer.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import orjson
from cel_expr_python import cel  # type: ignore[import-untyped]  # no py.typed in the wheel
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from tape.predicates import ENVELOPE, Predicate, PredicateError, check
from tape.predicates.evaluate import Evaluation
from tape.predicates.values import INT_MAX, INT_MIN, EvaluationError
from tape.predicates.work import new_work

PROFILE: Final = settings(
    deadline=None,
    max_examples=120,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

TEXTS: Final = [
    "",
    "a",
    "b",
    "ab",
    "aab",
    "1",
    "1.5",
    "true",
    "é",
    "😀",
    "a\x00",
    "\ue000",
    "u0000",
]
KEYS: Final = ["a", "b", "c", "é", "a\x00", "\ue000"]
NUMBERS: Final = [
    "0", "1", "-1", "2", "100", "0.0", "1.0", "1.5", "-0.0", "100.0", "99.99999999999999", "1e2",
    "1E+2",     "9007199254740992", "9007199254740993", "9007199254740993.0", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "18446744073709551616", "1e300", "1e-400000",
    "0.1", "0.30000000000000004", "123456789012345678901234567890",
]  # fmt: skip
INTS: Final = ["0", "1", "2", "3", "-1", "100", "9007199254740993", "9223372036854775807"]
DOUBLES: Final = ["0.0", "1.0", "1.5", "100.0", "-1.0", "9007199254740992.0", "0.1", "1e300"]


def json_strings(texts: list[str]) -> st.SearchStrategy[str]:
    """JSON strings with their characters as they are or written as escapes."""
    chosen = st.sampled_from(texts)
    return st.one_of(chosen.map(_quoted), chosen.map(_escaped))


def _quoted(text: str) -> str:
    return orjson.dumps(text).decode()


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    return '"' + "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2)) + '"'


def json_texts() -> st.SearchStrategy[str]:
    scalars = st.one_of(
        st.sampled_from(["null", "true", "false"]), st.sampled_from(NUMBERS), json_strings(TEXTS)
    )

    def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        members = st.lists(st.tuples(json_strings(KEYS), inner), max_size=4)
        return st.one_of(members.map(_object), st.lists(inner, max_size=3).map(_array))

    value = st.recursive(scalars, nested, max_leaves=4)
    usual = st.tuples(*(st.tuples(json_strings([key]), value) for key in ("a", "b", "c")))
    return st.one_of(usual.map(_object), usual.map(_object), nested(value))


def _object(members: Iterable[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in members) + "}"


def _array(items: Iterable[str]) -> str:
    return "[" + ",".join(items) + "]"


@st.composite
def entries(draw: st.DrawFn, entry_type: Any) -> Any:
    in_run = draw(st.booleans())
    return entry_type(
        payload_json=draw(json_texts()),
        run_id=draw(st.sampled_from(["", "a", "run-1"])) if in_run else None,
        seq=draw(st.integers(1, 3)) if in_run else None,
        kind=draw(st.sampled_from(["value", "effect", "é"])),
        subject=draw(st.sampled_from(["/tape/value/changed/a/b", "/tape/effect/é", "/tape/😀"])),
        ts_ms=draw(st.sampled_from([0, 1, 9007199254740993])),
        schema_version=draw(st.integers(1, 3)),
        trace_id=draw(st.sampled_from(["", "t"])),
        prev_value_json=draw(st.sampled_from([None, "", "1.5"])),
        event_id=draw(st.sampled_from(["01J", "01K"])),
        event_type=draw(st.sampled_from(["", "a", "order.placed"])),
        entity_type=draw(st.sampled_from(["", "a", "é"])),
        entity_id=draw(st.sampled_from(["", "1", "a"])),
        caused_by=draw(st.sampled_from(["", "01J"])),
        source=draw(st.sampled_from(["", "a", "😀"])),
        idempotency_key=draw(st.sampled_from([None, "", "a"])),
    )


literals: Final = st.one_of(
    st.sampled_from([_quoted(text) for text in TEXTS]),
    st.sampled_from(["true", "false", "null"]),
    st.sampled_from(INTS),
    st.sampled_from(DOUBLES),
)
string_columns: Final = st.sampled_from(
    [
        "run_id", "kind", "subject", "trace_id", "event_id", "event_type", "entity_type",
        "entity_id", "caused_by", "source", "idempotency_key",
    ]
)  # fmt: skip
int_columns: Final = st.sampled_from(["global_seq", "seq", "ts_ms", "schema_version"])
orderings: Final = st.sampled_from(["<", "<=", ">", ">="])
equalities: Final = st.sampled_from(["==", "!="])
string_literals: Final = st.sampled_from(
    [_quoted(text) for text in [*TEXTS, "value", "/tape/value/", "/b", "run-1"]]
)
int_literals: Final = st.sampled_from(INTS)


@st.composite
def paths(draw: st.DrawFn) -> str:
    steps = st.one_of(
        st.sampled_from([".a", ".b", ".c"]),
        st.sampled_from([f"[{_quoted(key)}]" for key in KEYS]),
        st.sampled_from(["[0]", "[1]"]),
    )
    first = draw(st.one_of(st.sampled_from([".a", ".b", ".c"]), steps))
    return "payload" + first + "".join(draw(st.lists(steps, max_size=1)))


@st.composite
def formatted(draw: st.DrawFn, template: str, *parts: st.SearchStrategy[str]) -> str:
    return template.format(*(draw(part) for part in parts))


dynamic: Final = st.one_of(
    paths(),
    paths(),
    literals.map(lambda text: f"dyn({text})"),
    formatted("({} + {})", paths(), literals.map(lambda text: f"dyn({text})")),
    formatted("({} - {})", paths(), paths()),
    formatted("({} * dyn({}))", paths(), st.sampled_from([*INTS, *DOUBLES])),
    formatted("({} / dyn({}))", paths(), st.sampled_from([*INTS, *DOUBLES])),
    formatted("({} % dyn({}))", paths(), int_literals),
    formatted("(-{})", paths()),
    formatted("size({})", paths()),
    formatted("double({})", paths()),
    # Not int() of anything: Google's takes a bool, which the language definition does not.
    formatted("int(double({}))", paths()),
    formatted("int(string({}))", paths()),
    formatted("string({})", paths()),
    formatted("{}[{}]", paths(), paths()),
    formatted("type({})", paths()),
)

sql_leaves: Final = st.one_of(
    formatted("{} {} {}", string_columns, st.one_of(equalities, orderings), string_literals),
    formatted("{} {} {}", string_columns, st.one_of(equalities, orderings), string_columns),
    formatted("{} {} {}", int_columns, st.one_of(equalities, orderings), int_literals),
    formatted("{} in [{}, {}]", string_columns, string_literals, string_literals),
    formatted("{} in [{}, {}]", int_columns, int_literals, int_literals),
    formatted(
        "{}.{}({})",
        string_columns,
        st.sampled_from(["startsWith", "endsWith", "contains"]),
        string_literals,
    ),
    formatted("size({}) {} {}", string_columns, orderings, int_literals),
    formatted("{} {} {}", paths(), equalities, literals),
    formatted("{} {} {}", literals, equalities, paths()),
    formatted("{} {} {}", paths(), orderings, st.sampled_from([*INTS, *DOUBLES])),
    formatted("{} {} {}", st.sampled_from([*INTS, *DOUBLES]), orderings, paths()),
    formatted("{} in [{}, {}]", paths(), string_literals, string_literals),
    formatted("has({}.{})", st.one_of(st.just("payload"), paths()), st.sampled_from("abc")),
    paths(),
    st.sampled_from(["true", "false"]),
)
python_leaves: Final = st.one_of(
    formatted("{} {} {}", dynamic, st.one_of(equalities, orderings), dynamic),
    formatted("{} in {}", dynamic, paths()),
    formatted("{} in [{}, {}]", dynamic, dynamic, dynamic),
    formatted(
        "{}.{}({})",
        paths(),
        st.sampled_from(["startsWith", "endsWith", "contains", "matches"]),
        st.sampled_from(['"a"', '"b$"', '"1.5"']),
    ),
    formatted(
        "{}.{}(x, x {} {})",
        paths(),
        st.sampled_from(["all", "exists", "exists_one"]),
        st.one_of(equalities, orderings),
        literals.map(lambda text: f"dyn({text})"),
    ),
    formatted("size({}.filter(x, x == {})) > 0", paths(), dynamic),
    formatted("{} in {}.map(x, x)", dynamic, paths()),
    formatted("prev_value_json == {}", paths()),
    formatted("{{1: 1, 'a': 2, false: 3}}[{}] {} 1", dynamic, orderings),
)


def expressions(leaves: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            formatted("({} && {})", inner, inner),
            formatted("({} || {})", inner, inner),
            formatted("!({})", inner),
            formatted("({} ? {} : {})", inner, inner, inner),
        )

    return st.recursive(leaves, nested, max_leaves=5)


Verdict = bool | None
"""None is an error, as in SQL."""


def generated(predicate: Predicate, envelope: dict[str, object]) -> Verdict:
    try:
        return predicate.evaluate(envelope)
    except PredicateError:
        return None


def plain(predicate: Predicate, envelope: dict[str, object]) -> Verdict:
    try:
        return Evaluation(envelope, new_work(100_000)).value(predicate.tree) is True
    except EvaluationError:
        return None


_TYPES: Final = {"int": cel.Type.INT, "string": cel.Type.STRING, "dyn": cel.Type.DYN}
_ORACLE: Final = cel.NewEnv(variables={name: _TYPES[kind] for name, kind in ENVELOPE.items()})


def oracle(expression: str, envelope: dict[str, object]) -> Verdict:
    try:
        result = _ORACLE.compile(expression).eval(data=envelope)
    except RuntimeError:
        return None
    # Asking for the value of a null ends the process.
    return result.plain_value() if result.type().name() == "BOOL" else None


def within_the_oracles_reach(value: object) -> bool:
    """It cuts strings at NUL and cannot take an integer beyond 64 bits."""
    match value:
        case str():
            return "\x00" not in value
        case int():
            return INT_MIN <= value <= INT_MAX
        case dict():
            return all(within_the_oracles_reach(part) for part in (*value, *value.values()))
        case list():
            return all(within_the_oracles_reach(part) for part in value)
        case _:
            return True


def checked(expression: str) -> Predicate:
    try:
        return check(expression)
    except Exception:
        assume(False)
        raise


@PROFILE
@given(data=st.data(), expression=expressions(st.one_of(sql_leaves, python_leaves)))
def test_both_evaluators_and_google_agree(
    data: st.DataObject, expression: str, new_entry: Any
) -> None:
    predicate = checked(expression)
    envelope = data.draw(entries(new_entry)).envelope
    verdict = plain(predicate, envelope)
    event(f"verdict {verdict}")
    assert generated(predicate, envelope) is verdict
    if "\\u0000" not in expression and within_the_oracles_reach(envelope):
        assert oracle(expression, envelope) is verdict


@PROFILE
@given(data=st.data(), expression=expressions(sql_leaves))
def test_sql_agrees(data: st.DataObject, expression: str, engine: Any, new_entry: Any) -> None:
    predicate = checked(expression)
    exact = predicate.sql(engine.dialect)
    prefilter = predicate.sql_prefilter(engine.dialect)
    assume(prefilter is not None)
    event("exact" if exact else "prefilter only")
    drawn = data.draw(st.lists(entries(new_entry), min_size=1, max_size=4))
    numbered = [replace(entry, global_seq=number) for number, entry in enumerate(drawn, 1)]
    verdicts = [generated(predicate, entry.envelope) for entry in numbered]
    if exact is not None:
        assert engine.verdicts(exact, numbered) == verdicts
    for verdict, possible in zip(verdicts, engine.verdicts(prefilter, numbered), strict=True):
        assert possible is not False or verdict is False
