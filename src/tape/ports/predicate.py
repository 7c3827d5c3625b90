"""A predicate as those who apply it see it; `tape.predicates` makes them."""

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

Dialect = Literal["sqlite", "postgres"]


class SqlFilter(Protocol):
    """A predicate in SQL: TRUE, FALSE, or NULL for an error."""

    @property
    def text(self) -> str: ...

    @property
    def params(self) -> tuple[object, ...]: ...

    def renumbered(self, start: int) -> "SqlFilter":
        """The same with its `$n` counted from `start`."""


class EntryPredicate(Protocol):
    @property
    def always_true(self) -> bool: ...

    @property
    def names(self) -> frozenset[str]:
        """The names of the envelope that it reads."""

    @property
    def is_light(self) -> bool:
        """Whether it takes microseconds, however large an entry is."""

    @property
    def evaluate(self) -> Callable[[Mapping[str, object]], bool]:
        """Whether it holds for an envelope; raises PredicateError where it has no result."""

    def sql_prefilter(self, dialect: Dialect) -> SqlFilter | None:
        """As far as a store can decide it: FALSE only where it is certainly false."""
