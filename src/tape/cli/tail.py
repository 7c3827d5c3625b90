"""`tape tail`: entries as they come, and those that came last."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import click
from rich.console import Console
from rich.text import Text

from tape.cli.command_tree import ExampleCommand
from tape.cli.error_text import quiet_on_broken_pipe
from tape.cli.output import abridged, console, exact_time, notes, print_json, printable
from tape.cli.target import Target, json_option, operations, target_options
from tape.client import AsyncTapeClient
from tape.errors import InvalidArgument
from tape.journal.retention import parse_age
from tape.model.entry import Entry
from tape.model.entry_json import entry_record
from tape.model.event_glob import parse_glob
from tape.model.subject import EVERYTHING, parse_pattern
from tape.settings import Limits

_KIND_STYLES = {"event": "green", "value": "yellow", "session": "magenta"}
_PLAIN_PAYLOAD = 200  # characters of a payload where no terminal bounds the line
LAST_MOST = 100_000


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


class Since(click.ParamType[int]):
    """A length of time before now, or a date with a time: in milliseconds since 1970."""

    name = "since"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            return time.time_ns() // 1_000_000 - parse_age(value, field="--since")
        except InvalidArgument:
            pass
        try:
            return round(datetime.fromisoformat(value).astimezone().timestamp() * 1000)
        except (ValueError, OverflowError):
            what = f"{value!r} is neither an age such as 10m, 2h or 1d nor a date such as"
            self.fail(f"{what} 2026-01-31T09:00", param, ctx)


class TailQuery(NamedTuple):
    """What to show."""

    pattern: str
    where: str
    after: int | None
    since_ms: int | None
    last: int | None
    limit: int | None
    live: bool


@click.command(
    cls=ExampleCommand,
    example="""\
tape tail --last 20 --type 'order.*'
tape tail '/tape/event/recorded/order.placed/**' --where 'payload.total > 100.0'
tape tail --since 10m --no-follow --json""",
)
@click.argument("pattern", default=EVERYTHING)
@click.option("--where", default="", metavar="CEL", help="Only entries for which this is true.")
@click.option(
    "--type",
    "event_type",
    default="",
    metavar="GLOB",
    help="Only events of this type; * stands for any characters, as in 'order.*'.",
)
@click.option(
    "--last",
    type=click.IntRange(1, LAST_MOST),
    metavar="N",
    help="Begin with the newest N entries that match.",
)
@click.option(
    "--since",
    "since_ms",
    type=Since(),
    metavar="AGE|DATE",
    help="Begin with what was recorded so long ago (90s, 10m, 2h, 1d), or at that time.",
)
@click.option(
    "--from",
    "start",
    type=Start(),
    metavar="SEQ|start|now",
    default="now",
    help="Begin after the entry with this number; now is the default.",
)
@json_option
@click.option(
    "--no-follow",
    is_flag=True,
    help="End at the newest entry. Without --last, --since or --from begin at the oldest.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after N entries.")
@target_options
@click.pass_context
def tail(
    ctx: click.Context, *, pattern: str, where: str, event_type: str, last: int | None,
    since_ms: int | None, start: int | None, as_json: bool, no_follow: bool, limit: int | None,
) -> None:  # fmt: skip
    """Show entries whose subject matches PATTERN, and go on with new ones.

    In a pattern * stands for one segment, and ** at its end for any number. The options that
    choose entries can be combined. Stop it with Ctrl-C.
    """
    target = ctx.ensure_object(Target)
    target.inputs.update(subject_pattern=pattern, predicate_cel=where, event_type=event_type)
    chosen = ctx.get_parameter_source("start") is not click.core.ParameterSource.DEFAULT
    if chosen and (last is not None or since_ms is not None):
        raise click.UsageError("--from does not go with --last or --since", ctx)
    after = 0 if no_follow and not chosen else start
    where = _combined(event_type, where, target.settings.limits)
    wanted = TailQuery(pattern, where, after, since_ms, last, limit, live=not no_follow)
    shown = _Shown(_show_json if as_json else _shower(console()), limit, live=wanted.live)
    with quiet_on_broken_pipe():
        try:
            asyncio.run(_tail(target, wanted, shown))
        except KeyboardInterrupt:
            return
        finally:
            shown.note_left_out()


def _combined(event_type: str, where: str, limits: Limits) -> str:
    """One predicate for both, so that who has the journal leaves out what is not wanted."""
    if not event_type:
        return where
    first, *rest = parse_glob(event_type, limits, field="event_type").parts
    if not rest:
        holds = f"event_type == {_quoted(first)}"
    else:
        holds = f"kind == 'event' && event_type.startsWith({_quoted(first)})"
        if any(rest):
            pattern = ".*".join(map(_escaped, (first, *rest)))
            holds += f" && event_type.matches({_quoted(f'^{pattern}$')})"
    if where:
        from tape.predicates import check

        check(where)  # a fault is pointed at in what was typed
    return f"{holds} && ({where})" if where else holds


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _escaped(text: str) -> str:
    """Each character stands for itself in a regular expression of RE2."""
    return "".join(c if c.isalnum() or c == "_" else f"[{c}]" if c != "^" else r"\^" for c in text)


class _Shown:
    """Shows entries up to a limit, and counts those that a predicate could not decide."""

    def __init__(self, show: Callable[[Entry], None], limit: int | None, *, live: bool) -> None:
        self._show = show
        self._limit = limit
        self._live = live
        self._count = 0
        self._undecided, self._reason = 0, ""

    def show(self, entries: list[Entry], skipped: int, error: str) -> bool:
        """Whether that was enough."""
        if skipped and not self._undecided and self._live:
            _note(f"the predicate has no result for an entry: {error}")
        self._undecided += skipped
        self._reason = error or self._reason
        for entry in entries:
            self._show(entry)
            self._count += 1
            if self._count == self._limit:
                return True
        return False

    def note_left_out(self) -> None:
        if self._undecided:
            what = "entry was" if self._undecided == 1 else "entries were"
            why = f"the predicate has no result for it; last: {self._reason}"
            _note(f"{self._undecided} {what} left out: {why}")


async def _tail(target: Target, wanted: TailQuery, shown: _Shown) -> None:
    async with operations(target) as opened:
        after = wanted.after
        if wanted.last is not None or wanted.since_ms is not None:
            from tape.cli.newest import position_before, read_newest
            from tape.predicates import check

            head = (await opened.info()).head_global_seq
            after = 0
            if wanted.since_ms is not None:
                after = await position_before(opened, wanted.since_ms, head)
            if wanted.last is not None:
                newest = await read_newest(
                    opened,
                    wanted.last,
                    head=head,
                    after=after,
                    pattern=parse_pattern(wanted.pattern, limits=opened.settings.limits),
                    predicate=check(wanted.where),
                )
                if shown.show(*newest) or not wanted.live:
                    return
                after = head
        client = AsyncTapeClient(opened)
        async with client.pages(
            wanted.pattern,
            where=wanted.where,
            after=after,
            live=wanted.live,
            max_batch=wanted.limit or 0,
        ) as pages:
            async for page in pages:
                if shown.show(page.entries, page.skipped, page.error):
                    return


def _show_json(entry: Entry) -> None:
    print_json(entry_record(entry))


def _shower(out: Console) -> Callable[[Entry], None]:
    def show(entry: Entry) -> None:
        line = Text(f"{exact_time(entry.ts_ms)} ", style="dim")
        line.append(f"{entry.global_seq} ", style="cyan")
        line.append(f"{entry.subject} ", style=_KIND_STYLES.get(entry.kind, "blue"))
        room = max(20, out.width - len(line)) if out.is_terminal else _PLAIN_PAYLOAD
        line.append(abridged(entry.payload_json, room))
        out.print(line)

    return show


def _note(text: str) -> None:
    notes().print(Text(printable(f"note: {text}"), style="yellow"))
