"""`tape migrate`: bring a store up to date, or say how far it is."""

import asyncio

import click

from tape.cli.command_tree import ExampleCommand
from tape.cli.output import notes, print_json, print_table, say
from tape.cli.target import Target, announcing_created_store, json_option, target_options
from tape.stores.by_url import MigrationStep, display, inspect_store, upgrade_store
from tape.stores.migrations import Upgraded


@click.command(cls=ExampleCommand, example="tape migrate --status --store sqlite:desk.db")
@click.option("--status", is_flag=True, help="Only list which steps are applied.")
@click.option(
    "--post",
    is_flag=True,
    help="Also apply the steps that remove what only older versions need. Use it when no process "
    "runs an older version any more.",
)
@json_option
@target_options
@click.pass_obj
def migrate(target: Target, status: bool, post: bool, as_json: bool) -> None:
    """Create a store, or apply the migrations that it lacks; repair sequences that are behind.

    Servers and embedded clients apply the safe steps themselves when they start.
    """
    url, settings = target.store_to_open(changes=post), target.settings
    done = Upgraded([], [])
    if not status:
        with announcing_created_store():
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


def _state(step: MigrationStep) -> str:
    if not step.known:
        return "applied by a newer version"
    if step.applied:
        return "applied"
    return "waits for tape migrate --post" if step.phase == "post" else "not applied"
