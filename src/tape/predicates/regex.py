"""Regular expressions by RE2, because its time is bounded: one of Python's `re` can hang a server.

A search may take time in proportion to the instructions of the compiled program and the bytes of
the text, which is what it is charged. The bound on the program keeps that, and compiling, short.

To compile takes RE2 time that grows with the square of the program, and it knows no bound but
memory: in a megabyte, `a{0,1000}|` a few times over takes it seconds. So an expression is compiled
twice: in memory for not much more than the program may have, and if it passes, in `_MEMORY`, which
its searches need. RE2 may use that for each of the expressions that are remembered.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import re2  # type: ignore[import-untyped]  # the wheel has no stubs

from tape.predicates.values import EvaluationError

MOST_INSTRUCTIONS: Final = 2_000
MOST_CHARACTERS: Final = 4_096
MOST_CLASSES: Final = 64
MOST_REPEATED: Final = 10_000
_MEMORY: Final = 1024 * 1024
_TRIAL_MEMORY: Final = 64 * 1024
_TOO_LARGE: Final = "pattern too large"
_REPEATED: Final = re.compile(r"[{,]([0-9]{1,4}),?\}").findall


def _options(memory: int) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = memory
    return options


_OPTIONS: Final = _options(_MEMORY)
_TRIAL: Final = _options(_TRIAL_MEMORY)


class TooManyInstructions(EvaluationError):
    """The program would be too large, which took RE2 some time to find out."""

    def __init__(self) -> None:
        super().__init__(
            f"the regular expression compiles to more than {MOST_INSTRUCTIONS} instructions: use "
            "smaller repetitions and classes"
        )


class Regex(NamedTuple):
    """`search` takes UTF-8 and finds something or None; `size` is how many instructions it has."""

    size: int
    search: Callable[[bytes], Any]


def classes(pattern: str) -> int:
    """How many Unicode classes it names, such as `\\pL`: each has hundreds of ranges to read."""
    return pattern.count(r"\p") + pattern.count(r"\P")


@lru_cache(256)
def compiled(pattern: str) -> Regex:
    """EvaluationError if it is no regular expression, or a larger one than may be searched with."""
    if len(pattern) > MOST_CHARACTERS:
        raise EvaluationError(f"a regular expression of more than {MOST_CHARACTERS} characters")
    if classes(pattern) > MOST_CLASSES:
        raise EvaluationError(f"a regular expression with more than {MOST_CLASSES} Unicode classes")
    if sum(map(int, _REPEATED(pattern))) > MOST_REPEATED:  # RE2 writes them out before it counts
        raise TooManyInstructions
    if _compiled(pattern, _TRIAL).programsize > MOST_INSTRUCTIONS:
        raise TooManyInstructions
    found = _compiled(pattern, _OPTIONS)
    return Regex(max(found.programsize, 1), found.search)


def _compiled(pattern: str, options: Any) -> Any:
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        if text.startswith(_TOO_LARGE):
            raise TooManyInstructions from error
        raise EvaluationError(f"invalid regular expression: {text}") from error
