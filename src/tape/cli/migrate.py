"""`tape migrate`: bring a store up to date, or say how far it is."""

import asyncio

import click

from tape.cli.output import notes, print_json, print_table, say
from tape.cli.target import Target, target_options, telling_of_creation
from tape.stores.by_url import Step, display, inspect_store, upgrade_store
from tape.stores.migrations import Upgraded


@click.command()
@click.option("--status", is_flag=True, help="Only say what is applied and what is not.")
@click.option(
    "--post",
    is_flag=True,
    help="Also the steps that remove what only older versions need. Run it when no "
    "older version is left.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@target_options
@click.pass_obj
def migrate(target: Target, status: bool, post: bool, as_json: bool) -> None:
    """Apply what the store still needs, and create it if it is not there; mend sequences that are
    behind.

    A server and an embedded client apply the safe steps themselves when they start.
    """
    url, settings = target.store_to_open(changes=post), target.settings
    done = Upgraded([], [])
    if not status:
        with telling_of_creation():
            done = asyncio.run(upgrade_store(url, settings, with_post=post))
    steps = asyncio.run(inspect_store(url, settings)).steps
    if not any(step.applied for step in steps):
        notes().print(f"no store at {display(url)} yet: tape migrate creates it")
    if as_json:
        for step in steps:
            print_json(step._asdict())
        return
    if status:
        rows = [(f"{s.number:04d}", s.phase, s.name, _state(s)) for s in steps]
        print_table(("NUMBER", "PHASE", "NAME", "STATE"), rows)
        return
    did = [f"applied {', '.join(done.applied)}"] if done.applied else []
    did += [f"mended {each.name}: {each.given} to {each.used}" for each in done.mended]
    say(f"{display(url)}: {'; '.join(did) or 'is up to date'}")


def _state(step: Step) -> str:
    if not step.known:
        return "applied by a newer version"
    if step.applied:
        return "applied"
    return "waits for tape migrate --post" if step.phase == "post" else "not applied"
