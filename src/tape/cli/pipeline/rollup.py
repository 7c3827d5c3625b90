"""`tape pipeline rollup`: counts, latencies and bars, kept up to date."""

from dataclasses import fields
from typing import Any

import click

from tape.cli.command_tree import ExampleCommand
from tape.cli.pipeline.running import existing_store, job_options, needing_spark, run_jobs
from tape.cli.target import Target, target_options


@click.command(
    cls=ExampleCommand, example="tape pipeline rollup --out tables/ --what counts --window 5m"
)
@click.option("--out", required=True, metavar="FOLDER", help="Folder of the tables.")
@click.option(
    "--what",
    multiple=True,
    type=click.Choice(["counts", "latency", "bars"]),
    default=("counts", "latency", "bars"),
    help="Make only this. Repeatable.",
)
@click.option("--lake", default="", metavar="FOLDER", help="Read archived entries as well.")
@click.option(
    "--window",
    default="1h",
    show_default=True,
    metavar="SPAN",
    help="Window of counts and latencies: 30s, 5m, 1h, 1d…",
)
@click.option(
    "--depth",
    default=3,
    show_default=True,
    metavar="N",
    help="Count by the first N segments of the subject.",
)
@click.option(
    "--base", default="1m", show_default=True, metavar="SPAN", help="Make bars of these klines."
)
@click.option(
    "--to",
    multiple=True,
    metavar="SPAN",
    default=("5m", "15m", "1h", "1d"),
    show_default=True,
    help="Make bars of this length. Repeatable.",
)
@click.option(
    "--events",
    default="market.klines.",
    show_default=True,
    metavar="PREFIX",
    help="Klines are events whose type begins like this.",
)
@click.option("--values", is_flag=True, help="Set a value for each bar that changes.")
@click.option("--namespace", default="bars", show_default=True, help="Namespace of these values.")
@click.option(
    "--slice-entries",
    default=5_000_000,
    show_default=True,
    metavar="N",
    help="Publish results after every N entries.",
)
@job_options
@target_options
@click.pass_obj
def rollup(target: Target, /, **options: Any) -> int:
    """Aggregate the journal: counts, latency percentiles, and bars made of klines.

    Continues where it stopped. A kline that is corrected or late changes the bars it belongs to,
    and no others.
    """
    store = existing_store(target, changes=True)
    with needing_spark():
        from tape.pipeline.jobs.rollup.job import Rollup
    job = Rollup(**{field.name: options.pop(field.name) for field in fields(Rollup)})
    return run_jobs(target, [job], store=store, **options)
