"""`tape pipeline`: bulk work on Spark. Each command is a module here, loaded when asked for."""

import click

from tape.cli.command_tree import LazyGroup
from tape.cli.target import target_options

COMMANDS = {
    "ingest": "Record the messages of a source on the journal, each once.",
    "archive": "Copy new entries of the journal to a lake of Parquet files.",
    "backfill": "Make the tasks that a reaction would have made of older entries.",
    "rollup": "Aggregate the journal: counts, latency percentiles, bars.",
    "audit": "Check that the journal and its tables are consistent.",
    "run": "Run the jobs of a YAML file, in order.",
}


@click.group(cls=LazyGroup, package=__name__, summaries=COMMANDS, extra="spark")
@target_options
def pipeline() -> None:
    """Run bulk work on Spark: ingest, archive, backfill, roll up and audit.

    Spark runs on this machine unless --master or --remote names a cluster. You can run every job
    again: it continues where it stopped, and does nothing twice.
    """
