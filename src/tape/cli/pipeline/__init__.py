"""`tape pipeline`: bulk work on Spark. Each command is a module here, loaded when asked for."""

import click

from tape.cli.lazy import LazyGroup
from tape.cli.target import target_options

COMMANDS = {
    "ingest": "Put the messages of a source on the journal, each once.",
    "archive": "Copy what is new in the journal to a lake of Parquet files.",
    "backfill": "Make the tasks that a reaction would have made earlier.",
    "rollup": "Aggregate the journal: counts, latency percentiles, bars.",
    "audit": "Check the journal and its tables for everything that must hold.",
    "run": "Run the jobs that a YAML file declares, in its order.",
}


@click.group(cls=LazyGroup, package=__name__, summaries=COMMANDS, extra="spark")
@target_options
def pipeline() -> None:
    """Bulk work on Spark: ingest, archive, backfill, roll up and audit.

    Spark runs on this machine unless --master or --remote names a cluster. Every job can
    be run again: it goes on from where it was, and what is done is not done twice.
    """
