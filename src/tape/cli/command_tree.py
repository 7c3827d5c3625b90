"""Commands and groups of commands: what all of them have in common.

A command has an example of its use, with which its help ends. An error that names a field of a
request is told with the option that was typed for it, and one that an id is unknown with the id
that may have been meant.
"""

import contextlib
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from tape.errors import InvalidArgument, NoCredential, NotFound

# What was typed for a field of a request: the parameters that commands have for it, where they have
# another name.
_TYPED = {
    "agent_app": "agent",
    "app_name": "app",
    "drainer_id": "drainer",
    "entity_id": "entity",
    "entity_type": "entity",
    "filter_expr": "where",
    "from_global_seq": "start",
    "gate_name": "gate",
    "idempotency_key": "key",
    "ids": "task_ids",
    "input": "json_text",
    "input_json": "json_text",
    "invocation_id": "invocation",
    "name": "subscription",
    "occurred_at_ms": "occurred_at",
    "payload_json": "payload",
    "predicate_cel": "where",
    "publish_target": "publish targets bridge",
    "reaction_id": "reaction_ids",
    "resolution": "json_text",
    "session_id": "session",
    "subject_pattern": "pattern",
    "tls": "tls_cert",
    "user_id": "user",
    "value_json": "json_text",
    "workflow_type": "app",
}


class ExampleCommand(click.Command):
    """A command whose help ends with an example."""

    def __init__(self, *args: Any, example: str = "", **options: Any) -> None:
        super().__init__(*args, **options)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.example:
            with formatter.section("Example"):
                for line in self.example.splitlines():  # as it is: a folded command is no command
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def invoke(self, ctx: click.Context) -> Any:
        with completing_errors(ctx):
            return super().invoke(ctx)


class CommandGroup(click.Group):
    """A group of such commands."""

    command_class = ExampleCommand
    group_class = type

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # rarely needed

            for meant in get_close_matches(args[0], self.list_commands(ctx), n=1):
                raise click.UsageError(f"{error.message} Did you mean {meant!r}?", ctx) from None
            raise

    def invoke(self, ctx: click.Context) -> Any:
        with completing_errors(ctx):
            return super().invoke(ctx)


@contextlib.contextmanager
def completing_errors(ctx: click.Context) -> Iterator[None]:
    """Complete the errors of a command with what the person at the terminal knows."""
    try:
        yield
    except InvalidArgument as fault:
        _name_option(fault, ctx)
        raise
    except (NotFound, NoCredential) as missing:
        from tape.cli.near_ids import credential_meant_by, meant_by

        find = credential_meant_by if isinstance(missing, NoCredential) else meant_by
        if meant := find(ctx):
            missing.args = (f"{missing}. Did you mean {meant}?",)
        raise


def _name_option(fault: InvalidArgument, ctx: click.Context) -> None:
    """Put the option, or the argument, in the place of the field that it was given for."""
    field = fault.field.removeprefix("events[0].")
    if not field:
        return
    shown = _shown(ctx, field)
    if field.startswith("input_mapper."):
        shown = f"--input {field.removeprefix('input_mapper.')}"
    said = str(fault).removeprefix("events[0].")
    if shown and said.startswith(field):
        fault.args = (shown + said.removeprefix(field),)


def _shown(ctx: click.Context, field: str) -> str:
    for wanted in (field, *_TYPED.get(field, "").split()):
        for param in ctx.command.params:
            if param.name == wanted and isinstance(param, click.Option):
                is_typed = ctx.get_parameter_source(wanted) != ParameterSource.ENVIRONMENT
                return max(param.opts, key=len) if is_typed else str(param.envvar)
            if param.name == wanted:
                return param.human_readable_name.strip("[].…").partition("|")[0]
    return ""


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
