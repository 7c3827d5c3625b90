"""An error as the person at the terminal reads it: one line, and a caret where the fault is."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping

import click

from tape.cli.output import printable
from tape.errors import InvalidArgument, TapeError

SHOWN = 100  # characters of a long input around the fault


def describe(error: Exception, inputs: Mapping[str, str]) -> str:
    lines = [f"error: {_message(error)}"]
    if isinstance(error, InvalidArgument) and error.position is not None:
        text = inputs.get(error.field.removeprefix("events[0]."))
        if text is not None and error.position <= len(text):
            lines += pointed(text, error.position)
    return "\n".join(lines)


def exit_code(error: Exception) -> int:
    return 2 if isinstance(error, InvalidArgument | click.UsageError) else 1


def pointed(text: str, position: int) -> list[str]:
    """The line of `text` that holds `position`, and a caret under it."""
    from rich.cells import cell_len

    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : end if end >= 0 else len(text)]
    at = position - start
    cut = max(0, at - SHOWN // 2)
    shown = "".join(c if c.isprintable() else " " for c in line[cut : cut + SHOWN])
    return [f"  {shown}", "  " + " " * cell_len(shown[: at - cut]) + "^"]


def _message(error: Exception) -> str:
    if isinstance(error, click.UsageError):
        # click's own form is three lines: usage, a hint and the message.
        where = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
        return one_line(_usage(error)) + where
    if isinstance(error, click.ClickException):
        return one_line(error.format_message())
    if isinstance(error, TapeError):
        return one_line(str(error))
    if isinstance(error, OSError) and error.strerror:
        return one_line(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    return one_line(str(error) or type(error).__name__)


def _usage(error: click.UsageError) -> str:
    if not isinstance(error, click.NoSuchOption):
        return error.format_message()
    near = f" Did you mean {error.possibilities[0]!r}?" if error.possibilities else ""
    return f"No such option {error.option_name!r}.{near}"


def one_line(text: str) -> str:
    return printable(" ".join(text.split()))


@contextlib.contextmanager
def quiet_on_broken_pipe() -> Iterator[None]:
    """For commands that print until nobody reads any more: that is a normal end."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()


def silence_stdout() -> None:
    """Whoever read our output has gone; Python would complain once more while it shuts down."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
