"""`tape reactions`: what reacts to which entries, how it is doing, and changing that."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import cast

import click

from tape.cli.command_tree import CommandGroup
from tape.cli.error_text import quiet_on_broken_pipe
from tape.cli.output import abridged, date_time, print_json, print_table, say, span
from tape.cli.records import reaction_record, reaction_state_record, task_record
from tape.cli.tail import Start
from tape.cli.target import Target, ask, connect, json_option, target_options
from tape.errors import NotFound
from tape.model.reaction import HandlerKind, NewReaction, Reaction, ReactionState
from tape.model.run import DEFAULT_POOL
from tape.model.task import Task, TaskStatus
from tape.reactions.settings import Options, new_reaction, shown_target

HOLDERS = 1_000  # claimed tasks that are looked through for who has them
SHOWN_TASKS = 20


@click.group(cls=CommandGroup)
@target_options
def reactions() -> None:
    """List, show, register and deregister reactions: each turns matching entries into work."""


@reactions.command(
    "list",
    example="""\
tape reactions list
tape reactions list /tape/event/recorded/order.placed/order/9""",
)
@click.argument("pattern", default="", metavar="[PATTERN|SUBJECT]")
@json_option
@target_options
@click.pass_obj
def list_reactions(target: Target, pattern: str, as_json: bool) -> None:
    """List reactions and their progress.

    With a pattern, list the reactions that have this pattern; with a subject, those that match it.

    LAG counts the entries that the reaction has not considered yet. CLAIMED counts the tasks that
    workers have claimed, with the oldest claim and its owner. ERRORS counts the entries for which
    the predicate had no result.
    """

    async def read() -> tuple[list[ReactionState], int, list[Task]]:
        async with connect(target) as client:
            states = await client.list_reactions(pattern)
            head = (await client.info()).head_global_seq
            held = any(state.claimed for state in states)
            claimed = TaskStatus.CLAIMED
            tasks = await client.list_tasks(status=claimed, limit=HOLDERS) if held else []
            return states, head, tasks

    states, head, tasks = asyncio.run(read())
    with quiet_on_broken_pipe():
        if as_json:
            for state in states:
                print_json(reaction_state_record(state, head))
            return
        rows = [_row(state, head, tasks) for state in states]
        columns = "REACTION", "WORK", "PATTERN", "LAG", "PENDING", "CLAIMED", "DEAD", "ERRORS"
        print_table(columns, rows)


@reactions.command(example="tape reactions show large-orders")
@click.argument("reaction_id", metavar="ID")
@json_option
@target_options
@click.pass_obj
def show(target: Target, reaction_id: str, as_json: bool) -> None:
    """Show the settings, progress and claimed tasks of a reaction.

    Exits with 1 if there is no such reaction.
    """

    async def read() -> tuple[ReactionState, int, list[Task]]:
        async with connect(target) as client:
            for state in await client.list_reactions():
                if state.reaction.reaction_id == reaction_id:
                    break
            else:
                raise _unknown(reaction_id)
            head = (await client.info()).head_global_seq
            claimed = TaskStatus.CLAIMED
            return state, head, await client.list_tasks(reaction_id, status=claimed, limit=HOLDERS)

    state, head, tasks = asyncio.run(read())
    record = reaction_state_record(state, head)
    if as_json:
        print_json(record | {"in_hand": [task_record(task) for task in tasks]})
        return
    for name in ("created_at_ms", "last_processed_at_ms"):
        moment: int = record.pop(name)
        record[name.removesuffix("_at_ms")] = date_time(moment) if moment else "never"
    width = max(map(len, record))
    for name, value in record.items():
        if value != "":
            say(f"{name:{width}}  {str(value).lower() if isinstance(value, bool) else value}")
    longest = sorted(tasks, key=lambda task: task.claimed_at_ms)
    for task in longest[:SHOWN_TASKS]:
        say(f"{'claimed':{width}}  {task.task_id}: {held_for(task)}, attempt {task.attempts}")


@reactions.command(
    example="tape reactions register large-orders --task --where 'payload.total > 50.0' "
    "--pattern '/tape/event/recorded/order.placed/**'"
)
@click.argument("reaction_id", metavar="ID")
@click.option("--pattern", required=True, help="React to entries with these subjects.")
@click.option("--where", default="", metavar="CEL", help="Only entries for which this is true.")
@click.option("--task", "is_task", is_flag=True, help="Make a task for a handler of each entry.")
@click.option("--agent", metavar="APP", help="Start a run of this app for each entry.")
@click.option("--pool", default="", metavar="NAME", help="Let this pool's workers drive the runs.")
@click.option("--publish", metavar="TARGET", help="Publish each entry there.")
@click.option("--name", default="", help="Label it for people.")
@click.option(
    "--from",
    "start",
    type=Start(),
    metavar="SEQ|start|now",
    default="now",
    help="React to entries after this number; now is the default.",
)
@click.option("--max-concurrency", type=int, help="Claimed tasks at once, over all workers.")
@click.option("--rate-limit-per-s", type=int, help="Tasks started per second; 0 means no limit.")
@click.option("--debounce-ms", type=int, help="Handle only the last entry of a burst per subject.")
@click.option("--retry-max", type=int, help="Retries after the first attempt.")
@click.option("--retry-backoff-ms", type=int, help="Wait before the first retry; then it doubles.")
@click.option("--dlq-after-n", type=int, help="Attempts before a dead letter; 0 means never.")
@click.option("--num-shards", type=int, help="Number of shards, worked on independently.")
@click.option("--engine", default="server", show_default=True, help="Who matches: server or spark.")
@json_option
@target_options
@click.pass_context
def register(
    ctx: click.Context, /, *, reaction_id: str, pattern: str, where: str, is_task: bool,
    agent: str | None, pool: str, publish: str | None, name: str, start: int | None, engine: str,
    as_json: bool, **counts: int | None,
) -> None:  # fmt: skip
    """Register a reaction. If it exists, update its settings; its cursor does not move.

    Options that are not given get their default. Choose the work: --task, --agent or --publish.
    """
    target = ctx.ensure_object(Target)
    target.inputs |= {"subject_pattern": pattern, "predicate_cel": where}
    if not reaction_id:
        raise click.UsageError("ID is empty", ctx)
    if is_task + (agent is not None) + (publish is not None) != 1:
        raise click.UsageError("give one of --task, --agent APP and --publish TARGET", ctx)
    options: Options = {
        "reaction_id": reaction_id,
        "where": where,
        "agent": agent,
        "pool": pool,
        "publish": publish,
        "name": name,
        "from_global_seq": start,
        "engine": engine,
    }
    options.update(_given(counts))
    made = asyncio.run(_register(target, new_reaction(pattern, **options)))
    if as_json:
        print_json(reaction_record(made))
    else:
        say(f"{made.reaction_id} is registered: {made.subject_pattern} → {_work(made)}")


@reactions.command(example="tape reactions deregister large-orders")
@click.argument("reaction_id", metavar="ID")
@target_options
@click.pass_obj
def deregister(target: Target, reaction_id: str) -> None:
    """Deregister a reaction. Its tasks stay in the store, and no worker can claim them.

    Exits with 1 if there is no such reaction.
    """
    if not ask(target, lambda client: client.deregister_reaction(reaction_id)):
        raise _unknown(reaction_id)
    say(f"{reaction_id} is deregistered")


def held_for(task: Task) -> str:
    """How long, by whom, and what is left of the lease, as far as this clock knows."""
    now = _now_ms()
    left = task.lease_expires_at_ms - now
    lease = f"{span(left)} left" if left > 0 else f"the lease expired {span(-left)} ago"
    return f"{span(now - task.claimed_at_ms)} by {task.lease_owner}, {lease}"


async def _register(target: Target, new: NewReaction) -> Reaction:
    async with connect(target) as client:
        return await client.register_reaction(new)


def _given(counts: Mapping[str, int | None]) -> Options:
    given = {name: count for name, count in counts.items() if count is not None}
    return cast("Options", given)


def _row(state: ReactionState, head: int, tasks: Iterable[Task]) -> tuple[str, ...]:
    reaction = state.reaction
    lag = str(max(0, head - state.position)) + ("" if state.following else ", catching up")
    errors = str(state.predicate_errors)
    if state.last_error:
        errors += f", last: {abridged(state.last_error, 50)}"
    return (
        reaction.reaction_id, _work(reaction), reaction.subject_pattern, lag, str(state.pending),
        _claimed(state, tasks), str(state.dead_letters), errors,
    )  # fmt: skip


def _claimed(state: ReactionState, tasks: Iterable[Task]) -> str:
    mine = [task for task in tasks if task.reaction_id == state.reaction.reaction_id]
    if not mine:
        return str(state.claimed)
    first = min(mine, key=lambda task: task.claimed_at_ms)
    owners = len({task.lease_owner for task in mine}) - 1
    more = f" and {owners} more" if owners else ""
    return f"{state.claimed}, {span(_now_ms() - first.claimed_at_ms)} by {first.lease_owner}{more}"


def _work(reaction: Reaction) -> str:
    kind = HandlerKind(reaction.handler_kind).name.lower()
    pool = f" in {reaction.pool}" if reaction.pool not in ("", DEFAULT_POOL) else ""
    return f"{kind} {reaction.agent_app or shown_target(reaction.publish_target)}{pool}".rstrip()


def _unknown(reaction_id: str) -> NotFound:
    return NotFound(f"no reaction {reaction_id}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
