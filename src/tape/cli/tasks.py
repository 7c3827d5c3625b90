"""`tape tasks`: the work that reactions made of entries."""

import time
from collections.abc import Iterable

import click

from tape.cli.command_tree import CommandGroup
from tape.cli.error_text import quiet_on_broken_pipe
from tape.cli.output import abridged, date_time, print_json, print_table, say, say_traceback, span
from tape.cli.reactions import held_for
from tape.cli.records import task_record
from tape.cli.target import Target, ask, json_option, target_options
from tape.errors import NotFound
from tape.model.task import Task, TaskStatus

_STATUSES = {status.name.lower(): status for status in TaskStatus}


@click.group(cls=CommandGroup)
@target_options
def tasks() -> None:
    """List and show tasks: one per entry that a reaction matched."""


@tasks.command("list", example="tape tasks list --reaction large-orders --status pending")
@click.option("--reaction", default="", metavar="ID", help="Only tasks of this reaction.")
@click.option("--status", type=click.Choice(list(_STATUSES)), help="Only tasks with this status.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="List at most N tasks.",
)
@json_option
@target_options
@click.pass_obj
def list_tasks(
    target: Target, *, reaction: str, status: str | None, limit: int, as_json: bool
) -> None:
    """List tasks, by reaction, shard and number of the entry."""
    wanted = _STATUSES[status] if status else None
    print_tasks(read_tasks(target, reaction, wanted, limit), as_json=as_json)


@tasks.command(example="tape tasks show large-orders/0/3")
@click.argument("task_id")
@json_option
@target_options
@click.pass_obj
def show(target: Target, task_id: str, as_json: bool) -> None:
    """Show a task and the entry that it was made of. Exits with 1 if there is no such task."""
    show_task(target, task_id, as_json=as_json)


def read_tasks(
    target: Target, reaction_id: str, status: TaskStatus | None, limit: int
) -> list[Task]:
    return ask(target, lambda client: client.list_tasks(reaction_id, status=status, limit=limit))


def print_tasks(found: Iterable[Task], *, as_json: bool) -> None:
    with quiet_on_broken_pipe():
        if as_json:
            for task in found:
                print_json(task_record(task))
            return
        rows = [
            (task.task_id, _status(task), str(task.attempts), _standing(task), task.entry.subject,
             abridged(task.last_error, 60))
            for task in found
        ]  # fmt: skip
        print_table(("TASK", "STATUS", "ATTEMPTS", "SINCE", "SUBJECT", "LAST ERROR"), rows)


def show_task(target: Target, task_id: str, *, as_json: bool) -> None:
    task = ask(target, lambda client: client.get_task(task_id))
    if task is None:
        raise NotFound(f"no task {task_id}")
    if as_json:
        print_json(task_record(task))
        return
    entry = task.entry
    said = {
        "task": task.task_id,
        "status": f"{_status(task)}, {_standing(task)}",
        "attempts": str(task.attempts),
        "last error": task.last_error,
        "created": date_time(task.created_at_ms),
        "subject": entry.subject,
        "global_seq": str(entry.global_seq),
        "event": entry.event_id,
        "run": entry.run_id,
        "trace": entry.trace_id,
        "payload": entry.payload_json,
    }
    for name, text in said.items():
        if text:
            say(f"{name:10}  {text}")
    say_traceback(task.last_traceback)


def _status(task: Task) -> str:
    return TaskStatus(task.status).name.lower()


def _standing(task: Task) -> str:
    """Since when it is as it is; of one that is claimed also by whom."""
    now = time.time_ns() // 1_000_000
    if task.status == TaskStatus.CLAIMED:
        return held_for(task)
    if task.status != TaskStatus.PENDING:
        return date_time(task.completed_at_ms)
    if task.next_attempt_at_ms > now:
        return f"due in {span(task.next_attempt_at_ms - now)}"
    return f"waiting {span(now - max(task.created_at_ms, task.next_attempt_at_ms))}"
