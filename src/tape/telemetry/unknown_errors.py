"""Logging an error that nobody has thought of where a secret is in use, such as a login.

The client of a source or of KMS may put what it was given into the text of its error. So the log
gets the kinds of the error and of those that it was raised from, and where each was raised: files,
lines and functions. The texts are left out.
"""

import logging
import traceback
from collections.abc import Iterator

from tape.ports.user_traceback import TracebackBlock

MOST_ERRORS = 10
MOST_FRAMES = 20


def log_unknown(log: logging.Logger, what: str, error: BaseException) -> None:
    """Log that `what` has failed and where, without any text of the error."""
    log.error(
        "%s with %s; the texts of errors are left out, as they may repeat a secret%s",
        what,
        type(error).__name__,
        TracebackBlock(frames_of(error)),
    )


def frames_of(error: BaseException) -> str:
    """Where an error and those behind it were raised: the innermost frames of each."""
    lines: list[str] = []
    for number, (how, each) in enumerate(_chain(error)):
        if number == MOST_ERRORS:
            lines.append("... and more errors")
            break
        lines.append(f"{how}{type(each).__name__}")
        frames = [*traceback.walk_tb(each.__traceback__)]
        if len(frames) > MOST_FRAMES:
            lines.append(f"  ... {len(frames) - MOST_FRAMES} frames left out ...")
        lines += [
            f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}'
            for frame, line in frames[-MOST_FRAMES:]
        ]
    return "\n".join(lines)


def _chain(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """Each once, with how it belongs to the one before."""
    pending, seen = [("", error)], set[int]()
    while pending:
        how, each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield how, each
        if each.__cause__ is not None:
            pending.append(("caused by ", each.__cause__))
        elif each.__context__ is not None and not each.__suppress_context__:
            pending.append(("while handling ", each.__context__))
        if isinstance(each, BaseExceptionGroup):
            pending += [("together with ", one) for one in reversed(each.exceptions)]
