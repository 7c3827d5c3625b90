"""`tape runs`: list and show durable runs, start, signal, cancel and resume them."""

import asyncio
import time
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

import click
from rich.text import Text

from tape.cli.command_tree import CommandGroup
from tape.cli.error_text import quiet_on_broken_pipe
from tape.cli.json_input import read_json
from tape.cli.near_ids import note_if_unknown
from tape.cli.output import (
    abridged,
    console,
    date_time,
    notes,
    print_json,
    print_table,
    printable,
    say,
    say_traceback,
)
from tape.cli.records import run_record
from tape.cli.run_view import (
    STATUS_STYLES,
    RunWithJournal,
    app_words,
    children_of,
    lease_words,
    lifetime,
    line_record,
    outcome_words,
    print_head,
    print_line,
    seen_record,
    traceback_of_run,
)
from tape.cli.target import Target, ask, connect, json_option, target_options
from tape.client import AsyncTapeClient
from tape.errors import EffectFailed, NotFound, Pruned, RunCancelled, RunEnded
from tape.model.run import DEFAULT_POOL, SHOWN_WORDS, STATUS_WORDS, Run, RunStatus
from tape.runs.looking.timeline import Timeline, timeline
from tape.runs.operations import WAITING_MS

F = TypeVar("F", bound=Callable[..., Any])

_FULL = click.option("--full", is_flag=True, help="Print long payloads in full.")
LOOKED_THROUGH = 100
_ENDS = tuple(f"run {status}" for status in ("terminal", "failed", "cancelled", "stuck"))


class _Status(click.Choice[str]):
    """The words that people see. That of the wire for a run that is done does as well."""

    def __init__(self) -> None:
        super().__init__(list(SHOWN_WORDS.values()))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        done = RunStatus.TERMINAL
        return super().convert(
            SHOWN_WORDS[done] if value == STATUS_WORDS[done] else value, param, ctx
        )


def _list_options(command: F) -> F:
    for option in (
        json_option,
        click.option("--after", default="", metavar="RUN", help="Continue after this run."),
        click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True,
                     metavar="N", help="List at most N runs."),
        click.option("--subscription", default="", metavar="NAME",
                     help="Only runs of messages of this subscription, and their children."),
        click.option("--pool", default="", metavar="NAME", help="Only runs of this pool."),
        click.option("--app", default="", metavar="NAME", help="Only runs of this app."),
        click.option("--status", type=_Status(), help="Only runs with this status."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.group(cls=CommandGroup, invoke_without_command=True)
@_list_options
@target_options
@click.pass_context
def runs(ctx: click.Context, /, **options: Any) -> None:
    """List and show runs of apps; start, signal, cancel and resume them.

    Without a command it lists them, like `tape runs list`.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_runs, **options)
        return
    for name in options:
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = "--json" if name == "as_json" else f"--{name}"
            raise click.UsageError(f"{option} comes after {ctx.invoked_subcommand}", ctx)


@runs.command("list", example="tape runs list --status stuck --app checkout")
@_list_options
@target_options
@click.pass_context
def list_runs(
    ctx: click.Context, *, status: str | None, app: str, pool: str, subscription: str, limit: int,
    after: str, as_json: bool,
) -> None:  # fmt: skip
    """List runs, newest first."""
    target = ctx.ensure_object(Target)
    found = ask(
        target,
        lambda client: client.list_runs(
            status=status or "",
            app_name=app,
            pool=pool,
            subscription=subscription,
            limit=limit,
            after=after,
        ),
    )
    with quiet_on_broken_pipe():
        if as_json:
            for run in found:
                print_json(run_record(run))
            return
        rows = [
            (run.run_id, _app(run), SHOWN_WORDS[run.status], date_time(run.started_at_ms),
             lifetime(run), abridged(_about(run), 60))
            for run in found
        ]  # fmt: skip
        styles = [STATUS_STYLES.get(RunStatus(run.status), "") for run in found]
        columns = "RUN", "APP", "STATUS", "STARTED", "TOOK", "ABOUT"
        print_table(columns, rows, styles=styles, whole=("RUN", "STATUS"))
    if any(_waits_long(run) for run in found):
        notes().print("note: `tape runs waiting` lists what waits for which worker", style="dim")
    if len(found) == limit:
        notes().print(f"note: continue the list with --after {found[-1].run_id}", style="dim")
    if not found:
        note_if_unknown(ctx, "subscription" if subscription else "app", "pool")


def _waits_long(run: Run) -> bool:
    now_ms = time.time_ns() // 1_000_000
    return run.status == RunStatus.RUNNABLE and now_ms - run.started_at_ms > WAITING_MS


def _app(run: Run) -> str:
    return run.app_name if run.pool == DEFAULT_POOL else f"{run.app_name} in {run.pool}"


def _about(run: Run) -> str:
    if run.lease_owner:
        return lease_words(run)
    if run.status == RunStatus.RUNNABLE:
        return f"waits for a worker with {run.app_name} in pool {run.pool}"
    return run.waiting_on or outcome_words(run)


@runs.command(example="tape runs waiting --longer-than 60")
@click.option(
    "--longer-than",
    "older_than_s",
    type=click.FloatRange(min=0, max=10**9),
    default=WAITING_MS / 1000,
    show_default=True,
    metavar="SECONDS",
    help="Only runs that have waited longer than this.",
)
@json_option
@target_options
@click.pass_obj
def waiting(target: Target, older_than_s: float, as_json: bool) -> None:
    """List apps and pools whose runs wait for a worker, longest wait first.

    RUNNING counts the runs of the same app and pool that a worker drives now. If it is 0, perhaps
    no worker serves that app in that pool.
    """
    groups = ask(target, lambda client: client.waiting_runs(older_than_s))
    with quiet_on_broken_pipe():
        if as_json:
            for group in groups:
                print_json(group._asdict())
            return
        rows = [
            (group.app_name, group.pool, str(group.waiting), str(group.running),
             date_time(group.since_ms), group.run_id)
            for group in groups
        ]  # fmt: skip
        columns = "APP", "POOL", "WAITING", "RUNNING", "SINCE", "FIRST"
        print_table(columns, rows, whole=("FIRST",))


@runs.command(example="tape runs show RUN --full")
@click.argument("run_id", metavar="RUN")
@_FULL
@json_option
@target_options
@click.pass_obj
def show(target: Target, run_id: str, full: bool, as_json: bool) -> None:
    """Show the status of a run and what happened in it. Exits with 1 if there is no such run."""

    async def read() -> RunWithJournal:
        async with connect(target) as client:
            run = await _found(client, run_id)
            try:
                entries = await client.read_run(run_id)
            except Pruned as gone:
                notes().print(Text(printable(f"note: {gone}"), style="dim"))
                entries = []
            children = [await client.get_run(child) for child in children_of(entries)]
            return RunWithJournal(run, entries, [child for child in children if child is not None])

    seen = asyncio.run(read())
    if as_json:
        print_json(seen_record(seen))
        return
    out = console()
    with quiet_on_broken_pipe():
        print_head(out, seen, full=full)
        say("")
        lines = timeline(seen.entries)
        for line in lines:
            print_line(out, line, full=full)
        traceback = traceback_of_run(seen.run, seen.entries)
        if not full or all(line.traceback != traceback for line in lines):
            say_traceback(traceback)


@runs.command(example="tape runs tail RUN")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    metavar="SEQ",
    help="Show lines with a greater number; by default all.",
)
@_FULL
@json_option
@target_options
@click.pass_obj
def tail(target: Target, *, run_id: str, after: int, full: bool, as_json: bool) -> None:
    """Show what happened in a run, and go on until the run ends. Stop it with Ctrl-C."""
    out = console()

    async def follow() -> None:
        shown = Timeline()
        async with connect(target) as client:
            run = await _found(client, run_id)
            async with client.follow_run(run_id) as entries:
                async for entry in entries:
                    line = shown.add(entry)
                    if entry.seq > after and as_json:
                        print_json(line_record(line))
                    elif entry.seq > after:
                        print_line(out, line, full=full)
                    if line.what in _ENDS:
                        run = await _found(client, run_id)
                    if run.ended_at_ms and entry.seq >= run.seq_cursor:
                        return

    with quiet_on_broken_pipe():
        try:
            asyncio.run(follow())
        except KeyboardInterrupt:
            return


@runs.command(example="""tape runs start checkout --input '{"order": 7}' --wait""")
@click.argument("app", metavar="APP")
@click.option("--input", "json_text", metavar="JSON|@FILE|-", help="Give this input to the app.")
@click.option("--pool", default="", metavar="NAME", help="Let workers of this pool drive the run.")
@click.option("--user", default="", metavar="ID", help="Start the run for this user.")
@click.option("--session", default="", metavar="ID", help="Start the run in this session.")
@click.option(
    "--invocation",
    default="",
    metavar="ID",
    help="Name the run: a repeat with the same ID finds the same run and starts no other.",
)
@click.option(
    "--dedup-key",
    metavar="KEY",
    help="Start one run of APP for each KEY: a repeat within --dedup-window finds that run.",
)
@click.option(
    "--dedup-window", type=float, metavar="SECONDS", help="Remember KEY for so long, up to 31 days."
)
@click.option(
    "--traceparent", metavar="TEXT", help="Let the run join the trace of this W3C traceparent."
)
@click.option("--wait", is_flag=True, help="Wait until the run ends, and print its result.")
@json_option
@target_options
@click.pass_obj
def start(
    target: Target, *, app: str, json_text: str | None, pool: str, user: str, session: str,
    invocation: str, dedup_key: str | None, dedup_window: float | None, traceparent: str | None,
    wait: bool, as_json: bool,
) -> None:  # fmt: skip
    """Start a run of APP. A worker of its pool drives it.

    With --wait it exits with 1 unless the run succeeds.
    """
    if (dedup_key is None) != (dedup_window is None):
        raise click.UsageError("--dedup-key and --dedup-window go together")
    payload = None if json_text is None else read_json(target, json_text, field="input")
    dedup = None if dedup_key is None or dedup_window is None else (dedup_key, dedup_window)

    async def begin() -> tuple[Run, Exception | None]:
        async with connect(target) as client:
            run = await client.start_run(
                app,
                payload,
                pool=pool,
                user_id=user,
                session_id=session,
                invocation_id=invocation,
                dedup=dedup,
                trace=None if traceparent is None else {"traceparent": traceparent},
            )
            if run.status == RunStatus.RUNNABLE and not await _was_ever_taken(client, run.app_name):
                taking = f"no worker has taken a run of {run.app_name} yet"
                where = f"it waits for a worker with that app in pool {run.pool}"
                meant = await _app_meant(client, run)
                notes().print(printable(f"note: {taking}: {where}{meant}"), style="dim")
            if not wait:
                return run, None
            notes().print(f"note: waiting for the end of run {run.run_id}", style="dim")
            failure = None
            try:
                await client.run_result(run.run_id)
            except (EffectFailed, RunCancelled) as error:
                failure = error
            return await _found(client, run.run_id), failure

    run, failure = asyncio.run(begin())
    if as_json:
        print_json(run_record(run))
    elif not wait:
        say(f"{run.run_id} is {SHOWN_WORDS[run.status]}: {app_words(run)}")
    elif failure is None:
        say(run.outcome_json)
    if failure is not None:
        raise failure


@runs.command(example="""tape runs signal RUN approve '{"ok": true}'""")
@click.argument("run_id", metavar="RUN")
@click.argument("gate")
@click.argument("json_text", metavar="[JSON|@FILE|-]", default="null")
@json_option
@target_options
@click.pass_obj
def signal(target: Target, run_id: str, gate: str, json_text: str, as_json: bool) -> None:
    """Open GATE of a run and pass it JSON, by default null.

    Exits with 1 if the gate is open already or the run has ended.
    """
    word = read_json(target, json_text, field="resolution")

    async def send() -> tuple[bool, Run]:
        async with connect(target) as client:
            accepted = await client.send_signal(run_id, gate, word)
            return accepted, await _found(client, run_id)

    accepted, run = asyncio.run(send())
    if as_json:
        print_json({"accepted": accepted, "run": run_record(run)})
    if not accepted and not run.may_go_on:
        raise RunEnded(f"run {run_id!r} is {SHOWN_WORDS[run.status]}")
    if not accepted:
        raise click.ClickException(
            f"gate {gate} of run {run_id!r} is open already: only the first signal counts"
        )
    if not as_json:
        say(f"gate {gate} is open: {run_id} is {SHOWN_WORDS[run.status]}")


@runs.command(example="tape runs cancel RUN --reason 'entered twice'")
@click.argument("run_id", metavar="RUN")
@click.option("--reason", default="", help="Record why.")
@json_option
@target_options
@click.pass_obj
def cancel(target: Target, run_id: str, reason: str, as_json: bool) -> None:
    """Cancel a run: its effects are compensated, then it ends. Exits with 1 if it has ended."""

    async def cancelled(client: AsyncTapeClient) -> Run:
        before = await _found(client, run_id)
        if not before.may_go_on:
            raise RunEnded(f"run {run_id!r} is {SHOWN_WORDS[before.status]}")
        return await client.cancel_run(run_id, reason)

    run = ask(target, cancelled)
    if as_json:
        print_json(run_record(run))
    elif run.is_open:
        say(f"{run_id} will be cancelled: {run.lease_owner} drives it and is told so")
    elif run.ending:
        say(f"{run_id} is {SHOWN_WORDS[run.status]}: its effects are compensated, then it ends")
    else:
        say(f"{run_id} is {SHOWN_WORDS[run.status]}")


@runs.command(example="tape runs resume RUN")
@click.argument("run_id", metavar="RUN")
@json_option
@target_options
@click.pass_obj
def resume(target: Target, run_id: str, as_json: bool) -> None:
    """Queue a stuck or waiting run for a worker again. Exits with 1 if it has ended."""
    run = ask(target, lambda client: client.resume_run(run_id))
    if as_json:
        print_json(run_record(run))
    else:
        say(f"{run_id} is {SHOWN_WORDS[run.status]}")


async def _was_ever_taken(client: AsyncTapeClient, app_name: str) -> bool:
    """Whether a worker has had one of its newest runs."""
    newest = await client.list_runs(app_name=app_name, limit=LOOKED_THROUGH)
    return any(run.fencing_token for run in newest)


async def _app_meant(client: AsyncTapeClient, begun: Run) -> str:
    """The app that a worker has, and that may have been meant."""
    newest = await client.list_runs(limit=LOOKED_THROUGH)
    taken = {run.app_name for run in newest if run.fencing_token}
    for app in get_close_matches(begun.app_name, taken, n=1):
        return f". Did you mean {app!r}? Then: tape runs cancel {begun.run_id}"
    return ""


async def _found(client: AsyncTapeClient, run_id: str) -> Run:
    run = await client.get_run(run_id)
    if run is None:
        raise NotFound(f"no run has the id {run_id!r}")
    return run
