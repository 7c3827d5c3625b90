"""`tape pipeline archive`: the journal into a lake."""

from typing import Any

import click

from tape.cli.command_tree import ExampleCommand
from tape.cli.pipeline.running import existing_store, job_options, needing_spark, run_jobs
from tape.cli.target import Target, target_options


@click.command(cls=ExampleCommand, example="tape pipeline archive --lake lake/ --older-than 7d")
@click.option(
    "--lake", required=True, metavar="PATH", help="Folder of the lake; a new one is made."
)
@click.option(
    "--format",
    "layout",
    type=click.Choice(["parquet", "delta"]),
    default="parquet",
    show_default=True,
    help="delta also writes a Delta log for the same files.",
)
@click.option("--upto", type=click.IntRange(min=1), metavar="SEQ", help="Archive up to this entry.")
@click.option("--older-than", default="", metavar="AGE", help="Only entries older than this.")
@click.option(
    "--rows-per-file",
    type=click.IntRange(min=1),
    default=500_000,
    show_default=True,
    metavar="N",
    help="Write at most N entries to a file.",
)
@click.option("--compact", is_flag=True, help="Merge small neighbouring files.")
@click.option(
    "--keep-removed",
    default="1h",
    show_default=True,
    metavar="AGE",
    help="Keep replaced files for so long, for those who still read them.",
)
@click.option(
    "--keep-orphans",
    default="1d",
    show_default=True,
    metavar="AGE",
    help="Delete files that killed jobs left behind when they are older than this.",
)
@job_options
@target_options
@click.pass_obj
def archive(
    target: Target, /, *, layout: str, lake: str, upto: int | None, older_than: str,
    rows_per_file: int, compact: bool, keep_removed: str, keep_orphans: str, **options: Any,
) -> int:  # fmt: skip
    """Copy new entries of the journal to a lake of Parquet files.

    The lake records the range that it covers. The job works in steps: if it is stopped, the next
    one continues after the last step. It removes nothing from the journal; `tape prune` does.
    """
    store = existing_store(target, changes=False)
    with needing_spark():
        from tape.pipeline.jobs.archive.job import Archive
    job = Archive(
        lake, layout, upto, older_than, rows_per_file, compact, keep_removed, keep_orphans
    )
    return run_jobs(target, [job], store=store, **options)
