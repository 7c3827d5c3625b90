"""What becomes SQL, on both databases, and what does not."""

from typing import Any, Final, Literal

import asyncpg
import pytest

from tape.predicates import PredicateError, SqlCondition, check

DIALECTS: Final[tuple[Literal["sqlite", "postgres"], ...]] = ("sqlite", "postgres")

PAYLOADS: Final = [
    '{"a": "x", "b": {"c": true}, "n": 5}',
    '{"a": null, "b": {"c": false}}',
    '{"a": 5, "b": {}, "n": 5.0}',
    '{"a": ["x"], "b": "c", "n": "5"}',
    '{"a": true, "b": {"c": null}, "n": true}',
    '{"a": "first", "a": "x"}',
    '{"a": "x", "a": "last"}',
    '{"b": {"c": true}, "b": 5}',
    '{"b": {"c": true}, "b": {"d": 1}, "b": {"c": false}}',
    '{"\\u0061": "\\u0078", "b": {"\\u0063": true}}',
    '{"a\\u0000": "x"}',
    '{"a": "x\\u0000", "b": {"c\\u0000": 1}}',
    '{"a": "\\\\u0000"}',
    '{"a": "\\ud83d\\ude00", "b": {"c": "true"}}',
    '{"a": "{\\"c\\": true}", "b": "{\\"c\\": true}"}',
    '{"b": [{"c": true}], "n": 1e-400000}',
    '{"n": 99999999999999999999999999999999}',
    "[]",
    '"a"',
    "null",
    "{}",
]
EXACT: Final = [
    "payload.a == 'x'",
    "payload.a != 'x'",
    "payload.a == '😀'",
    "payload.a == null",
    "payload.a != null",
    "payload.a == true",
    "payload.b.c",
    "!payload.b.c",
    "payload.b.c == false",
    "payload['b']['c'] == true",
    "payload.b[0].c",
    "payload.a[0] == 'x'",
    "payload.a in ['x', 'last']",
    "has(payload.a)",
    "has(payload.b.c)",
    "has(payload.b.c.d)",
    "payload.a == 'x' && has(payload.b.c)",
    "payload.a == 'x' || payload.b.c",
    "has(payload.a) ? payload.a == 'x' : kind == 'effect'",
    "(payload.a == 'x') == (kind == 'effect')",
    "run_id == '' && seq == 0",
    "run_id != 'run-1' || seq < 1",
    "run_id == 'run-1' && seq > 2 && seq in [3, 4]",
    "subject.startsWith('/tape/effect/') && subject.endsWith('run-1')",
    "subject.contains('/sweep/') && !subject.contains('')",
    "kind in ['effect', 'value'] && kind < 'eg' && kind >= 'effect'",
    "size(subject) > 10 && schema_version == 1",
    "true",
]
PREFILTER_ONLY: Final = [
    "payload.n > 4.5",
    "payload.n == 5",
    "!(payload.n != 5)",
    "!(payload.n >= 5.0)",
    "6 > payload.n",
    "payload.a == 'x' && payload.n > 4",
    "kind == 'effect' && subject.matches('sweep')",
    "kind == 'value' && prev_value_json == '1'",
    "kind == 'value' ? payload.n > 1 : payload.a == 'x'",
    "payload.a == 'x' && payload.all(k, k != '')",
]
UNTRANSLATED: Final = [
    "subject.matches('sweep')",
    "kind == 'effect' || subject.matches('sweep')",
    "payload.a == payload.b",
    "payload == null",
    "payload.n != 5",
    "payload.a < 'y'",
    "payload.a.startsWith('x')",
    "payload.a == 'x\\u0000'",
    "payload.a == '\\ue000'",
    "payload['\\u0000'] == 'x'",
    "kind == '\\u0000'",
    "prev_value_json == ''",
    "payload.exists(k, k == 'a')",
]


def verdict(predicate: Any, entry: Any) -> bool | None:
    try:
        found: bool = predicate.evaluate(entry.envelope)
    except PredicateError:
        return None
    return found


@pytest.fixture(scope="session")
def sample(new_entry: Any) -> list[Any]:
    with_run = [new_entry(text, global_seq=n) for n, text in enumerate(PAYLOADS, 1)]
    outside = new_entry("{}", global_seq=99, run_id=None, seq=None, kind="value")
    return [*with_run, outside]


@pytest.mark.parametrize("expression", EXACT)
def test_exact(expression: str, engine: Any, sample: list[Any]) -> None:
    predicate = check(expression)
    condition = predicate.sql(engine.dialect)
    assert condition is not None
    found = engine.verdicts(condition, sample)
    assert found == [verdict(predicate, entry) for entry in sample]
    assert predicate.sql_prefilter(engine.dialect) == condition


@pytest.mark.parametrize("expression", PREFILTER_ONLY)
def test_prefilter(expression: str, engine: Any, sample: list[Any]) -> None:
    predicate = check(expression)
    assert predicate.sql(engine.dialect) is None
    condition = predicate.sql_prefilter(engine.dialect)
    assert condition is not None
    found = engine.verdicts(condition, sample)
    truths = [verdict(predicate, entry) for entry in sample]
    assert all(truth is False for truth, ok in zip(truths, found, strict=True) if ok is False)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("expression", UNTRANSLATED)
def test_left_to_python(expression: str, dialect: Literal["sqlite", "postgres"]) -> None:
    predicate = check(expression)
    assert predicate.sql(dialect) is None
    assert predicate.sql_prefilter(dialect) is None


def test_a_prefilter_rules_out_what_a_number_decides(engine: Any, new_entry: Any) -> None:
    entries = [
        new_entry(f'{{"price": {price}}}', global_seq=n)
        for n, price in enumerate(["99", "99.9", "100.0", "100.1", "1e300", '"200"', "null"], 1)
    ]
    condition = check("payload.price > 100.0").sql_prefilter(engine.dialect)
    # 100.0 is too near to be ruled out; a price that is no number is an error, for Python to tell.
    expected = [False, False, True, True, True, None, None]
    assert engine.verdicts(condition, entries) == expected


@pytest.mark.parametrize(
    "expression", ["payload.n < 100.0", "!(payload.n >= 100.0)", "100 > payload.n"]
)
def test_a_prefilter_keeps_what_is_near_from_either_side(
    expression: str, engine: Any, new_entry: Any
) -> None:
    predicate = check(expression)
    near = [new_entry(f'{{"n": {n}}}') for n in ("99.99999999999999", "100.00000000000001", "100")]
    for entry in near:
        assert engine.verdicts(predicate.sql_prefilter(engine.dialect), [entry]) == [True]
    far = new_entry('{"n": 100.1}')
    assert engine.verdicts(predicate.sql_prefilter(engine.dialect), [far]) == [False]


def test_postgres_orders_text_by_code_point_whatever_its_locale() -> None:
    condition = check("kind < subject").sql("postgres")
    assert condition == SqlCondition('kind COLLATE "C" < subject COLLATE "C"', ())


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("!(", ")"),
        ("(kind == 'a' && (kind == 'b' || ", "))"),
        ("(kind == 'a' ? true : ", ")"),
        ("(kind == 'a' ? ", " : true)"),
        ("((kind == 'a') == (", "))"),
        ("(kind != 'a' && ", " ? true : false)"),
    ],
)
def test_what_is_emitted_is_never_too_deep_to_parse(
    opening: str, closing: str, engine: Any, sample: list[Any]
) -> None:
    for leaf in ("has(payload.a.a.a.a.a.a.a.a.a)", "payload.a in ['x']", "size(kind) > 2"):
        for depth in range(1, 10):
            expression = opening * depth + leaf + closing * depth
            predicate = check(expression)
            condition = predicate.sql(engine.dialect)
            assert condition is not None or depth > 4
            if condition is not None:
                truths = [verdict(predicate, entry) for entry in sample]
                assert engine.verdicts(condition, sample) == truths


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_text_of_the_expression_is_in_the_sql(dialect: Literal["sqlite", "postgres"]) -> None:
    condition = check(
        """payload["k'ey"] == "va'lue" && kind == "'; DROP TABLE tape_journal; --"
        && payload.price > 123.0 && subject.startsWith("pre'fix") && seq == 4242"""
    ).sql_prefilter(dialect)
    assert condition is not None
    assert all(part not in condition.text for part in ("k'ey", "va'lue", "DROP", "pre'fix"))
    assert all(part not in condition.text for part in ("122", "123", "4242"))
    assert {"k'ey", "va'lue", "'; DROP TABLE tape_journal; --", "pre'fix", 4242} <= {
        *condition.params
    }


def test_parameters_can_be_renumbered() -> None:
    condition = SqlCondition("a = $1::text AND b = $2::bigint", ("x", 1))
    assert condition.renumbered(10) == SqlCondition("a = $10::text AND b = $11::bigint", ("x", 1))


async def test_asyncpg_takes_the_parameters(postgres_url: str) -> None:
    """It is strict about types, and prepares every statement."""
    condition = check(
        "payload.a == 'x' && payload.n > 4 && payload.n == 5 && seq in [1, 100000]"
        " && schema_version != 100000 && subject.endsWith('b') && size(kind) > 1 && has(payload.b)"
        " && payload.list[0] == true"
    ).sql_prefilter("postgres")
    assert condition is not None
    connection = await asyncpg.connect(postgres_url)
    try:
        found = await connection.fetchval(
            f"SELECT {condition.text} FROM (SELECT 1::bigint AS seq, 2::smallint AS schema_version,"
            " 'ab' AS subject, 'kind' AS kind,"
            """ '{"a": "x", "n": 5, "b": null, "list": [true]}' AS payload_json) AS tape_journal""",
            *condition.params,
        )
    finally:
        await connection.close()
    assert found is True
