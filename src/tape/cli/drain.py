"""`tape drain`: one drainer, now: what there is, or what comes as well."""

import asyncio
import contextlib
import time

import click

from tape.cli.command_tree import ExampleCommand
from tape.cli.error_text import quiet_on_broken_pipe
from tape.cli.output import print_json, say
from tape.cli.records import report_record
from tape.cli.target import Target, connect, target_options
from tape.client import AsyncTapeClient
from tape.model.drainer import DrainReport
from tape.model.event_subscription import DEFAULT_DRAINER
from tape.model.subjects import drainer_resumed, drainer_skipped
from tape.programs.event_loop import stopping_on_signals
from tape.settings import DrainerSettings

EVENTS = "/tape/event/recorded/**"
LOCKED_S = 1.0


@click.command(cls=ExampleCommand, example="tape drain workflow_runner --follow")
@click.argument("drainer", default=DEFAULT_DRAINER, metavar="[DRAINER]")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Take at most N events in one pass."
)
@click.option(
    "--await",
    "await_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Wait at most so long for a run to end.",
)
@click.option("--follow", is_flag=True, help="Continue with new events until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per pass.")
@target_options
@click.pass_obj
def drain(
    target: Target, *, drainer: str, limit: int | None, await_s: float | None, follow: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Dispatch the events that DRAINER has not passed, in order. The default is workflow_runner.

    Exits with 1 if a failure halts it. A server drains by itself: use this command if no server
    runs, or to drain at once. Workers drive the runs that it starts.
    """

    async def passes() -> DrainReport:
        stop = asyncio.Event()
        with stopping_on_signals(stop):
            async with connect(target) as client:
                while True:
                    report = await client.drain(drainer, limit=limit or 0, await_s=await_s)
                    _print_report(report, as_json=as_json, quietly=follow)
                    if report.more and not stop.is_set():
                        continue
                    if not follow or await _stopped(stop, client, report, target):
                        return report

    with quiet_on_broken_pipe():
        report = asyncio.run(passes())
        if report.halted_on_event_id:
            raise click.ClickException(
                f"drainer {drainer} is halted at event {report.halted_on_event_id}: {report.error}"
            )


async def _stopped(
    stop: asyncio.Event, client: AsyncTapeClient, report: DrainReport, target: Target
) -> bool:
    """Wait for something to do; whether it is to end instead."""
    if report.halted_on_event_id:
        waiting = asyncio.create_task(_retry(client, report, target.settings.drainers))
    elif report.skipped_due_to_lock:
        waiting = asyncio.create_task(asyncio.sleep(LOCKED_S))
    elif report.waiting_on_run_id:
        return stop.is_set()
    else:
        waiting = asyncio.create_task(_event_after(client, report.last_global_seq))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (waiting, stopping):
            task.cancel()
        await asyncio.gather(waiting, stopping, return_exceptions=True)
    return stop.is_set()


async def _retry(client: AsyncTapeClient, report: DrainReport, settings: DrainerSettings) -> None:
    """Wait as a server does, whose clock may be another, or until somebody has resumed it."""
    left_s = report.next_try_at_ms / 1000 - time.time()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(
            min(max(left_s, 0.0), max(settings.retry_s, settings.retry_most_s))
        ):
            await _resumed(client, report)


async def _resumed(client: AsyncTapeClient, report: DrainReport) -> None:
    """Wait until the drainer is not halted there any more."""
    drainer_id = report.drainer_id
    head = (await client.info()).head_global_seq
    for state in await client.drainers():
        drainer = state.drainer
        if drainer.drainer_id == drainer_id and (
            drainer.halted_on_event_id != report.halted_on_event_id
        ):
            return
    own = {drainer_resumed(drainer_id), drainer_skipped(drainer_id)}
    pattern = drainer_resumed(drainer_id).replace("/resumed/", "/*/", 1)
    async with client.follow(pattern, after=head) as entries:
        async for entry in entries:
            if entry.subject in own:
                return


async def _event_after(client: AsyncTapeClient, global_seq: int) -> None:
    async with client.follow(EVENTS, after=global_seq) as events:
        async for _event in events:
            return


def _print_report(report: DrainReport, *, as_json: bool, quietly: bool) -> None:
    if as_json:
        print_json(report_record(report))
        return
    if report.skipped_due_to_lock:
        say(f"{report.drainer_id}: another process is draining it")
    elif report.waiting_on_run_id:
        say(f"{_done(report)}; waiting for run {report.waiting_on_run_id}")
    elif report.halted_on_event_id and quietly:
        say(f"{_done(report)}; halted at event {report.halted_on_event_id}: {report.error}")
    elif report.processed or not quietly:
        say(_done(report))


def _done(report: DrainReport) -> str:
    events = f"{report.processed} event{'' if report.processed == 1 else 's'} passed"
    runs = f"{report.dispatched} run{'' if report.dispatched == 1 else 's'}"
    return f"{report.drainer_id}: {events}, dispatched to {runs}"
