"""What SQL conditions are made of, and what a dialect has to know to make them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

Ordering = Literal["<", "<=", ">", ">="]
Key = str | int
Path = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class SqlCondition:
    """A three-valued condition over the columns of the journal, constants as bind parameters.

    `text` has `?` for SQLite, in the order of `params`, and `$1` to `$n` for Postgres. It relies on
    what the journal guarantees: `payload_json` is valid JSON, no column holds NUL, text is UTF-8.
    """

    text: str
    params: tuple[object, ...]

    def renumbered(self, start: int) -> "SqlCondition":
        """Number the parameters from `$start`."""

        def shifted(found: re.Match[str]) -> str:
            return f"${int(found[1]) + start - 1}"

        return SqlCondition(re.sub(r"\$([0-9]+)", shifted, self.text), self.params)


PARAMETER = "\x00"
"""Stands for the next bind parameter until the whole condition is known."""


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL text with the parameters it holds, in order."""

    text: str
    params: tuple[object, ...] = ()

    def condition(self, numbered: bool) -> SqlCondition:
        first, *rest = self.text.split(PARAMETER)
        marks = (f"${number}" if numbered else "?" for number in range(1, len(rest) + 1))
        marked = "".join(mark + text for mark, text in zip(marks, rest, strict=True))
        return SqlCondition(first + marked, self.params)


TRUE = Sql("TRUE")
FALSE = Sql("FALSE")
UNKNOWN = Sql("CAST(NULL AS boolean)")


def sql(template: str, *pieces: Sql) -> Sql:
    """The template with each `{}` filled by a piece."""
    return Sql(
        template.format(*(piece.text for piece in pieces)),
        tuple(param for piece in pieces for param in piece.params),
    )


def joined(separator: str, pieces: Iterable[Sql]) -> Sql:
    held = list(pieces)
    return sql(separator.join("{}" for _ in held), *held)


class Dialect(Protocol):
    """Scalars never are NULL here. A question about a payload path is NULL where the path leads
    nowhere, as CEL has an error there; its other answers are said for each."""

    numbered: bool

    deepest: int
    """The nesting of a condition, in symbols on the parser's stack, that is safe to send."""

    def text(self, value: str) -> Sql: ...

    def integer(self, value: int) -> Sql: ...

    def by_code_point(self, text: Sql) -> Sql:
        """Text for `<` and its kin, so that it is ordered as CEL does."""
        ...

    def length(self, text: Sql) -> Sql: ...

    def starts_with(self, text: Sql, part: str) -> Sql: ...

    def ends_with(self, text: Sql, part: str) -> Sql: ...

    def contains(self, text: Sql, part: str) -> Sql: ...

    def has(self, path: Path, field: str) -> Sql:
        """NULL also where the path leads to anything but an object."""
        ...

    def is_string(self, path: Path, values: tuple[str, ...]) -> Sql: ...

    def is_bool(self, path: Path, value: bool) -> Sql: ...

    def is_null(self, path: Path) -> Sql: ...

    def is_true(self, path: Path) -> Sql:
        """NULL also for anything but a bool."""
        ...

    def is_near(self, path: Path, low: float, high: float) -> Sql:
        """FALSE for a number outside and for anything but a number; may be NULL for a number."""
        ...

    def is_beyond(self, path: Path, ordering: Ordering, bound: float) -> Sql:
        """NULL also for anything but a number; may be NULL for a number."""
        ...
