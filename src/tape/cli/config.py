"""`tape config`: the settings that count here, and whether a settings file is in order."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tape.cli.command_tree import CommandGroup
from tape.cli.output import print_json, say
from tape.cli.target import Target, config_option
from tape.settings import Settings
from tape.settings.file import read_settings, settings_path


@click.group(cls=CommandGroup)
def config() -> None:
    """Show the settings in effect here, or check a settings file."""


@config.command(example="tape config show --config tape.yaml")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@config_option
@click.pass_obj
def show(target: Target, as_json: bool) -> None:
    """Print the settings in effect here, in the form of a settings file."""
    settings = target.settings
    if as_json:
        print_json({"tape": asdict(settings)})
        return
    file = settings_path(target.config_path)
    say(f"# {file} on top of the defaults" if file else "# the defaults")
    say("tape:")
    for line in _lines(asdict(settings), asdict(Settings()), "  "):
        say(line)


@config.command(example="tape config check tape.yaml")
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Check a settings file. Exits with 2 if it has a fault."""
    read_settings(file)
    say(f"{file}: in order")


def _lines(section: dict[str, Any], defaults: dict[str, Any], indent: str) -> Iterator[str]:
    for name, value in section.items():
        if isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from _lines(value, defaults[name], indent + "  ")
        else:
            changed = value != defaults[name]
            remark = f"  # default {_shown(defaults[name])}" if changed else ""
            yield f"{indent}{name}: {_shown(value)}{remark}"


def _shown(value: float | str | Sequence[str]) -> str:
    """As the file says it; JSON's texts and lists are YAML's, too."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value).removesuffix(".0")
    return json.dumps(value)
