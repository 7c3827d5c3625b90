"""Each command's help has an example, and the shell can complete commands."""

import shlex
import subprocess
from collections.abc import Iterator

import click
import pytest

from tape.cli.root import tape as root
from tests.integration.cli.command import TAPE, clean_environment


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All that are no groups, with what is typed for them."""
    with click.Context(group, info_name="tape") as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None
            if isinstance(command, click.Group):
                yield from commands(command, (*path, name))
            else:
                yield " ".join((*path, name)), command


ALL = dict(commands(root))


def test_all_commands_are_found() -> None:
    assert {"tail", "show", "runs list", "outbox stream apply", "pipeline audit"} <= ALL.keys()


@pytest.mark.parametrize("path", ALL)
def test_help_ends_with_an_example_that_can_be_typed(path: str) -> None:
    command = ALL[path]
    with click.Context(command, info_name=f"tape {path}") as ctx:
        text = command.get_help(ctx)
    _before, heading, examples = text.partition("\nExample:\n")
    assert heading, text
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    assert lines
    for line in lines:
        typed = shlex.split(line)
        words = ["tape", *path.split()]
        assert typed[: len(words)] == words
        _parse(command, typed[len(words) :])


def _parse(command: click.Command, arguments: list[str]) -> None:
    """Every option is one of the command's, and has what it needs; files need not exist."""
    with click.Context(command, info_name="tape") as ctx:
        values, left, _order = command.make_parser(ctx).parse_args(arguments)
    assert left == []
    for param in command.params:
        if param.required:
            assert values.get(param.name or ""), param.name


@pytest.mark.parametrize("path", ALL)
def test_each_option_says_what_it_does(path: str) -> None:
    silent = [
        param.opts[0]
        for param in ALL[path].params
        if isinstance(param, click.Option) and not param.help
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("tape re", {"record", "reactions", "replay", "relay"}),
        ("tape values na", {"namespaces"}),
        ("tape runs list --st", {"--status", "--store"}),
        ("tape runs list --status stu", {"stuck"}),
        ("tape pipeline a", {"archive", "audit"}),
    ],
)
def test_the_shell_completes(typed: str, offered: set[str]) -> None:
    asked = clean_environment(
        _TAPE_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=str(len(typed.split()) - 1)
    )
    done = subprocess.run(TAPE, env=asked, capture_output=True, text=True, check=True)
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == offered
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_is_given_its_script(shell: str) -> None:
    asked = clean_environment(_TAPE_COMPLETE=f"{shell}_source")
    done = subprocess.run(TAPE, env=asked, capture_output=True, text=True, check=True)
    assert f"_TAPE_COMPLETE={shell}_complete" in done.stdout
