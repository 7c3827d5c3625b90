"""`tape worker`: does the work of the reactions and apps that modules declare."""

from dataclasses import replace
from typing import Any

import click

from tape.cli.command_tree import ExampleCommand
from tape.cli.health_option import health_option
from tape.cli.logs import start_logging
from tape.cli.modules import load_modules
from tape.cli.output import say
from tape.cli.target import Target, announcing_created_store, target_options
from tape.model.reaction import HandlerKind
from tape.model.run import DEFAULT_POOL
from tape.model.task import ANY_SHARD
from tape.programs.heap import set_heap_aside
from tape.programs.worker import Ready, WorkerOptions, run_worker
from tape.settings import DispatcherSettings, Settings

_DEFAULTS = DispatcherSettings()


@click.command(
    cls=ExampleCommand,
    example="""\
tape worker -m shop.reactions -m shop.apps
tape worker -m shop.apps --pool gpu --concurrency 4
tape worker --listen iot --url tapes://tape.example.com:7878 --health 0.0.0.0:8080""",
)
@click.option(
    "-m",
    "--module",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Import this module, which declares reactions or apps. Repeatable.",
)
@click.option(
    "--reaction",
    "reaction_ids",
    multiple=True,
    metavar="ID",
    help="Handle only tasks of this reaction. Repeatable.",
)
@click.option(
    "--shard",
    type=click.IntRange(min=0),
    metavar="N",
    help="Handle only this shard of each reaction; by default all.",
)
@click.option(
    "--bridge",
    default="",
    metavar="TARGET",
    help="Publish tasks to this target instead of calling handlers.",
)
@click.option(
    "--pool",
    default=DEFAULT_POOL,
    show_default=True,
    metavar="NAME",
    help="Drive runs of this pool.",
)
@click.option(
    "--listen",
    default="",
    metavar="POOL",
    help="Also listen for subscriptions whose `runtime.pool` is this.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    show_default=str(_DEFAULTS.concurrency),
    metavar="N",
    help="Handle at most N tasks at once.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    show_default=str(_DEFAULTS.threads),
    metavar="N",
    help="Run handlers that are not async on N threads.",
)
@click.option(
    "--lease",
    "lease_s",
    type=click.FloatRange(min=0.1),
    show_default=str(_DEFAULTS.lease_s),
    metavar="SECONDS",
    help="Let another worker take over the tasks of a lost worker after so long.",
)
@click.option(
    "--grace",
    "grace_s",
    type=click.FloatRange(min=0),
    show_default=str(_DEFAULTS.grace_s),
    metavar="SECONDS",
    help="Wait so long for handlers to finish when stopping.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve /metrics, /healthz and /readyz on this machine; port 0 picks a free one.",
)
@health_option
@target_options
@click.pass_obj
def worker(
    target: Target, *, modules: tuple[str, ...], reaction_ids: tuple[str, ...],
    shard: int | None, bridge: str, pool: str, listen: str,
    concurrency: int | None, threads: int | None, lease_s: float | None, grace_s: float | None,
    http: str | None, health: str | None,
) -> None:  # fmt: skip
    """Handle tasks of reactions and drive runs of apps, until SIGTERM or Ctrl-C.

    Registers what the modules declare. When it is ready, it prints a line for each reaction and
    each app that it serves. With --listen it also makes runs of the messages of subscriptions; then
    it needs no module. When it is asked to stop, it finishes what it has begun. With --store it
    needs no server; a store that does not exist is created.
    """
    start_logging(verbose=target.verbose)
    if not modules and not bridge and not listen:
        raise click.UsageError(
            "give a module that declares reactions or apps with -m, a target with --bridge, or a "
            "pool with --listen"
        )
    if not pool:
        raise click.UsageError("--pool is empty")
    settings = _with_options(
        target.settings, concurrency=concurrency, threads=threads, lease_s=lease_s, grace_s=grace_s
    )
    load_modules(modules)
    options = WorkerOptions(
        url=target.address,
        settings=settings,
        bridge=bridge,
        reaction_ids=reaction_ids,
        shard=ANY_SHARD if shard is None else shard,
        pool=pool,
        listen=listen,
        http_address=http,
        health_address=health,
    )
    with announcing_created_store():
        run_worker(options, on_ready=lambda ready: _announce(ready, pool))


def _with_options(settings: Settings, **typed: Any) -> Settings:
    """What was typed counts more than the settings file."""
    given = {name: value for name, value in typed.items() if value is not None}
    return replace(settings, dispatcher=replace(settings.dispatcher, **given))


def _announce(ready: Ready, pool: str) -> None:
    set_heap_aside()
    for reaction in ready.reactions:
        kind = HandlerKind(reaction.handler_kind).name.lower()
        say(f"{kind} {reaction.reaction_id} {reaction.subject_pattern}")
    for app in ready.apps:
        version = f" version {app.version}" if app.version else ""
        say(f"app {app.name}{version} in pool {pool}")
    if ready.http is not None:
        say(f"http {ready.http}")
    if ready.health is not None:
        say(f"health {ready.health}")
