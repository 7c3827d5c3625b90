"""`tape pipeline run`: the jobs of a file, one after another."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tape.cli.command_tree import ExampleCommand
from tape.cli.pipeline.running import existing_store, job_options, needing_spark, run_jobs
from tape.cli.target import Target, target_options

if TYPE_CHECKING:
    from tape.pipeline.job import Job

JOBS = ("ingest", "archive", "backfill", "rollup", "audit")


def known_jobs() -> "dict[str, type[Job]]":
    """Each is the class `Job` names in `tape.pipeline.jobs.<name>.job`, capitalised."""
    return {
        name: getattr(import_module(f"tape.pipeline.jobs.{name}.job"), name.capitalize())
        for name in JOBS
    }


@click.command(cls=ExampleCommand, example="tape pipeline run nightly.yaml --only archive")
@click.argument("spec", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--only", multiple=True, metavar="JOB", help="Run only this job. Repeatable.")
@job_options
@target_options
@click.pass_obj
def run(
    target: Target, /, spec: Path, only: tuple[str, ...], master: str, remote: str, **options: Any
) -> int:
    """Run the jobs of a YAML file, in order. Stops at the first job that fails."""
    with needing_spark():
        from tape.pipeline.spec import read_spec
    declared = read_spec(spec, known_jobs())
    jobs = [job for job in declared.jobs if not only or job.name in only]
    if not jobs:
        raise click.UsageError(f"{spec} has no job named {' or '.join(only)}")
    return run_jobs(
        target, jobs, master=master or declared.master, remote=remote or declared.remote,
        store=existing_store(target, changes=True, declared=declared.store), **options,
    )  # fmt: skip
