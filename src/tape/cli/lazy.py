"""A group of commands, each loaded when it is asked for: the object of its own name in the module
of its own name, below the group's package. What its help says of them is in a table, so that
nothing has to be loaded to list them."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from tape.cli.command_tree import CommandGroup


class LazyGroup(CommandGroup):
    """`summaries` are the commands, in order. All of them need `extra`, if one is named."""

    def __init__(
        self,
        *args: Any,
        package: str,
        summaries: Mapping[str, str],
        extra: str = "",
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._package = package
        self._summaries = summaries
        self._extra = extra

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self._summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._summaries:
            return None
        try:
            command = getattr(import_module(f"{self._package}.{cmd_name}"), cmd_name)
        except ModuleNotFoundError as missing:
            if not self._extra or (missing.name or "").startswith("tape"):
                raise
            raise click.ClickException(
                f"{ctx.command_path} {cmd_name} needs {missing.name}: "
                f"pip install 'tape-bus[{self._extra}]'"
            ) from None
        assert isinstance(command, click.Command)  # noqa: S101 - ours, by its name
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete from the table: loading every command to ask for its name takes long."""
        names = [
            CompletionItem(name, help=summary)
            for name, summary in self._summaries.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(self._summaries.items()))
