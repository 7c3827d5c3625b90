"""`tape pipeline archive`: the journal into a lake."""

from typing import Any

import click

from tape.cli.pipeline.running import SPARK_EXTRA, existing_store, job_options, run_jobs
from tape.cli.target import Target, target_options
from tape.errors import SparkUnavailable


@click.command()
@click.option("--lake", required=True, metavar="PATH", help="A folder, empty or a lake already.")
@click.option(
    "--format",
    "layout",
    type=click.Choice(["parquet", "delta"]),
    default="parquet",
    show_default=True,
    help="delta also keeps a Delta log of the same files.",
)
@click.option("--upto", type=click.IntRange(min=1), metavar="SEQ", help="Up to this entry.")
@click.option("--older-than", default="", metavar="AGE", help="Only what was recorded so long ago.")
@click.option("--rows-per-file", type=click.IntRange(min=1), default=500_000, show_default=True)
@click.option("--compact", is_flag=True, help="Make small neighbouring files into large ones.")
@click.option(
    "--keep-removed",
    default="1h",
    show_default=True,
    metavar="AGE",
    help="How long files that were replaced are kept for those who read them.",
)
@click.option(
    "--keep-orphans",
    default="1d",
    show_default=True,
    metavar="AGE",
    help="How old what killed runs have left must be to be deleted.",
)
@job_options
@target_options
@click.pass_obj
def archive(
    target: Target, /, *, layout: str, lake: str, upto: int | None, older_than: str,
    rows_per_file: int, compact: bool, keep_removed: str, keep_orphans: str, **options: Any,
) -> int:  # fmt: skip
    """Copy what is new in the journal to a lake of Parquet files.

    The lake records the range it covers. It goes in steps: stopped at any moment, the next run
    goes on from the last one. Nothing is removed from the journal: that is `tape prune`.
    """
    store = existing_store(target, changes=False)
    try:
        from tape.pipeline.jobs.archive.job import Archive
    except ModuleNotFoundError as missing:
        raise SparkUnavailable(f"{SPARK_EXTRA} ({missing.name} is missing)") from missing
    job = Archive(
        lake, layout, upto, older_than, rows_per_file, compact, keep_removed, keep_orphans
    )
    return run_jobs(target, [job], store=store, **options)
