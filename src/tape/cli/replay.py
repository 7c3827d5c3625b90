"""`tape replay`: what an app's code does with the journal of a run; nothing is done or written."""

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from tape.cli.command_tree import ExampleCommand
from tape.cli.modules import load_modules
from tape.cli.output import print_json, say
from tape.cli.target import Target, connect, target_options
from tape.errors import Diverged, InvalidArgument, NotFound
from tape.model.entry import Entry
from tape.model.run import Run
from tape.reactions.threads import HandlerThreads
from tape.runs.declare import DECLARED_APPS, App
from tape.runs.looking.offline import ReplayVerdict, replay_offline


@click.command(cls=ExampleCommand, example="tape replay RUN -m shop.apps")
@click.argument("run_id", metavar="RUN")
@click.option(
    "-m",
    "--module",
    "modules",
    multiple=True,
    required=True,
    metavar="MODULE",
    help="Import this module, which declares the app of the run. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@target_options
@click.pass_obj
def replay(target: Target, run_id: str, modules: tuple[str, ...], as_json: bool) -> None:
    """Replay a run from its journal with the code of its app, offline.

    Writes nothing and calls no effect, sampled function or decision. Exits with 1 if the code does
    something other than the journal records.
    """
    load_modules(modules)

    async def read() -> tuple[Run, Sequence[Entry]]:
        async with connect(target) as client:
            run = await client.get_run(run_id)
            if run is None:
                raise NotFound(f"no run has the id {run_id!r}")
            return run, await client.read_run(run_id)

    run, entries = asyncio.run(read())
    app = _declared(run)
    replayed = asyncio.run(replay_offline(run, app, entries, HandlerThreads(1)))
    if as_json:
        names = {"run_id": run_id, "app": app.name, "version": app.version}
        print_json(names | replayed._asdict())
    if replayed.verdict is ReplayVerdict.DIVERGED:
        raise Diverged(replayed.text)
    if not as_json:
        say(replayed.text)


def _declared(run: Run) -> App[Any]:
    app = DECLARED_APPS.apps.get(run.app_name)
    if app is None:
        known = ", ".join(map(repr, DECLARED_APPS.apps)) or "none"
        raise InvalidArgument(
            f"the run is of app {run.app_name!r}, and the modules declare {known}", field="--module"
        )
    return app
