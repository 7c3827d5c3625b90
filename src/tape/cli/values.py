"""`tape values`: read, set with compare-and-set, delete, list, watch."""

import asyncio
import sys
from pathlib import Path

import click
import orjson

from tape.cli.command_tree import CommandGroup
from tape.cli.error_text import quiet_on_broken_pipe
from tape.cli.near_ids import note_if_unknown
from tape.cli.output import (
    abridged,
    date_time,
    exact_time,
    print_json,
    print_table,
    say,
)
from tape.cli.records import change_record, value_record
from tape.cli.target import Target, ask, connect, json_option, target_options
from tape.errors import NotFound
from tape.model.json_text import terminal_safe
from tape.model.subject import encode_segment
from tape.model.value import ANY_VERSION, ValueChange, change_of


@click.group(cls=CommandGroup)
@target_options
def values() -> None:
    """Read, set, list and watch values. Each change of a value is an entry of the journal."""


@values.command(example="tape values namespaces")
@json_option
@target_options
@click.pass_obj
def namespaces(target: Target, as_json: bool) -> None:
    """List the namespaces that hold a value."""
    names = ask(target, lambda client: client.list_namespaces())
    with quiet_on_broken_pipe():
        if as_json:
            for name in names:
                print_json({"namespace": name})
            return
        print_table(("NAMESPACE",), [(name,) for name in names])


@values.command(example="tape values get desk exposure_limit")
@click.argument("namespace")
@click.argument("key")
@json_option
@target_options
@click.pass_obj
def get(target: Target, namespace: str, key: str, as_json: bool) -> None:
    """Print a value. Exits with 1 if there is none."""
    value = ask(target, lambda client: client.get_value(namespace, key))
    if value is None:
        raise NotFound(f"no value {namespace}/{key}")
    if as_json:
        print_json(value_record(value))
    else:
        click.echo(terminal_safe(value.value_json))


@values.command(
    "set",
    example="""\
tape values set desk exposure_limit 250000 --if-version 3
tape values set desk currency '"EUR"'""",
)
@click.argument("namespace")
@click.argument("key")
@click.argument("json_text", metavar="JSON|@FILE|-")
@click.option(
    "--if-version",
    type=click.IntRange(min=0),
    metavar="N",
    help="Set it only if its version is N; 0 means that it must not exist yet.",
)
@click.option("--writer", default="", help="Record who sets it.")
@json_option
@target_options
@click.pass_obj
def set_value(
    target: Target, *, namespace: str, key: str, json_text: str, if_version: int | None,
    writer: str, as_json: bool,
) -> None:  # fmt: skip
    """Set a value to JSON, read from the command line, a file (@FILE) or standard input (-).

    Text in JSON has quotes: write '"EUR"', not EUR.
    """
    if json_text == "-":
        json_text = sys.stdin.read()
    elif json_text.startswith("@"):
        json_text = Path(json_text[1:]).read_text("utf-8")
    target.inputs["value_json"] = json_text
    wanted = ANY_VERSION if if_version is None else if_version

    value = ask(
        target,
        lambda client: client.set_value(
            namespace, key, orjson.Fragment(json_text), if_version=wanted, writer=writer
        ),
    )
    if as_json:
        print_json(value_record(value))
    else:
        say(f"{namespace}/{key} is at version {value.version}")


@values.command(example="tape values delete desk exposure_limit")
@click.argument("namespace")
@click.argument("key")
@click.option("--writer", default="", help="Record who deletes it.")
@json_option
@target_options
@click.pass_obj
def delete(target: Target, namespace: str, key: str, writer: str, as_json: bool) -> None:
    """Delete a value. Exits with 1 if there is none.

    If it is set again, its version continues from the deleted one.
    """
    result = ask(target, lambda client: client.delete_value(namespace, key, writer=writer))
    if as_json:
        print_json(result._asdict())
    if not result.deleted:
        raise NotFound(f"no value {namespace}/{key}")
    if not as_json:
        say(f"{namespace}/{key} is deleted, version {result.version}")


@values.command("list", example="tape values list desk")
@click.argument("namespace")
@json_option
@target_options
@click.pass_context
def list_values(ctx: click.Context, namespace: str, as_json: bool) -> None:
    """List the values of NAMESPACE, by key. Deleted values are left out."""
    target = ctx.ensure_object(Target)
    found = ask(target, lambda client: client.list_values(namespace))
    with quiet_on_broken_pipe():
        if as_json:
            for value in found:
                print_json(value_record(value))
            return
        rows = [
            (v.key, str(v.version), abridged(v.value_json, 60), v.writer, date_time(v.ts_ms))
            for v in found
        ]
        print_table(("KEY", "VERSION", "VALUE", "WRITER", "SET"), rows)
    if not found:
        note_if_unknown(ctx, "namespace")


@values.command(example="tape values watch desk exposure_limit --from-version 3")
@click.argument("namespace")
@click.argument("key")
@click.option(
    "--from-version",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Show changes to versions greater than N.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after N changes.")
@json_option
@target_options
@click.pass_obj
def watch(
    target: Target, *, namespace: str, key: str, from_version: int, limit: int | None, as_json: bool
) -> None:
    """Show each change of a value with the value before it, and go on with new changes.

    Stop it with Ctrl-C.
    """

    async def follow() -> None:
        seen = 0
        async with (
            connect(target) as client,
            client.watch_value(namespace, key, from_version=from_version) as changes,
        ):
            async for change in changes:
                _show(change, as_json)
                seen += 1
                if seen == limit:
                    return

    with quiet_on_broken_pipe():
        try:
            asyncio.run(follow())
        except KeyboardInterrupt:
            return


@values.command(example="tape values history desk exposure_limit")
@click.argument("namespace")
@click.argument("key")
@json_option
@target_options
@click.pass_obj
def history(target: Target, namespace: str, key: str, as_json: bool) -> None:
    """Show all changes of a value, oldest first, and end."""
    pattern = f"/tape/value/*/{encode_segment(namespace)}/{encode_segment(key)}"

    async def read() -> None:
        async with connect(target) as client, client.follow(pattern, live=False) as entries:
            async for entry in entries:
                _show(change_of(entry), as_json)

    with quiet_on_broken_pipe():
        asyncio.run(read())


def _show(change: ValueChange, as_json: bool) -> None:
    if as_json:
        print_json(change_record(change))
        return
    value = change.value
    before = abridged(change.prev_value_json, 60) or "nothing"
    after = "deleted" if value.deleted else abridged(value.value_json, 60)
    by = f" by {value.writer}" if value.writer else ""
    say(f"{exact_time(value.ts_ms)} version {value.version}: {before} → {after}{by}")
