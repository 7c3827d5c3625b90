"""What an evaluation costs, counted while it runs, so that its end does not depend on a clock.

The unit is about a nanosecond of Python on an ordinary machine, and a step is a thousand of them.
Only what can grow with an entry is counted: elements that are walked, texts that are compared,
searched, converted or copied, and the body of a macro for each of its turns. What is left of the
budget is one number in a list, which is the quickest thing that Python can make and change.

The counting is the same on every machine and in every engine: an entry that is too much work for a
predicate here is too much in Spark's workers as well.
"""

from typing import Final

STEP: Final = 1_000

Work = list[int]
"""One number: the units that an evaluation has left."""

NODE: Final = 100
"""A part of an expression in generated code that only looks something up."""

CALL: Final = 700
"""A call of a function of CEL in generated code."""

WALKED: Final = 700
"""A part of an expression in the plain evaluation, on top of what it is in generated code."""

MOMENT: Final = 4_000
"""Reading or taking apart a timestamp or a duration; about as much as writing a double."""

ELEMENT: Final = 600
"""Two elements of lists that are compared one by one."""

MEMBER: Final = 1_200
"""Two members of maps."""

SCANNED: Final = 25
"""An element of a list that Python itself compares with a plain value."""

READ: Final = 4
"""A character of a text that is searched, or read as a number."""

SHORT: Final = 64
"""Up to so many characters a text costs nothing beyond the call."""

REGEX: Final = 8
"""An instruction of a compiled regular expression, for each byte of the text."""

REGEX_CLASS: Final = 150_000
"""A Unicode class in a regular expression of an entry."""

REGEX_COMPILED: Final = 1_500
"""An instruction that a regular expression of an entry was compiled to."""

REGEX_REFUSED: Final = 7_000_000
"""A regular expression of an entry that is too large: about the most that RE2 takes to see it."""


class LimitError(Exception):
    """The budget is spent. Not an EvaluationError: nothing absorbs it."""

    def __init__(self) -> None:
        super().__init__("the predicate does more work than one evaluation may do")


def new_work(steps: int) -> Work:
    return [steps * STEP]


def charge(work: Work, cost: int) -> None:
    work[0] -= cost
    if work[0] < 0:
        raise LimitError


def charge_search(work: Work, text: int, part: int) -> None:
    """For finding `part` characters in `text`: Python's search of shorter texts may walk the part
    again at each place, that of longer ones is linear."""
    if part > text:
        return
    repeats = text < 2_500 or (part < 100 and text < 30_000)
    charge(work, text * READ + (text * part // 4 if repeats else 0))
