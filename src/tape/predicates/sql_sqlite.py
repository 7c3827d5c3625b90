"""Conditions for SQLite 3.40 and later.

Paths are walked with `json_each`, one join a step, and not by path text: a path finds the first of
several equal keys where Python keeps the last, and misses keys that are written with escapes. Joins
and not subqueries, because the parser's stack ends at 100 symbols.
"""

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


class Sqlite:
    numbered = False
    deepest = 50

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
        if path:
            found = "EXISTS (SELECT 1 FROM json_each(leaf.value) WHERE key = {})"
            return self._at(
                path, sql(f"CASE leaf.type WHEN 'object' THEN {found} END", self.text(field))
            )
        found = f"EXISTS (SELECT 1 FROM json_each({DOCUMENT}) WHERE key = {{}})"  # noqa: S608  # ours
        return sql(f"CASE json_type({DOCUMENT}) WHEN 'object' THEN {found} END", self.text(field))

    def is_string(self, path: Path, values: tuple[str, ...]) -> Sql:
        listed = joined(", ", map(self.text, values))
        return self._at(
            path, sql("CASE leaf.type WHEN 'text' THEN leaf.value IN ({}) ELSE FALSE END", listed)
        )

    def is_bool(self, path: Path, value: bool) -> Sql:
        return self._at(path, Sql("leaf.type = 'true'" if value else "leaf.type = 'false'"))

    def is_null(self, path: Path) -> Sql:
        return self._at(path, Sql("leaf.type = 'null'"))

    def is_true(self, path: Path) -> Sql:
        return self._at(
            path, Sql("CASE leaf.type WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE END")
        )

    def is_near(self, path: Path, low: float, high: float) -> Sql:
        within = sql(
            "leaf.value BETWEEN {} AND {}", Sql(PARAMETER, (low,)), Sql(PARAMETER, (high,))
        )
        return self._number(path, within, FALSE)

    def is_beyond(self, path: Path, ordering: Ordering, bound: float) -> Sql:
        return self._number(
            path, sql(f"leaf.value {ordering} {{}}", Sql(PARAMETER, (bound,))), UNKNOWN
        )

    def _number(self, path: Path, test: Sql, otherwise: Sql) -> Sql:
        case = "CASE WHEN leaf.type IN ('integer', 'real') THEN {} ELSE {} END"
        return self._at(path, sql(case, test, otherwise))

    def _at(self, path: Path, answer: Sql) -> Sql:
        """The answer about `leaf`, the end of the path: of equal keys the last, at every step.

        The joins are outer ones so that the last of equal keys is found even where the path goes on
        only from an earlier one: that path leads nowhere.
        """
        names = [*(f"step{number}" for number in range(1, len(path))), "leaf"]
        joins = Sql("")
        for container, name, key in zip(names, names[1:], path[1:], strict=False):
            kind = "object" if isinstance(key, str) else "array"
            opened = f"CASE {container}.type WHEN '{kind}' THEN {container}.value END"
            join = f" LEFT JOIN json_each({opened}) AS {name} ON {name}.key = {{}}"
            joins = sql("{}{}", joins, sql(join, self._key(key)))
        latest = ", ".join(f"{name}.id DESC" for name in names)
        query = (
            "(SELECT CASE WHEN leaf.type IS NOT NULL THEN {} END"  # noqa: S608  # all of it is ours
            f" FROM json_each({DOCUMENT}) AS {names[0]}{{}}"
            f" WHERE {names[0]}.key = {{}} ORDER BY {latest} LIMIT 1)"
        )
        return sql(query, answer, joins, self._key(path[0]))

    def _key(self, key: Key) -> Sql:
        return self.text(key) if isinstance(key, str) else self.integer(key)
