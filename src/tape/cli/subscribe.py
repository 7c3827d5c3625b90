"""`tape subscribe`: one subscription in one process, from its document to its end."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tape.cli.command_tree import ExampleCommand
from tape.cli.documents import read_document
from tape.cli.health_option import health_option
from tape.cli.logs import start_logging
from tape.cli.modules import load_modules
from tape.cli.output import print_json, printable
from tape.cli.target import Target, announcing_created_store, json_option, target_options

if TYPE_CHECKING:
    from tape.programs.subscribing import SubscribeReport
    from tape.subscriptions.operations import SubscriptionView

STDOUT = "-"


@click.command(
    cls=ExampleCommand,
    example="""\
tape subscribe orders.yaml -m shop.apps --store sqlite:tape.db
tape subscribe orders.yaml -m shop.apps --once --events orders.jsonl
tape subscribe orders.yaml --url tapes://tape.example.com:7878""",
)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "-m",
    "--module",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Import this module and drive the runs of its apps here. Repeatable.",
)
@click.option(
    "--events",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="Append each entry of the subscription and its runs to this file, as JSON; - is stdout.",
)
@click.option(
    "--once",
    is_flag=True,
    help="End when the source is empty and the runs that are driven here have ended.",
)
@health_option
@json_option
@target_options
@click.pass_obj
def subscribe(
    target: Target, *, file: Path, modules: tuple[str, ...], events: str | None, once: bool,
    health: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Register the document in FILE, listen for its subscription alone, and drive its runs.

    FILE is YAML or JSON; - is standard input. Works until SIGTERM or Ctrl-C: then what is in hand
    is finished, and the subscription is deactivated. With --once exits with 1 if a message became a
    dead letter or a run failed. With --url messages are handed over to a server, and credentials
    are opened with the key of this process. Without -m no run is driven here.
    """
    from tape.programs.file_sink import FileSink
    from tape.programs.heap import set_heap_aside
    from tape.programs.subscribing import SubscribeOptions, run_subscribe
    from tape.programs.worker import WorkerOptions

    start_logging(verbose=target.verbose)
    document = read_document(file)
    load_modules(modules)
    options = SubscribeOptions(
        document,
        WorkerOptions(url=target.address, settings=target.settings),
        drives_runs=bool(modules),
        once=once,
        events=FileSink(events) if events else None,
        health_address=health,
    )
    is_aside = as_json or events == STDOUT

    def tell(text: str, *, aside: bool = True) -> None:
        click.echo(printable(text), err=aside)

    def announce(view: "SubscriptionView") -> None:
        set_heap_aside()
        row = view.subscription
        tell(f"listening for {row.name} ({row.source}), revision {row.revision}", aside=is_aside)

    with announcing_created_store():
        report = run_subscribe(options, on_ready=announce, note=tell)
    if as_json:
        print_json(_record(report))
    else:
        tell(_summary(report), aside=is_aside)
    _check(report, once=once)


def _record(report: "SubscribeReport") -> dict[str, Any]:
    return {
        "name": report.name,
        "state": report.state,
        "revision": report.revision,
        "counts": report.counts,
        "runs": report.runs._asdict(),
        "trouble": report.trouble,
    }


def _summary(report: "SubscribeReport") -> str:
    if not report.state:
        return f"{report.name}: stopped before it was listened for"
    counts, runs = report.counts, report.runs
    facts = [f"{counts['accepted']} accepted"]
    facts += [
        f"{counts[name]} {words}"
        for name, words in (
            ("redelivered", "redelivered"),
            ("deduplicated", "deduplicated"),
            ("dead_lettered", "dead lettered"),
        )
        if counts[name]
    ]
    if runs.ended:
        facts.append(f"{runs.ended} run{'' if runs.ended == 1 else 's'} ended")
    if runs.failed:
        facts.append(f"{runs.failed} failed")
    return f"{report.name} is {report.state}: {', '.join(facts)}"


def _check(report: "SubscribeReport", *, once: bool) -> None:
    """Exit with 1 if it ended in trouble, or if what was to be done once was not done well."""
    faults = [report.trouble] if report.trouble else []
    if once and (dead := report.counts.get("dead_lettered", 0)):
        letters = "dead letter" if dead == 1 else "dead letters"
        faults.append(f"{dead} {letters}; `tape dlq list --subscription {report.name}` shows why")
    if once and report.runs.failed:
        runs = "run has" if report.runs.failed == 1 else "runs have"
        named = ", ".join(report.failed_runs)
        faults.append(f"{report.runs.failed} {runs} failed: {named}; `tape runs show ID` shows why")
    if faults:
        raise click.ClickException("; ".join(faults))
