"""`tape pipeline`: bulk work on Spark. Each command is a module here, loaded when asked for."""

from importlib import import_module

import click

from tape.cli.target import target_options

COMMANDS = ("ingest", "archive", "backfill", "rollup", "audit", "run")


class _Jobs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"tape.cli.pipeline.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101 - ours, see COMMANDS
        return command


@click.group(cls=_Jobs)
@target_options
def pipeline() -> None:
    """Bulk work on Spark: ingest, archive, backfill, roll up and audit.

    Spark runs in this process's machine unless --master or --remote names a cluster. Every job can
    be run again: it goes on from where it was, and what is done is not done twice.
    """
