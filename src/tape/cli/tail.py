"""`tape tail`: entries as they come."""

import asyncio
from collections.abc import Callable

import click
from rich.console import Console
from rich.text import Text

from tape.cli.complaints import quiet_on_broken_pipe
from tape.cli.output import abridged, clock_time, console, notes, print_json, printable
from tape.cli.records import entry_record
from tape.cli.target import Target, connect, target_options
from tape.model.entry import Entry
from tape.model.subject import EVERYTHING

_KIND_STYLES = {"event": "green", "value": "yellow", "session": "magenta"}
_PLAIN_PAYLOAD = 200  # characters of a payload where no terminal bounds the line


class Start(click.ParamType[int | None]):
    """`start`, `now`, or the `global_seq` after which to begin."""

    name = "start"

    def convert(
        self, value: str | int | None, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value is None or value == "now":
            return None
        if value == "start":
            return 0
        if isinstance(value, str) and not value.isdecimal():
            self.fail(f"{value!r} is neither a number, start nor now", param, ctx)
        return int(value)


@click.command()
@click.argument("pattern", default=EVERYTHING)
@click.option("--where", default="", metavar="CEL", help="Only entries for which this holds.")
@click.option(
    "--from",
    "start",
    type=Start(),
    metavar="SEQ|start|now",
    default="now",
    help="Entries after this global_seq; now is the default.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("--no-follow", is_flag=True, help="End at the newest entry; begins at the start.")
@click.option("--limit", type=click.IntRange(min=1), help="End after so many entries.")
@target_options
@click.pass_context
def tail(
    ctx: click.Context, *, pattern: str, where: str, start: int | None, as_json: bool,
    no_follow: bool, limit: int | None,
) -> None:  # fmt: skip
    """Show entries whose subject matches PATTERN, live.

    `*` stands for one segment, a final `**` for any number. Ends with Ctrl-C.
    """
    target = ctx.ensure_object(Target)
    target.inputs.update(subject_pattern=pattern, predicate_cel=where)
    chosen = ctx.get_parameter_source("start") is not click.core.ParameterSource.DEFAULT
    after = 0 if no_follow and not chosen else start
    show = _show_json if as_json else _shower(console())
    reading = _tail(
        target,
        pattern=pattern,
        where=where,
        after=after,
        live=not no_follow,
        limit=limit,
        show=show,
    )
    with quiet_on_broken_pipe():
        try:
            asyncio.run(reading)
        except KeyboardInterrupt:
            return


async def _tail(
    target: Target, *, pattern: str, where: str, after: int | None, live: bool, limit: int | None,
    show: Callable[[Entry], None],
) -> None:  # fmt: skip
    undecided, shown, reason = 0, 0, ""
    try:
        async with (
            connect(target) as client,
            client.pages(
                pattern, where=where, after=after, live=live, max_batch=limit or 0
            ) as pages,
        ):
            async for page in pages:
                if page.skipped and not undecided and live:
                    _note(f"the predicate has no result for an entry: {page.error}")
                undecided += page.skipped
                reason = page.error or reason
                for entry in page.entries:
                    show(entry)
                    shown += 1
                    if shown == limit:
                        return
    finally:
        if undecided:
            what = "entry was" if undecided == 1 else "entries were"
            _note(f"{undecided} {what} left out, for the predicate has no result; last: {reason}")


def _show_json(entry: Entry) -> None:
    print_json(entry_record(entry))


def _shower(out: Console) -> Callable[[Entry], None]:
    def show(entry: Entry) -> None:
        line = Text(f"{clock_time(entry.ts_ms)} ", style="dim")
        line.append(f"{entry.global_seq} ", style="cyan")
        line.append(f"{entry.subject} ", style=_KIND_STYLES.get(entry.kind, "blue"))
        room = max(20, out.width - len(line)) if out.is_terminal else _PLAIN_PAYLOAD
        line.append(abridged(entry.payload_json, room))
        out.print(line)

    return show


def _note(text: str) -> None:
    notes().print(Text(printable(f"note: {text}"), style="yellow"))
