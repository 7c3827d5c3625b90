"""`tape dlq`: dead letters, which are tasks whose attempts were used up or refused for good, and
messages of subscriptions that could not become runs."""

from typing import NamedTuple

import click

from tape.cli.command_tree import CommandGroup
from tape.cli.dead_messages import drop_messages, list_messages, replay_messages, show_message
from tape.cli.output import print_json, say
from tape.cli.target import Target, ask, json_option, target_options
from tape.cli.tasks import print_tasks, read_tasks, show_task
from tape.errors import NotFound
from tape.model.task import TaskStatus

_ALL = click.option(
    "--all", "take_all", is_flag=True, help="Take all dead letters of the reaction or subscription."
)
_SUBSCRIPTION = click.option(
    "--subscription", default="", metavar="NAME", help="Messages of this subscription, not tasks."
)


_NO_TASK = "none of these tasks is a dead letter of that reaction"
_NO_MESSAGE = (
    "none of these is a dead letter of that subscription which is not refused again; "
    "`tape dlq show ID --subscription NAME` says why"
)


@click.group(cls=CommandGroup)
@target_options
def dlq() -> None:
    """List, show, replay and drop dead letters: tasks that failed for good.

    With --subscription: messages of a subscription that could not become runs.
    """


@dlq.command(
    "list",
    example="""\
tape dlq list large-orders
tape dlq list --subscription orders""",
)
@click.argument("reaction_id", default="", metavar="[REACTION]")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="List at most N dead letters.",
)
@_SUBSCRIPTION
@json_option
@target_options
@click.pass_context
def list_letters(
    ctx: click.Context, *, reaction_id: str, limit: int, subscription: str, as_json: bool
) -> None:
    """List dead letters of all reactions, of one, or of a subscription, with their last error."""
    target = ctx.ensure_object(Target)
    if subscription:
        if reaction_id:
            raise click.UsageError("give REACTION or --subscription", ctx)
        list_messages(target, subscription, limit, as_json=as_json)
        return
    print_tasks(read_tasks(target, reaction_id, TaskStatus.DLQ, limit), as_json=as_json)


@dlq.command(example="tape dlq show large-orders/0/3")
@click.argument("task_id", metavar="ID")
@_SUBSCRIPTION
@json_option
@target_options
@click.pass_obj
def show(target: Target, *, task_id: str, subscription: str, as_json: bool) -> None:
    """Show a task and the entry that it was made of, or a message of a subscription.

    Exits with 1 if there is none by that id.
    """
    if subscription:
        show_message(target, subscription, task_id, as_json=as_json)
        return
    show_task(target, task_id, as_json=as_json)


@dlq.command(
    example="""\
tape dlq replay large-orders --all
tape dlq replay --subscription orders --all"""
)
@click.argument("reaction_id", default="", metavar="[REACTION]")
@click.argument("task_ids", nargs=-1, metavar="[ID]...")
@_ALL
@_SUBSCRIPTION
@json_option
@target_options
@click.pass_context
def replay(
    ctx: click.Context, *, reaction_id: str, task_ids: tuple[str, ...], take_all: bool,
    subscription: str, as_json: bool,
) -> None:  # fmt: skip
    """Queue tasks again, with no attempts counted; accept messages again, by the newest revision.

    With --subscription all arguments are ids. Messages that are refused again stay. Exits with 1 if
    there was nothing to replay among those that are named.
    """
    which = _Which.of(ctx, reaction_id, task_ids, subscription, take_all=take_all)
    target = ctx.ensure_object(Target)
    if subscription:
        count = replay_messages(target, subscription, which.ids)
        _print_count(count, "replayed", which, as_json=as_json)
        return
    count = ask(target, lambda client: client.replay_dead_letters(reaction_id, task_ids))
    _print_count(count, "queued again", which, as_json=as_json)


@dlq.command(
    example="""\
tape dlq drop large-orders large-orders/0/3 --yes
tape dlq drop --subscription orders --all --yes"""
)
@click.argument("reaction_id", default="", metavar="[REACTION]")
@click.argument("task_ids", nargs=-1, metavar="[ID]...")
@_ALL
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_SUBSCRIPTION
@json_option
@target_options
@click.pass_context
def drop(
    ctx: click.Context, *, reaction_id: str, task_ids: tuple[str, ...], take_all: bool, yes: bool,
    subscription: str, as_json: bool,
) -> None:  # fmt: skip
    """Give dead letters up. Tasks stay in the store as failed, messages are removed.

    With --subscription all arguments are ids.
    """
    which = _Which.of(ctx, reaction_id, task_ids, subscription, take_all=take_all)
    if not yes:
        _ask(
            ctx,
            f"{len(which.ids)} of them" if which.ids else f"all dead letters of {which.of_whom}",
        )
    target = ctx.ensure_object(Target)
    if subscription:
        count = drop_messages(target, subscription, which.ids)
    else:
        count = ask(target, lambda client: client.drop_dead_letters(reaction_id, task_ids))
    _print_count(count, "dropped", which, as_json=as_json)


class _Which(NamedTuple):
    """Whose dead letters are meant; without ids all."""

    of_whom: str
    ids: tuple[str, ...]
    missing: str
    """What is said if none of the ids is one."""

    @classmethod
    def of(
        cls,
        ctx: click.Context,
        reaction_id: str,
        task_ids: tuple[str, ...],
        subscription: str,
        *,
        take_all: bool,
    ) -> "_Which":
        if subscription:
            ids = ((reaction_id,) if reaction_id else ()) + task_ids
            which = cls(subscription, ids, _NO_MESSAGE)
        elif reaction_id:
            which = cls(reaction_id, task_ids, _NO_TASK)
        else:
            raise click.UsageError("give REACTION or --subscription", ctx)
        if take_all == bool(which.ids):
            raise click.UsageError(f"give {'IDs' if subscription else 'TASK_IDs'} or --all", ctx)
        return which


def _ask(ctx: click.Context, which: str) -> None:
    try:
        agreed = click.confirm(f"Drop {which} for good?", err=True)
    except click.Abort:
        click.echo(err=True)
        raise click.UsageError("nobody answered; give --yes to drop without asking", ctx) from None
    if not agreed:
        raise click.ClickException("nothing was dropped")


def _print_count(count: int, what: str, which: _Which, *, as_json: bool) -> None:
    if as_json:
        print_json({"count": count})
    if which.ids and not count:
        raise NotFound(which.missing)
    if not as_json:
        say(f"{count} dead letter{'' if count == 1 else 's'} {what}")
