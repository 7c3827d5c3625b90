"""`tape schema`: payload types and their recorded history, and the form of a subscription."""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from tape.cli.command_tree import CommandGroup
from tape.cli.documents import read_document as text_of
from tape.cli.modules import load_modules
from tape.cli.output import print_json, print_table, say
from tape.cli.target import json_option, target_options
from tape.errors import InvalidArgument, SchemaRefused
from tape.model.payload_schema import PayloadSchema, SchemaBreak
from tape.payloads.history import (
    CheckedType,
    check_history,
    declared_in,
    record_history,
    unrecorded,
)

F = TypeVar("F", bound=Callable[..., Any])


def _options(command: F) -> F:
    for option in (
        click.option(
            "-m", "--module", "modules", multiple=True, required=True, metavar="MODULE",
            help="Import this module, which declares payload types. Repeatable.",
        ),
        json_option,
        target_options,
    ):  # fmt: skip
        command = option(command)
    return command


_HISTORY = click.option(
    "--history",
    type=click.Path(path_type=Path),
    default="schemas",
    show_default=True,
    metavar="DIR",
    help="Folder that holds the recorded versions.",
)


@click.group(cls=CommandGroup)
@target_options
def schema() -> None:
    """Check, record and show payload types, to which fields may only be added.

    Also print the JSON schema of a document of kind: Subscription, or check such a document.
    """


@schema.command(example="tape schema check -m shop.events --recorded")
@_HISTORY
@click.option("--recorded", is_flag=True, help="Also fail if a version is not recorded yet.")
@_options
def check(*, modules: Sequence[str], history: Path, recorded: bool, as_json: bool) -> None:
    """Compare payload types with their history.

    Exits with 1 if old consumers could not read them. You may add fields that have a default, with
    a higher schema_version. You may not remove or rename a field, or change its type or default.
    """
    checkup = check_history(history, _declared(modules))
    findings = [*checkup.findings]
    if recorded:
        findings += [finding for checked in checkup.types for finding in unrecorded(checked)]
    _show(checkup.types, findings, as_json)
    if findings:
        raise SchemaRefused(_summary(findings))


@schema.command(example="tape schema record -m shop.events")
@_HISTORY
@_options
def record(*, modules: Sequence[str], history: Path, as_json: bool) -> None:
    """Write new versions of payload types to the history, if `tape schema check` accepts them."""
    declared = _declared(modules)
    checkup = record_history(history, declared)
    if checkup.findings:
        _show(checkup.types, checkup.findings, as_json)
        raise SchemaRefused(f"{_summary(checkup.findings)}; nothing was recorded")
    _show(check_history(history, declared).types, [], as_json)


@schema.command(example="tape schema show -m shop.events")
@_options
def show(*, modules: Sequence[str], as_json: bool) -> None:
    """Show the payload types that modules declare, with their fields."""
    declared = _declared(modules)
    if as_json:
        for kind in declared:
            print_json(_record(kind) | {"fields": kind.fields})
        return
    rows = [
        (kind.name, kind.subject, str(kind.version), ", ".join(kind.fields)) for kind in declared
    ]
    print_table(("TYPE", "SUBJECT", "VERSION", "FIELDS"), rows)


@schema.command(
    example="""\
tape schema subscription
tape schema subscription --check orders.yaml"""
)
@click.option(
    "--check", "file", type=click.Path(path_type=Path, allow_dash=True), metavar="FILE",
    help="Check this document, YAML or JSON, and print nothing but whether it is in order; - is "
         "standard input.",
)  # fmt: skip
def subscription(file: Path | None) -> None:
    """Print the JSON schema of a document of kind: Subscription (draft 2020-12).

    With --check, exits with 2 if the document has a fault, and says in which field and line.
    """
    from tape.subscriptions.document_schema import document_schema
    from tape.subscriptions.spec import read_document

    if file is None:
        click.echo(orjson.dumps(document_schema(), option=orjson.OPT_INDENT_2))
        return
    spec = read_document(text_of(file)).spec
    say(f"{file}: {spec.path} is in order")


def _declared(modules: Sequence[str]) -> list[PayloadSchema]:
    load_modules(modules)
    declared = declared_in(importlib.import_module(module) for module in modules)
    if not declared:
        raise InvalidArgument(
            f"{', '.join(modules)}: no class there is a tape.payloads.Payload", field="--module"
        )
    return declared


def _record(kind: PayloadSchema) -> dict[str, Any]:
    return {"type": kind.name, "subject": kind.subject, "schema_version": kind.version}


def _show(types: list[CheckedType], findings: list[SchemaBreak], as_json: bool) -> None:
    if as_json:
        for checked in types:
            print_json(_record(checked.declared) | {"recorded": checked.recorded})
        for finding in findings:
            print_json(
                {"type": finding.name, "field": finding.field, "finding": finding.what,
                 "message": finding.message}
            )  # fmt: skip
        return
    refused = {finding.name for finding in findings}
    rows = [
        (c.declared.name, c.declared.subject, str(c.declared.version), _state(c, refused))
        for c in types
    ]
    print_table(("TYPE", "SUBJECT", "VERSION", "STATE"), rows)
    for finding in findings:
        say(f"{finding}")


def _state(checked: CheckedType, refused: set[str]) -> str:
    if checked.declared.name in refused:
        return "refused"
    if checked.declared.version == checked.recorded:
        return "recorded"
    return f"recorded up to {checked.recorded}" if checked.recorded else "new"


def _summary(findings: list[SchemaBreak]) -> str:
    names = sorted({finding.name for finding in findings})
    many = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
    return f"{many} in {', '.join(names)}"
