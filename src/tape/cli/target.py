"""What a command works on: a server, or a store in this process."""

import contextlib
import getpass
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tape.cli.output import printable
from tape.settings import DEFAULT_STORE, Settings
from tape.settings.file import read_settings

if TYPE_CHECKING:
    from tape.bus import Operations
    from tape.client import (  # loaded by commands that connect: help does not
        AsyncTapeClient,
        Connecting,
    )

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


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
        """The store of a command that has nothing to do with a server's URL: a server itself."""
        return self.store or os.environ.get("TAPE_STORE", "") or DEFAULT_STORE

    def store_to_open(self, *, changes: bool, declared: str = "") -> str:
        """The store of a command that opens one itself and cannot work through a server.

        `declared` is what a file says, which counts more than the environment. A command that
        `changes` a journal is not left to choose between two that the environment names.
        """
        from tape.stores.by_url import display

        command = click.get_current_context().command_path
        if self.url:
            raise click.UsageError(_needs_a_store(command, "--url", self.url))
        if self.store or declared:
            return self.store or declared
        server, store = os.environ.get("TAPE_URL", ""), os.environ.get("TAPE_STORE", "")
        if server and not store:
            raise click.UsageError(_needs_a_store(command, "TAPE_URL", server))
        if server and changes:
            raise click.UsageError(
                f"TAPE_STORE names {display(store)} and TAPE_URL {display(server)}, which may be "
                f"two journals: say with --store which one {command} is to change"
            )
        return store or DEFAULT_STORE

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


def connect(target: Target, *, creating: bool = False) -> "Connecting":
    """A client for the server or the store. Only what records creates a store."""
    from tape.programs.connect import connect_async, connect_to_existing

    if creating:
        return connect_async(target.address, settings=target.settings)
    return connect_to_existing(target.address, target.settings)


def ask(target: Target, question: "Callable[[AsyncTapeClient], Awaitable[T]]") -> T:
    """Ask the server or the store one thing."""
    import asyncio  # help does not load it

    async def asked() -> T:
        async with connect(target) as client:
            return await question(client)

    return asyncio.run(asked())


@contextlib.asynccontextmanager
async def operations(target: Target) -> "AsyncIterator[Operations]":
    """The operations of the server or the store, for what a client has no call for."""
    from tape.programs.connect import default_token, default_url, open_operations

    url = target.address or default_url()
    opened = await open_operations(url, default_token(), target.settings, creating=False)
    try:
        yield opened
    finally:
        await opened.close()


async def refuse_absent_store(url: str | None, settings: Settings) -> None:
    """Refuse a URL, or the environment's, that names a store which is not there."""
    from tape.programs.connect import default_url
    from tape.stores.by_url import open_store

    url = url or default_url()
    if not url.startswith(("tape:", "tapes:")):
        await (await open_store(url, settings, creating=False)).close()


@contextlib.contextmanager
def announcing_created_store() -> Iterator[None]:
    """Say on standard error that a store was created, if one is."""
    from tape.stores.migrations import CREATED

    teller = _EchoHandler()
    before = CREATED.level, CREATED.propagate
    CREATED.setLevel(logging.INFO)
    CREATED.propagate = False
    CREATED.addHandler(teller)
    try:
        yield
    finally:
        CREATED.removeHandler(teller)
        CREATED.setLevel(before[0])
        CREATED.propagate = before[1]


class _EchoHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        click.echo(printable(record.getMessage()), err=True)


def _needs_a_store(command: str, name: str, url: str) -> str:
    from tape.stores.by_url import display

    return (
        f"{command} works on a store, not through a server: give --store (or TAPE_STORE); "
        f"{name} names {display(url)}"
    )


def config_option(command: F) -> F:
    return click.option(
        "--config", type=click.Path(), metavar="FILE", expose_value=False, callback=_remember,
        help="Settings file. By default TAPE_CONFIG, or tape.yaml in this folder.",
    )(command)  # fmt: skip


def target_options(command: F) -> F:
    for option in (
        click.option("--verbose", is_flag=True, default=None, help="Log more, and show tracebacks.",
                     expose_value=False, callback=_remember),
        click.option("--url", metavar="URL", expose_value=False, callback=_remember,
                     help="Work on a server: tape://HOST:PORT, or tapes:// with TLS."),
        click.option("--store", metavar="URL", expose_value=False, callback=_remember,
                     help="Work on a store: sqlite:PATH or postgres://USER@HOST/DATABASE."),
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


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line."
)
by_option = click.option("--by", default="", help="Record who does this; by default your user.")


def user_name() -> str:
    """Who does what an operator does, for the journal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        return ""
