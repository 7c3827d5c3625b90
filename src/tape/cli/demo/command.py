"""Sets the stage, plays the acts in order, and says whether every promise held."""

import asyncio
import contextlib
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from tape.cli.command_tree import ExampleCommand
from tape.cli.demo import (
    absence,
    crash,
    limits,
    messages,
    pipeline,
    proof,
    reactions,
    settlement,
    trading,
    treasury,
)
from tape.cli.demo.stage import Stage
from tape.cli.output import console
from tape.programs.connect import connect_async

ACTS = (trading, limits, crash, absence, reactions, treasury, settlement, messages)
DEFAULT_EVENTS = 12_000
SEED = 7878  # the same day each time


@click.command(cls=ExampleCommand, example="tape demo --events 2000 --no-pipeline")
@click.option(
    "--events",
    type=click.IntRange(min=200, max=1_000_000),
    default=DEFAULT_EVENTS,
    show_default=True,
    metavar="N",
    help="Record about N events.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the journal in DIR, as DIR/tape.db.",
)
@click.option("--pipeline/--no-pipeline", "spark", default=True, help="Play the act on Spark, too.")
@click.pass_context
def demo(ctx: click.Context, events: int, keep: Path | None, spark: bool) -> None:
    """Play a guided tour: a day at a small trading desk, on a SQLite file of its own.

    Ends by itself. Exits with 1 if a promise of the tour does not hold.
    """
    if keep is not None and (keep / "tape.db").exists():
        raise click.UsageError(f"{keep / 'tape.db'} exists; give another folder", ctx)
    with _folder(keep) as folder:
        kept = f"sqlite:{folder / 'tape.db'}" if keep is not None else ""
        url = f"sqlite:{(folder / 'tape.db').absolute()}"
        if not asyncio.run(_play(url, events, kept, with_pipeline=spark)):
            ctx.exit(1)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="tape-demo-") as folder:
        yield Path(folder)


async def _play(url: str, events: int, kept: str, *, with_pipeline: bool) -> bool:
    out = console()
    started = time.monotonic()
    out.print("[bold]A day at a small trading desk[/]")
    out.print("Everything that happens becomes one entry on one journal, in one order.")
    with _progress(out) as progress:
        rng = random.Random(SEED)  # noqa: S311 - a made-up day, not a secret
        async with connect_async(url) as client:
            stage = Stage(url, client, out, progress, events, rng)
            try:
                for number, act in enumerate(ACTS, 1):
                    _announce(out, number, act.TITLE, act.STORY)
                    await act.play(stage)
                _announce(out, len(ACTS) + 1, proof.TITLE, proof.STORY)
                day = await proof.play(stage)
                seconds = time.monotonic() - started
                if with_pipeline:
                    _announce(out, len(ACTS) + 2, pipeline.TITLE, pipeline.STORY)
                    await pipeline.play(stage)
            finally:
                for follower in stage.followers.values():
                    await follower.stop()
    proof.print_summary(stage, day, seconds, kept)
    return all(promise.held for promise in stage.promises)


def _announce(out: Console, number: int, title: str, story: str) -> None:
    out.print(f"\n[bold cyan]{number}. {title}[/]")
    out.print(story)


def _progress(out: Console) -> Progress:
    """Bars on a terminal, nothing where the output goes to a file."""
    return Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        console=out, transient=True, disable=not out.is_terminal,
    )  # fmt: skip
