"""`tape pipeline backfill`: reactions over history, or followed on Spark."""

from typing import Any

import click

from tape.cli.command_tree import ExampleCommand
from tape.cli.pipeline.running import existing_store, job_options, needing_spark, run_jobs
from tape.cli.target import Target, target_options

_SEQ = click.IntRange(min=0)


@click.command(cls=ExampleCommand, example="tape pipeline backfill large-orders --dry-run")
@click.argument("reactions", nargs=-1, metavar="REACTION…")
@click.option("--from", "from_seq", type=_SEQ, metavar="SEQ", help="Begin after this entry.")
@click.option(
    "--upto", type=_SEQ, metavar="SEQ", help="End with this entry; by default the newest."
)
@click.option("--lake", default="", metavar="FOLDER", help="Read archived entries as well.")
@click.option("--dry-run", is_flag=True, help="Say what would match, and change nothing.")
@click.option("--follow", is_flag=True, help="Match reactions with engine spark, until stopped.")
@click.option(
    "--batch-entries",
    default=200_000,
    show_default=True,
    metavar="N",
    help="With --follow, match at most N entries at a time.",
)
@job_options
@target_options
@click.pass_obj
def backfill(
    target: Target, /, *, reactions: tuple[str, ...], from_seq: int | None, upto: int | None,
    lake: str, dry_run: bool, follow: bool, batch_entries: int, **options: Any,
) -> int:  # fmt: skip
    """Make the tasks that a reaction would have made, had it been registered earlier.

    An entry that has a task already gets no second one. With --follow, this job matches reactions
    with engine spark as the journal grows: all of them, or those given.
    """
    store = existing_store(target, changes=True)
    with needing_spark():
        from tape.pipeline.jobs.backfill.job import Backfill
    job = Backfill(reactions, from_seq, upto, lake, dry_run, follow, batch_entries)
    return run_jobs(target, [job], store=store, **options)
