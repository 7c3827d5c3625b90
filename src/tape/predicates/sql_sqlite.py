"""Conditions for SQLite 3.40 and later.

Paths are walked with `json_each`, one subquery a step, and not by path text: a path finds the first
of several equal keys where Python keeps the last, and misses keys that are written with escapes.
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

_ROOT: Final = Sql(f"(SELECT {DOCUMENT} AS value, json_type({DOCUMENT}) AS type)")


class Sqlite:
    numbered = False

    def text(self, value: str) -> Sql:
        return Sql(PARAMETER, (value,))

    def integer(self, value: int) -> Sql:
        return Sql(PARAMETER, (value,))

    def by_code_point(self, text: Sql) -> Sql:
        return text

    def length(self, text: Sql) -> Sql:
        return sql("length({})", text)

    def starts_with(self, text: Sql, part: str) -> Sql:
        return sql("substr({}, 1, {}) = {}", text, self.integer(len(part)), self.text(part))

    def ends_with(self, text: Sql, part: str) -> Sql:
        if not part:
            return TRUE
        return sql("substr({}, {}) = {}", text, self.integer(-len(part)), self.text(part))

    def contains(self, text: Sql, part: str) -> Sql:
        return sql("instr({}, {}) > 0", text, self.text(part)) if part else TRUE

    def has(self, path: Path, field: str) -> Sql:
        found = sql("EXISTS (SELECT 1 FROM json_each(leaf.value) WHERE key = {})", self.text(field))
        return self._at(path, sql("CASE type WHEN 'object' THEN {} END", found))

    def is_string(self, path: Path, values: tuple[str, ...]) -> Sql:
        listed = joined(", ", map(self.text, values))
        return self._at(
            path, sql("CASE type WHEN 'text' THEN value IN ({}) ELSE FALSE END", listed)
        )

    def is_bool(self, path: Path, value: bool) -> Sql:
        return self._at(path, Sql("type = 'true'" if value else "type = 'false'"))

    def is_null(self, path: Path) -> Sql:
        return self._at(path, Sql("type = 'null'"))

    def is_true(self, path: Path) -> Sql:
        return self._at(path, Sql("CASE type WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE END"))

    def is_near(self, path: Path, low: float, high: float) -> Sql:
        within = sql("value BETWEEN {} AND {}", Sql(PARAMETER, (low,)), Sql(PARAMETER, (high,)))
        return self._number(path, within, FALSE)

    def is_beyond(self, path: Path, ordering: Ordering, bound: float) -> Sql:
        return self._number(path, sql(f"value {ordering} {{}}", Sql(PARAMETER, (bound,))), UNKNOWN)

    def _number(self, path: Path, test: Sql, otherwise: Sql) -> Sql:
        case = "CASE WHEN type IN ('integer', 'real') THEN {} ELSE {} END"
        return self._at(path, sql(case, test, otherwise))

    def _at(self, path: Path, answer: Sql) -> Sql:
        """The answer, in terms of `type` and `value`, at the end of the path."""
        return sql("(SELECT {} FROM {} AS leaf)", answer, reduce(self._step, path, _ROOT))

    def _step(self, within: Sql, key: Key) -> Sql:
        last = "(SELECT type, value FROM json_each({}) WHERE key = {} ORDER BY id DESC LIMIT 1)"
        if isinstance(key, str):
            opened = sql("(SELECT CASE type WHEN 'object' THEN value END FROM {})", within)
            return sql(last, opened, self.text(key))
        opened = sql("(SELECT CASE type WHEN 'array' THEN value END FROM {})", within)
        return sql(last, opened, self.integer(key))
