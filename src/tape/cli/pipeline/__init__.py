"""`tape pipeline`: bulk work on Spark. Each command is a module here, loaded when asked for."""

import click

from tape.cli.lazy import LazyGroup
from tape.cli.target import target_options

COMMANDS = ("ingest", "archive", "backfill", "rollup", "audit", "run")


@click.group(cls=LazyGroup, package=__name__, names=COMMANDS)
@target_options
def pipeline() -> None:
    """Bulk work on Spark: ingest, archive, backfill, roll up and audit.

    Spark runs on this machine unless --master or --remote names a cluster. Every job can
    be run again: it goes on from where it was, and what is done is not done twice.
    """
