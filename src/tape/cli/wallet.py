"""`tape wallet`: credentials, sealed under a key of yours. Values are read, and never printed."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tape.cli.command_tree import CommandGroup, ExampleCommand
from tape.cli.error_text import quiet_on_broken_pipe
from tape.cli.output import date_time, print_json, print_table, say
from tape.cli.target import Target, ask, json_option, target_options
from tape.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from tape.model.credential import CredentialState

FILE_VARIABLE = "TAPE_WALLET_KEY_FILE"
READ_MOST = 1024 * 1024
VALUE = "value"
_PREFIX = f"{VALUE}: "

file_option = click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Read the value from a file; by default from standard input.",
)
text_option = click.option(
    "--text", is_flag=True, help="Keep it as a text, even if it is or looks like a JSON object."
)


class ValueCommand(ExampleCommand):
    """A command that seals a value. One that was typed on the command line is not repeated in the
    error: logs keep what is printed. An error about the value says where it was read from."""

    allow_extra_args = True

    def invoke(self, ctx: click.Context) -> Any:
        if ctx.args:
            raise click.UsageError(
                "give ALIAS alone: the value is read from standard input or --file. What is typed "
                "here, others can see: if it was a secret, replace it",
                ctx,
            )
        try:
            return super().invoke(ctx)
        except InvalidArgument as fault:
            if fault.field == VALUE:
                file = ctx.params["file"]
                said = "standard input" if _is_standard_input(file) else f"--file {file}"
                fault.args = (f"the value read from {said}: {str(fault).removeprefix(_PREFIX)}",)
            raise


@click.group(cls=CommandGroup)
@target_options
def wallet() -> None:
    """Manage credentials. Each is sealed under a key that no store has, and named by its alias."""


@wallet.command(example="tape wallet init --file wallet.key")
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"Write the key there; by default to {FILE_VARIABLE}.",
)
@click.option("--add", is_flag=True, help="Add a new key to a file that has one: see `rewrap`.")
@json_option
def init(file: Path | None, add: bool, as_json: bool) -> None:
    """Make a key-encryption key, in a file that nobody but you can read.

    A file that is there is never written over. Keep a copy of it where the store is not: without
    its key nobody can open the credentials.
    """
    named = os.environ.get(FILE_VARIABLE, "")
    path = file or (Path(named) if named else None)
    if path is None:
        raise click.UsageError(f"give --file, or set {FILE_VARIABLE}")
    from tape.wallet.key_file import add_key, create_key_file

    key_id = add_key(path) if add else create_key_file(path)
    if as_json:
        print_json({"file": str(path), "key_id": key_id})
    else:
        say(f"{path}: {key_id}")


@wallet.command(cls=ValueCommand, example="tape wallet put nats_main --file nats.json")
@click.argument("alias")
@file_option
@text_option
@json_option
@target_options
@click.pass_obj
def put(target: Target, *, alias: str, file: Path | None, text: bool, as_json: bool) -> None:
    """Seal a value under ALIAS. The version before is refused at once.

    The value is read from standard input or a file, and one newline at its end is dropped. A JSON
    object is kept as an object, anything else as a text. What begins with { and is no JSON is
    refused, unless --text says that it is a text.
    """
    value, form = _read_value(file), "text" if text else ""
    state = ask(target, lambda client: client.put_credential(alias, value, form=form))
    _print_state(state, f"{alias} is at version {state.version}", as_json=as_json)


@wallet.command(
    cls=ValueCommand,
    example="""\
tape wallet rotate nats_main --file nats.json
tape wallet rotate nats_main --retire""",
)
@click.argument("alias")
@file_option
@text_option
@click.option(
    "--retire", is_flag=True, help="Read no value: refuse the version before from now on."
)
@json_option
@target_options
@click.pass_obj
def rotate(
    target: Target, *, alias: str, file: Path | None, text: bool, retire: bool, as_json: bool
) -> None:
    """Seal a new value under ALIAS. The version before stays good until the next rotation.

    So both are tried while the other side changes over. --retire ends that.
    """
    if retire:
        if file is not None or text:
            raise click.UsageError("--retire reads no value: leave out --file and --text")
        state = ask(target, lambda client: client.retire_credential(alias))
        _print_state(state, f"{alias}: only version {state.version} is good", as_json=as_json)
        return
    value, form = _read_value(file), "text" if text else ""
    state = ask(target, lambda client: client.rotate_credential(alias, value, form=form))
    said = f"{alias} is at version {state.version}, and {state.previous_version} is still good"
    _print_state(state, said, as_json=as_json)


@wallet.command("list", example="tape wallet list")
@json_option
@target_options
@click.pass_obj
def list_credentials(target: Target, as_json: bool) -> None:
    """List credentials, without their values.

    KEY is the key-encryption key of the current version. A key that is listed here must not be
    thrown away: see `rewrap`.
    """
    states = ask(target, lambda client: client.credentials())
    with quiet_on_broken_pipe():
        if as_json:
            for state in states:
                print_json(state._asdict())
            return
        columns = "ALIAS", "VERSION", "FORM", "KEY", "CHANGED", "OPENED", "STILL GOOD"
        print_table(columns, map(_row, states), whole=("KEY",))


@wallet.command(example="tape wallet rewrap")
@json_option
@target_options
@click.pass_obj
def rewrap(target: Target, as_json: bool) -> None:
    """Put all data keys under the newest key-encryption key. Values are not touched.

    First add a key (`init --add`) wherever the wallet is used. When this has ended and `list` shows
    the new key alone, the old one may go. It may be killed and run again at any time.
    """
    count = ask(target, lambda client: client.rewrap_credentials())
    if as_json:
        print_json({"rewrapped": count})
    else:
        say(f"{count} rewrapped")


@wallet.command(example="tape wallet delete nats_main")
@click.argument("alias")
@target_options
@click.pass_obj
def delete(target: Target, alias: str) -> None:
    """Forget the values of ALIAS. Exits with 1 if there is none."""
    if not ask(target, lambda client: client.delete_credential(alias)):
        raise NotFound(f"no credential {alias!r}")
    say(f"{alias} is deleted")


def _read_value(file: Path | None) -> str:
    """What is not echoed, and is no argument: others can see those."""
    if file is not None and not _is_standard_input(file):
        with file.open("rb") as opened:
            return _text(opened)
    if sys.stdin.isatty():
        typed: str = click.prompt("value", hide_input=True, err=True)
        return typed
    return _text(sys.stdin.buffer)


def _is_standard_input(file: Path | None) -> bool:
    return file is None or str(file) == "-"


def _text(source: BinaryIO) -> str:
    try:
        text = source.read(READ_MOST).decode()
    except UnicodeDecodeError:
        raise InvalidArgument("is not UTF-8", field=VALUE) from None
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def _print_state(state: "CredentialState", said: str, *, as_json: bool) -> None:
    if as_json:
        print_json(state._asdict())
    else:
        say(f"{said} (sealed under {state.key_id})")


def _row(state: "CredentialState") -> tuple[str, ...]:
    still_good = ""
    if state.previous_version:
        still_good = f"version {state.previous_version}, {state.previous_key_id}"
    return (
        state.alias, str(state.version), state.form, state.key_id, date_time(state.changed_at_ms),
        str(state.opened), still_good,
    )  # fmt: skip
