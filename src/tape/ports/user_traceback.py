"""The traceback of what a program's own function raised, as text to keep, to log and to raise."""

import os
import traceback
from collections.abc import Iterator
from pathlib import Path

from tape.model.traceback_text import bounded_traceback

_OURS = f"{Path(__file__).parents[1]}{os.sep}"


def traceback_of(error: BaseException) -> str:
    """The traceback of an error with its causes, without the frames of Tape above the function.

    Empty if none of it is the program's own code: then Tape raised it, and its words say all.
    """
    try:
        told = traceback.TracebackException.from_exception(error, compact=True)
        theirs = [_drop_ours(each) for each in _chain(told)]
        if not any(theirs):
            return ""
        text = "".join(told.format())
    except Exception:  # noqa: BLE001 - an error's own methods are called, and may raise anything
        return ""
    return bounded_traceback(text.rstrip("\n"))


class RecordedTraceback(Exception):
    """What an error was raised by, elsewhere or before: the cause of the one that is raised now."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def recorded_cause(text: str) -> RecordedTraceback | None:
    return RecordedTraceback(text) if text else None


class TracebackBlock:
    """The last argument of a log message: a traceback below it, indented, or nothing."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return "".join(f"\n    {line}" for line in self.text.split("\n")) if self.text else ""


def _chain(
    first: traceback.TracebackException,
) -> Iterator[traceback.TracebackException]:
    """An error, its causes, and those of its group."""
    pending: list[traceback.TracebackException | None] = [first]
    while pending:
        told = pending.pop()
        if told is not None:
            yield told
            pending += [told.__cause__, told.__context__, *(told.exceptions or ())]


def _drop_ours(told: traceback.TracebackException) -> bool:
    """Drop the frames above the program's own code; whether there is such code."""
    for index, frame in enumerate(told.stack):
        if not frame.filename.startswith(_OURS):
            del told.stack[:index]
            return True
    return False
