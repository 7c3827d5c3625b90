"""`tape pipeline audit`: what must hold of the journal, and what does not."""

from dataclasses import fields
from typing import Any

import click

from tape.cli.command_tree import ExampleCommand
from tape.cli.output import say
from tape.cli.pipeline.running import existing_store, job_options, needing_spark, run_jobs
from tape.cli.target import Target, target_options
from tape.stores.blocking import Stores


@click.command(cls=ExampleCommand, example="tape pipeline audit --report audit.html")
@click.option("--lake", default="", metavar="FOLDER", help="Read archived entries as well.")
@click.option("--check", multiple=True, metavar="NAME", help="Make only this check. Repeatable.")
@click.option("--list", "listing", is_flag=True, help="List the checks, and check nothing.")
@click.option("--report", default="", metavar="FILE", help="Write a report: .html, .md or .json.")
@click.option(
    "--limit",
    default=20,
    show_default=True,
    metavar="N",
    help="Show at most N violations of each check, and their number.",
)
@job_options
@target_options
@click.pass_obj
def audit(target: Target, /, listing: bool, **options: Any) -> int:
    """Check that the journal and the tables beside it are consistent.

    The store may be in use meanwhile. Exits with 1 if a check fails; warnings do not count.
    """
    with needing_spark():
        from tape.pipeline.java import prefer_quick_start
        from tape.pipeline.jobs.audit.catalogue import CHECKS
        from tape.pipeline.jobs.audit.job import Audit
        from tape.pipeline.jobs.audit.reading import has_few_entries
    if listing:
        for check in CHECKS.values():
            say(f"{check.name:26} {check.severity:8} {check.holds}")
        return 0
    store = existing_store(target, changes=False)
    job = Audit(**{field.name: options.pop(field.name) for field in fields(Audit)})
    if has_few_entries(Stores(target.settings).store(store), job.lake):
        prefer_quick_start()
    return run_jobs(target, [job], store=store, **options)
