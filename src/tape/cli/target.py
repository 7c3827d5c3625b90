"""What a command works on: a server, or a store in this process."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from tape.app import connect_async
from tape.client import Connecting
from tape.config import DEFAULT_STORE, Settings
from tape.settings_file import read_settings

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Target:
    """The global options, given before or after the command's name. `inputs` is what was typed for
    each field of a request, so that a complaint can point into it."""

    url: str = ""
    store: str = ""
    config: str = ""
    verbose: bool = False
    inputs: dict[str, str] = field(default_factory=dict)

    @property
    def store_url(self) -> str:
        """The store, for commands that open one themselves."""
        return self.store or os.environ.get("TAPE_STORE", "") or DEFAULT_STORE

    @property
    def server_url(self) -> str:
        """The server that was named, empty where none was."""
        return self.url or ("" if self.store else os.environ.get("TAPE_URL", ""))

    @property
    def unnamed(self) -> bool:
        """Nobody said where the journal is, so the default server was meant."""
        named = self.url or self.store
        return not (named or os.environ.get("TAPE_URL") or os.environ.get("TAPE_STORE"))

    @property
    def address(self) -> str | None:
        """Where to connect: what was typed. Else the client's own rule for the environment."""
        if self.url and self.store:
            raise click.UsageError("--url and --store exclude each other")
        return self.url or self.store or None

    @property
    def config_path(self) -> Path | None:
        """The settings file that was named here."""
        return Path(self.config) if self.config else None

    @property
    def settings(self) -> Settings:
        """The defaults, with what the settings file changes."""
        return read_settings(self.config_path)


def connect(target: Target) -> Connecting:
    return connect_async(target.address, settings=target.settings)


def config_option(command: F) -> F:
    return click.option(
        "--config", type=click.Path(), metavar="FILE", expose_value=False, callback=_remember,
        help="Settings file. Or TAPE_CONFIG, or tape.yaml in this folder.",
    )(command)  # fmt: skip


def target_options(command: F) -> F:
    for option in (
        click.option("--verbose", is_flag=True, default=None, help="Show tracebacks and logs.",
                     expose_value=False, callback=_remember),
        click.option("--url", metavar="URL", help="Server: tape://HOST:PORT or tapes://HOST:PORT.",
                     expose_value=False, callback=_remember),
        click.option("--store", metavar="URL", expose_value=False, callback=_remember,
                     help="Store in this process: sqlite:PATH or postgres://USER@HOST/DATABASE."),
        config_option,
    ):  # fmt: skip
        command = option(command)
    return command


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if value is None or param.name is None:
        return
    if value == "":
        raise click.BadParameter("is empty", ctx=ctx, param=param)
    setattr(ctx.find_object(Target), param.name, value)
