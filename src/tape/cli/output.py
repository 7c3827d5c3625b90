"""Printing: JSON lines for programs, compact coloured lines for people."""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import click
import orjson

if TYPE_CHECKING:
    from rich.console import Console  # loaded where a command prints with it: help does not


def console() -> "Console":
    """Standard output for people. Lines are not folded where there is no terminal to fold for."""
    from rich.console import Console

    return Console(soft_wrap=True, highlight=False)


def notes() -> "Console":
    """Standard error, for progress and remarks that are not the result. Nothing in them is markup:
    they name what somebody else named."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)


def print_json(record: Mapping[str, Any]) -> None:
    """One object on one line, at once: whoever reads the pipe is waiting for it."""
    from tape.model.json_text import terminal_safe

    sys.stdout.buffer.write(terminal_safe(orjson.dumps(record).decode()).encode() + b"\n")
    sys.stdout.buffer.flush()


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    styles: Iterable[str] = (),
    whole: Collection[str] = (),
) -> None:
    """Print rows below their columns. Where there is no terminal, a row is a line, however long.

    With `styles` each row has its own; an empty one is plain. Columns that are `whole` are not
    folded where there is little room.
    """
    from rich.table import Table
    from rich.text import Text

    out = console()
    if not out.is_terminal:
        _print_unfolded([columns, *rows])
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in whole)
    for row, style in zip(rows, chain(styles, repeat("")), strict=False):
        table.add_row(*(Text(printable(cell)) for cell in row), style=style)
    out.print(table)


def _print_unfolded(rows: Sequence[Sequence[str]]) -> None:
    from rich.cells import cell_len

    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = [cell + " " * (w - cell_len(cell)) for cell, w in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def exact_time(ts_ms: int) -> str:
    """Local date and time to the millisecond, with the offset to UTC, as ISO 8601 has it."""
    return _local(ts_ms).isoformat(timespec="milliseconds")


def date_time(ts_ms: int) -> str:
    """Local date and time to the second, with the offset to UTC, as ISO 8601 has it."""
    return _local(ts_ms).isoformat(timespec="seconds")


def _local(ts_ms: int) -> datetime:
    whole = datetime.fromtimestamp(ts_ms // 1000, tz=UTC).astimezone()
    return whole.replace(microsecond=ts_ms % 1000 * 1000)


def span(ms: int) -> str:
    """A length of time in its two largest units."""
    seconds = max(0, ms) // 1000
    days, hours = divmod(seconds // 3600, 24)
    minutes = seconds // 60 % 60
    for large, unit, small, below in (
        (days, "d", hours, "h"),
        (hours, "h", minutes, "m"),
        (minutes, "m", seconds % 60, "s"),
    ):
        if large:
            return f"{large}{unit} {small}{below}"
    return f"{seconds}s"


def abridged(text: str, width: int) -> str:
    """`text` on one line of at most `width` characters."""
    flat = printable(" ".join(text.split()))
    return flat if len(flat) <= width else flat[: max(1, width - 1)] + "…"


def printable(text: str) -> str:
    """`text` without control characters: a name somebody chose must not steer the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def say(text: str) -> None:
    """One line for people, as it stands: no markup, no emoji, no folding."""
    click.echo(printable(text))


def say_traceback(traceback: str) -> None:
    """A traceback below what was said, if there is one; indented, so that no line of it passes for
    another.
    """
    if traceback:
        say("")
        for line in traceback.split("\n"):
            say(f"  {line}")
