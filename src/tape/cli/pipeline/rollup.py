"""`tape pipeline rollup`: counts, latencies and bars, kept up to date."""

from dataclasses import fields
from typing import Any

import click

from tape.cli.pipeline.running import SPARK_EXTRA, existing_store, job_options, run_jobs
from tape.cli.target import Target, target_options
from tape.errors import SparkUnavailable


@click.command()
@click.option("--out", required=True, metavar="FOLDER", help="Where the tables are.")
@click.option(
    "--what",
    multiple=True,
    type=click.Choice(["counts", "latency", "bars"]),
    default=("counts", "latency", "bars"),
    help="Only this; can be given several times.",
)
@click.option("--lake", default="", metavar="FOLDER", help="Read archived history as well.")
@click.option(
    "--window",
    default="1h",
    show_default=True,
    metavar="SPAN",
    help="Of counts and latencies: 30s, 5m, 1h, 1d…",
)
@click.option(
    "--depth",
    default=3,
    show_default=True,
    metavar="N",
    help="How many segments of the subject counts are by.",
)
@click.option("--base", default="1m", show_default=True, metavar="SPAN", help="Klines to use.")
@click.option(
    "--to",
    multiple=True,
    metavar="SPAN",
    default=("5m", "15m", "1h", "1d"),
    show_default=True,
    help="Bars to make; can be given several times.",
)
@click.option(
    "--events",
    default="market.klines.",
    show_default=True,
    metavar="PREFIX",
    help="How the event types of klines begin.",
)
@click.option("--values", is_flag=True, help="Set a value for each bar that has changed.")
@click.option("--namespace", default="bars", show_default=True, help="Of these values.")
@click.option(
    "--slice-entries",
    default=5_000_000,
    show_default=True,
    metavar="N",
    help="Publish after so many entries.",
)
@job_options
@target_options
@click.pass_obj
def rollup(target: Target, /, **options: Any) -> int:
    """Aggregate the journal: counts, latency percentiles, bars made of klines.

    Goes on from where it was. A kline that is corrected or comes late changes the bars it is part
    of, and no others.
    """
    store = existing_store(target, changes=True)
    try:
        from tape.pipeline.jobs.rollup.job import Rollup
    except ModuleNotFoundError as missing:
        raise SparkUnavailable(f"{SPARK_EXTRA} ({missing.name} is missing)") from missing
    job = Rollup(**{field.name: options.pop(field.name) for field in fields(Rollup)})
    return run_jobs(target, [job], store=store, **options)
