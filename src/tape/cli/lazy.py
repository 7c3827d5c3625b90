"""A group of commands, each loaded when it is asked for: the object of its own name in the module
of its own name, below the group's package."""

from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    def __init__(self, *args: Any, package: str, names: tuple[str, ...], **options: Any) -> None:
        super().__init__(*args, **options)
        self._package = package
        self._names = names

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self._names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._names:
            return None
        command = getattr(import_module(f"{self._package}.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101 - ours, by its name
        return command
