"""Regular expressions by RE2, because its time is bounded: one of Python's `re` can hang a server.

A search may take time in proportion to the instructions of the compiled program and the bytes of
the text, which is what it is charged. The bound on the program keeps that, and compiling, short.
RE2 may use `_MEMORY` for each of the expressions that are remembered.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import re2  # type: ignore[import-untyped]  # the wheel has no stubs

from tape.predicates.values import EvaluationError

MOST_INSTRUCTIONS: Final = 2_000
MOST_CHARACTERS: Final = 4_096
_MEMORY: Final = 1024 * 1024

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True
_OPTIONS.max_mem = _MEMORY


class Regex(NamedTuple):
    """`search` takes UTF-8 and finds something or None; `size` is how many instructions it has."""

    size: int
    search: Callable[[bytes], Any]


@lru_cache(256)
def compiled(pattern: str) -> Regex:
    """Of whatever size; EvaluationError if it is no regular expression."""
    if len(pattern) > MOST_CHARACTERS:
        raise EvaluationError(f"a regular expression of more than {MOST_CHARACTERS} characters")
    try:
        found = re2.compile(pattern, _OPTIONS)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise EvaluationError(f"invalid regular expression: {text}") from error
    return Regex(max(found.programsize, 1), found.search)


def bounded(found: Regex) -> Regex:
    """The same, if it may be searched with."""
    if found.size > MOST_INSTRUCTIONS:
        raise EvaluationError(
            f"the regular expression compiles to {found.size} instructions, the limit is "
            f"{MOST_INSTRUCTIONS}: use smaller repetitions and classes"
        )
    return found
