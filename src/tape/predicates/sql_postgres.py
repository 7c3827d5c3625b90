"""Conditions for Postgres.

The payload is read as `json`, not `jsonb`: a number that `numeric` cannot hold is an error of the
whole query in `jsonb`, and both let the last of several equal keys win.
"""

from functools import reduce
from typing import Final

from tape.predicates.sql import (
    FALSE,
    PARAMETER,
    TRUE,
    UNKNOWN,
    Key,
    Ordering,
    Path,
    Sql,
    joined,
    sql,
)
from tape.predicates.sql_json import DOCUMENT

_ROOT: Final = Sql(f"({DOCUMENT}::json)")
_SAFE_NUMBER: Final = "length(value #>> '{{}}') <= 64 AND value #>> '{{}}' !~ '[eE][+-]?[0-9]{{4}}'"


class Postgres:
    numbered = True
    deepest = 1000

    def text(self, value: str) -> Sql:
        return Sql(f"{PARAMETER}::text", (value,))

    def integer(self, value: int) -> Sql:
        return Sql(f"{PARAMETER}::bigint", (value,))

    def by_code_point(self, text: Sql) -> Sql:
        return sql('{} COLLATE "C"', text)

    def length(self, text: Sql) -> Sql:
        return sql("length({})", text)

    def starts_with(self, text: Sql, part: str) -> Sql:
        return sql("starts_with({}, {})", text, self.text(part))

    def ends_with(self, text: Sql, part: str) -> Sql:
        ending = sql(f"right({{}}, {len(part)})", text)
        return sql("{} = {}", ending, self.text(part))

    def contains(self, text: Sql, part: str) -> Sql:
        return sql("strpos({}, {}) > 0", text, self.text(part)) if part else TRUE

    def has(self, path: Path, field: str) -> Sql:
        found = sql("(value -> {}) IS NOT NULL", self.text(field))
        return self._at(path, sql("CASE json_typeof(value) WHEN 'object' THEN {} END", found))

    def is_string(self, path: Path, values: tuple[str, ...]) -> Sql:
        listed = joined(", ", map(self.text, values))
        test = sql("value #>> '{{}}' IN ({})", listed)
        return self._at(
            path, sql("CASE json_typeof(value) WHEN 'string' THEN {} ELSE FALSE END", test)
        )

    def is_bool(self, path: Path, value: bool) -> Sql:
        test = Sql(f"value #>> '{{}}' = '{'true' if value else 'false'}'")
        return self._at(
            path, sql("CASE json_typeof(value) WHEN 'boolean' THEN {} ELSE FALSE END", test)
        )

    def is_null(self, path: Path) -> Sql:
        return self._at(path, Sql("json_typeof(value) = 'null'"))

    def is_true(self, path: Path) -> Sql:
        return self._at(
            path, Sql("CASE json_typeof(value) WHEN 'boolean' THEN value #>> '{}' = 'true' END")
        )

    def is_near(self, path: Path, low: float, high: float) -> Sql:
        test = "(value #>> '{{}}')::numeric BETWEEN {} AND {}"
        return self._number(path, sql(test, _numeric(low), _numeric(high)), FALSE)

    def is_beyond(self, path: Path, ordering: Ordering, bound: float) -> Sql:
        test = f"(value #>> '{{{{}}}}')::numeric {ordering} {{}}"
        return self._number(path, sql(test, _numeric(bound)), UNKNOWN)

    def _number(self, path: Path, test: Sql, otherwise: Sql) -> Sql:
        case = (
            f"CASE WHEN json_typeof(value) <> 'number' THEN {{}} WHEN {_SAFE_NUMBER} THEN {{}} END"
        )
        return self._at(path, sql(case, otherwise, test))

    def _at(self, path: Path, answer: Sql) -> Sql:
        """The answer, in terms of `value`, at the end of the path.

        OFFSET 0 keeps the planner from writing the path out again for each mention of `value`.
        """
        found = reduce(self._step, path, _ROOT)
        query = "(SELECT {} FROM (SELECT {} AS value OFFSET 0) AS leaf WHERE value IS NOT NULL)"
        return sql(query, answer, found)

    def _step(self, within: Sql, key: Key) -> Sql:
        if isinstance(key, str):
            return sql("({} -> {})", within, self.text(key))
        return sql(f"({{}} -> {key:d})", within)


def _numeric(value: float) -> Sql:
    return Sql(f"{PARAMETER}::text::numeric", (repr(value),))
