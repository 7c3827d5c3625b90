"""`tape show`: one entry, what led to it and what it led to."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import click

from tape.chains import Chain, read_chain, read_tasks
from tape.cli.command_tree import ExampleCommand
from tape.cli.output import abridged, exact_time, print_json, say
from tape.cli.records import run_record, task_record
from tape.cli.run_view import app_words
from tape.cli.target import Target, operations, target_options
from tape.model.entry import Entry
from tape.model.entry_json import entry_record
from tape.model.run import SHOWN_WORDS
from tape.model.task import Task, TaskStatus

CUT = 100  # characters of another entry's payload


@click.command(cls=ExampleCommand, example="tape show 42")
@click.argument("global_seq", type=click.IntRange(min=1), metavar="N")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@target_options
@click.pass_obj
def show(target: Target, global_seq: int, as_json: bool) -> None:
    """Show entry N: its fields, what caused it, and the events, tasks and runs that it caused.

    N is the number that `tape tail` and `tape record` print. Exits with 1 if the journal has no
    such entry. It searches for causes and effects, by `caused_by`, in the 50,000 entries nearby.
    """

    async def read() -> tuple[Chain, list[Task]]:
        async with operations(target) as opened:
            chain = await read_chain(opened, global_seq, opened.settings.limits)
            return chain, await read_tasks(opened, chain.entry)

    chain, tasks = asyncio.run(read())
    if as_json:
        print_json(_record(chain, tasks))
        return
    for name, text in _lines(chain, tasks):
        say(f"{name:15}  {text}".rstrip())
    if not chain.is_complete:
        say("There may be more: only entries near this one were searched.")


def _record(chain: Chain, tasks: Sequence[Task]) -> dict[str, Any]:
    return entry_record(chain.entry) | {
        "causes": [entry_record(entry) for entry in chain.causes],
        "effects": [entry_record(entry) for entry in chain.effects],
        "trace": [entry_record(entry) for entry in chain.trace],
        "tasks": [task_record(task) for task in tasks],
        "runs": [run_record(run) for run in chain.runs],
        "complete": chain.is_complete,
    }


def _lines(chain: Chain, tasks: Sequence[Task]) -> Iterator[tuple[str, str]]:
    entry = chain.entry
    yield "entry", str(entry.global_seq)
    yield "recorded", exact_time(entry.ts_ms)
    for name, field in entry._asdict().items():
        if name not in _SAID_OTHERWISE and field:
            yield name, str(field)
    if entry.occurred_at_ms and entry.occurred_at_ms != entry.ts_ms:
        yield "occurred", exact_time(entry.occurred_at_ms)
    yield "payload", entry.payload_json
    for cause in chain.causes:
        yield "caused by", _words(cause)
    for effect in chain.effects:
        yield "caused", _words(effect)
    for task in tasks:
        error = f": {abridged(task.last_error, CUT)}" if task.last_error else ""
        yield "task", f"{task.task_id} {TaskStatus(task.status).name.lower()}{error}"
    for run in chain.runs:
        yield "run", f"{run.run_id} {app_words(run)}: {SHOWN_WORDS[run.status]}"


_SAID_OTHERWISE = frozenset({"global_seq", "ts_ms", "payload_json", "occurred_at_ms"})


def _words(entry: Entry) -> str:
    return f"{entry.global_seq} {entry.subject} {abridged(entry.payload_json, CUT)}"
