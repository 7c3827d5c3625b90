"""Runs the checks and prints what they found."""

import asyncio

import click
from rich.table import Table
from rich.text import Text

from tape.bus import Operations
from tape.cli.command_tree import ExampleCommand
from tape.cli.doctor.finding import Finding, Verdict, fail, ok, warn
from tape.cli.doctor.installation import check_installation
from tape.cli.doctor.store import check_store
from tape.cli.doctor.work import check_work
from tape.cli.output import console, print_json, printable, say
from tape.cli.target import Target, json_option, target_options
from tape.errors import TapeError
from tape.programs.connect import default_token, open_operations
from tape.settings import Settings
from tape.stores.by_url import display

SERVER_S = 10
_STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


@click.command(cls=ExampleCommand, example="tape doctor --store sqlite:desk.db")
@json_option
@target_options
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check this installation, the store, and the server if one is given.

    Changes nothing. Exits with 1 if a check fails.
    """
    target = ctx.ensure_object(Target)
    findings = [*check_installation(), *asyncio.run(_checks(target))]
    if as_json:
        for finding in findings:
            print_json(finding._asdict())
    else:
        _print(findings)
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        ctx.exit(1)


async def _checks(target: Target) -> list[Finding]:
    """A server's store is the server's business; ours is looked at unless a server is named."""
    found = []
    if target.store or not target.server_url:
        found += await check_store(target.store_url, target.settings)
    if target.server_url:
        found += await _server(target.server_url, target.settings)
    return found


async def _server(url: str, settings: Settings) -> list[Finding]:
    advice = "is tape serve running there, and TAPE_TOKEN right?"
    try:
        async with asyncio.timeout(SERVER_S):
            operations = await open_operations(url, default_token(), settings)
            try:
                info = await operations.info()
                work = await _work(operations)
            finally:
                await operations.close()
    except TapeError as error:
        return [fail("server", str(error), advice)]
    except TimeoutError:
        return [fail("server", f"{display(url)} did not answer within {SERVER_S} s", advice)]
    found = f"{display(url)} on {info.store}, newest entry {info.head_global_seq}"
    return [ok("server", found), *work]


async def _work(operations: Operations) -> list[Finding]:
    try:
        return await check_work(operations)
    except TapeError as error:  # such as a server that is older than this command
        return [warn("work", str(error), "is the server older than this command? Upgrade it")]


def _print(findings: list[Finding]) -> None:
    if not console().is_terminal:
        _print_lines(findings)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        verdict = Text(finding.verdict.value, style=_STYLES[finding.verdict])
        text = Text(printable(finding.found))
        if finding.advice:
            text.append(f"\n→ {printable(finding.advice)}", style="bold")
        table.add_row(verdict, finding.check, text)
    console().print(table)
    say(_summary(findings))


def _print_lines(findings: list[Finding]) -> None:
    """A line for each, however long: somebody searches in them."""
    wide = max(len(finding.check) for finding in findings)
    verdict = max(len(finding.verdict.value) for finding in findings)
    for finding in findings:
        advice = f" → {finding.advice}" if finding.advice else ""
        say(f"{finding.verdict.value:{verdict}}  {finding.check:{wide}}  {finding.found}{advice}")
    say(_summary(findings))


def _summary(findings: list[Finding]) -> str:
    counts = {v: sum(f.verdict is v for f in findings) for v in Verdict}
    return f"{counts[Verdict.FAIL]} failed, {counts[Verdict.WARN]} to look at"
