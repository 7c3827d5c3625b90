"""`tape relay`: the journal to brokers, webhooks or the terminal."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import click
from rich.text import Text

from tape.cli.command_tree import ExampleCommand
from tape.cli.error_text import quiet_on_broken_pipe
from tape.cli.logs import start_logging
from tape.cli.output import notes, printable
from tape.cli.target import Target, refuse_absent_store, target_options
from tape.journal_relay.relay import OnProgress, RelayProgress
from tape.programs.event_loop import stopping_on_signals
from tape.programs.journal_relay import DEFAULT_CURSOR, DEFAULT_PATTERN, relay_journal
from tape.programs.sinks import sink_for


@click.command(
    cls=ExampleCommand,
    example="tape relay --sink nats://127.0.0.1:4222/tape.events --cursor events.cursor",
)
@click.option(
    "--sink",
    "targets",
    required=True,
    multiple=True,
    metavar="TARGET",
    help="Send to nats://, kafka://, pubsub://, https:// or log:. Repeatable.",
)
@click.option(
    "--cursor",
    type=click.Path(dir_okay=False, path_type=Path),
    default=DEFAULT_CURSOR,
    show_default=True,
    metavar="FILE",
    help="Keep the relay's position in this file; one file per relay.",
)
@click.option(
    "--pattern",
    default=DEFAULT_PATTERN,
    show_default=True,
    help="Send entries with these subjects.",
)
@click.option("--where", default="", metavar="CEL", help="Only entries for which this is true.")
@click.option("--no-follow", is_flag=True, help="End at the newest entry.")
@target_options
@click.pass_obj
def relay(
    target: Target, *, targets: tuple[str, ...], cursor: Path, pattern: str, where: str,
    no_follow: bool,
) -> None:  # fmt: skip
    """Send the entries of the journal as CloudEvents, in order, until SIGTERM or Ctrl-C.

    The cursor moves past a page of entries when every sink has acknowledged them. The relay waits
    for a sink that is away. Webhooks are signed with the secret in TAPE_WEBHOOK_SECRET. A target
    that ends in #credential=ALIAS gets its login or secret from the wallet.
    """
    start_logging(verbose=target.verbose)
    target.inputs.update(subject_pattern=pattern, predicate_cel=where)
    settings = target.settings
    sinks = [sink_for(text, settings.credentials) for text in targets]

    async def until_signalled(on_progress: OnProgress) -> None:
        stop = asyncio.Event()
        with stopping_on_signals(stop):
            await refuse_absent_store(target.address, settings)
            await relay_journal(
                target.address,
                sinks=sinks,
                cursor_path=cursor,
                subject_pattern=pattern,
                where=where,
                live=not no_follow,
                on_progress=on_progress,
                stop=stop,
                settings=settings,
            )

    with quiet_on_broken_pipe(), _showing() as on_progress:
        asyncio.run(until_signalled(on_progress))


@contextlib.contextmanager
def _showing() -> Iterator[OnProgress]:
    """A line that says how far the relay is, where there is a terminal to say it on."""
    out = notes()
    if not out.is_terminal:
        yield lambda _progress: None
        return
    sent = 0
    with out.status("waiting for entries") as status:

        def show(progress: RelayProgress) -> None:
            nonlocal sent
            sent = progress.sent
            trouble = f", waiting: {printable(progress.trouble)}" if progress.trouble else ""
            status.update(Text(f"relayed {sent}, up to entry {progress.cursor}{trouble}"))

        yield show
    out.print(f"relayed {sent}")
