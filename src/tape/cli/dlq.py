"""`tape dlq`: dead letters, which are tasks whose attempts were used up or refused for good."""

from collections.abc import Sequence

import click

from tape.cli.command_tree import CommandGroup
from tape.cli.output import print_json, say
from tape.cli.target import Target, ask, json_option, target_options
from tape.cli.tasks import print_tasks, read_tasks, show_task
from tape.errors import NotFound
from tape.model.task import TaskStatus

_ALL = click.option(
    "--all", "take_all", is_flag=True, help="Take all dead letters of the reaction."
)


@click.group(cls=CommandGroup)
@target_options
def dlq() -> None:
    """List, show, replay and drop dead letters: tasks that failed for good."""


@dlq.command("list", example="tape dlq list large-orders")
@click.argument("reaction_id", default="", metavar="[REACTION]")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="List at most N dead letters.",
)
@json_option
@target_options
@click.pass_obj
def list_letters(target: Target, reaction_id: str, limit: int, as_json: bool) -> None:
    """List dead letters of all reactions, or of one, with their last error."""
    print_tasks(read_tasks(target, reaction_id, TaskStatus.DLQ, limit), as_json=as_json)


@dlq.command(example="tape dlq show large-orders/0/3")
@click.argument("task_id")
@json_option
@target_options
@click.pass_obj
def show(target: Target, task_id: str, as_json: bool) -> None:
    """Show a task and the entry that it was made of. Exits with 1 if there is no such task."""
    show_task(target, task_id, as_json=as_json)


@dlq.command(example="tape dlq replay large-orders --all")
@click.argument("reaction_id", metavar="REACTION")
@click.argument("task_ids", nargs=-1, metavar="[TASK_ID]...")
@_ALL
@json_option
@target_options
@click.pass_context
def replay(
    ctx: click.Context, reaction_id: str, task_ids: tuple[str, ...], take_all: bool, as_json: bool
) -> None:
    """Queue dead letters again, with no attempts counted.

    Exits with 1 if none of the named tasks is a dead letter.
    """
    _check_which(ctx, task_ids, take_all)
    target = ctx.ensure_object(Target)
    count = ask(target, lambda client: client.replay_dead_letters(reaction_id, task_ids))
    _print_count(count, "queued again", task_ids, as_json=as_json)


@dlq.command(example="tape dlq drop large-orders large-orders/0/3 --yes")
@click.argument("reaction_id", metavar="REACTION")
@click.argument("task_ids", nargs=-1, metavar="[TASK_ID]...")
@_ALL
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@target_options
@click.pass_context
def drop(
    ctx: click.Context, *, reaction_id: str, task_ids: tuple[str, ...], take_all: bool, yes: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Give dead letters up. They stay in the store as failed tasks."""
    _check_which(ctx, task_ids, take_all)
    if not yes:
        _ask(ctx, f"all dead letters of {reaction_id}" if take_all else f"{len(task_ids)} of them")
    target = ctx.ensure_object(Target)
    count = ask(target, lambda client: client.drop_dead_letters(reaction_id, task_ids))
    _print_count(count, "dropped", task_ids, as_json=as_json)


def _check_which(ctx: click.Context, task_ids: Sequence[str], take_all: bool) -> None:
    if take_all == bool(task_ids):
        raise click.UsageError("give TASK_IDs or --all", ctx)


def _ask(ctx: click.Context, which: str) -> None:
    try:
        agreed = click.confirm(f"Drop {which} for good?", err=True)
    except click.Abort:
        click.echo(err=True)
        raise click.UsageError("nobody answered; give --yes to drop without asking", ctx) from None
    if not agreed:
        raise click.ClickException("nothing was dropped")


def _print_count(count: int, what: str, task_ids: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"count": count})
    if task_ids and not count:
        raise NotFound("none of these tasks is a dead letter of that reaction")
    if not as_json:
        say(f"{count} dead letter{'' if count == 1 else 's'} {what}")
