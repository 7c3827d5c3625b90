"""Checking the expressions of callers in a process that has other things to do.

To check takes some microseconds for each character, for the longest expression tens of
milliseconds, and as long again to translate it to SQL. What is short is checked at once. The rest
is checked apart, where the event loop does not wait for it; what was checked is remembered.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, get_args

from tape.predicates.check import check
from tape.predicates.predicate import Predicate, PredicateLimits
from tape.predicates.to_sql import DialectName

SHORT_CHARACTERS: Final = 256
"""Up to so many are checked within two milliseconds."""

REMEMBERED: Final = 256
"""Each of them has up to an eighth of a megabyte."""

Apart = Callable[[Callable[[], Predicate]], Awaitable[Predicate]]
"""Makes a call that may take long, in a thread and in its turn."""

DEFAULT_FIELD: Final = "predicate_cel"


class Checker:
    """Expressions of at most what the limits say. Belongs to one event loop."""

    def __init__(self, limits: PredicateLimits, apart: Apart) -> None:
        self._limits = limits
        self._apart = apart
        self._known: dict[str, Predicate] = {}

    def at_once(self, expression: str, *, field: str = DEFAULT_FIELD) -> Predicate | None:
        """The predicate if that takes no time to speak of, else None: ask `checked` for it.

        Refuses as `check` does.
        """
        found = self._known.pop(expression, None)
        if found is None and _is_short(expression):
            found = check(expression, field=field, limits=self._limits)
        if found is not None:
            self._remember(found)
        return found

    async def checked(self, expression: str, *, field: str = DEFAULT_FIELD) -> Predicate:
        """The predicate; refuses as `check` does."""
        found = self.at_once(expression, field=field)
        if found is None:
            found = await self._apart(partial(self._ready, expression, field))
            self._remember(found)
        return found

    def _ready(self, expression: str, field: str) -> Predicate:
        """Another may have asked for the same while this waited for its turn."""
        found = self._known.get(expression)
        if found is None:
            found = check(expression, field=field, limits=self._limits)
            for dialect in get_args(DialectName):
                found.sql_prefilter(dialect)
        return found

    def _remember(self, predicate: Predicate) -> None:
        self._known[predicate.expression] = predicate
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]


def _is_short(expression: str) -> bool:
    """A regular expression can take milliseconds however short it is."""
    return len(expression) <= SHORT_CHARACTERS and "matches" not in expression
