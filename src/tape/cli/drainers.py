"""`tape drainers`: how far each has come, helping one that is halted, and what they dispatch to."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import click

from tape.cli.complaints import quiet_on_broken_pipe
from tape.cli.operators import by_option, user_name
from tape.cli.output import abridged, print_json, print_table, say, span
from tape.cli.records import drainer_record, subscription_record
from tape.cli.target import Target, connect, target_options
from tape.client import AsyncTapeClient
from tape.errors import NotFound
from tape.model.drainer import DrainerState
from tape.model.event_subscription import DEFAULT_DRAINER, EventSubscription
from tape.model.run import DEFAULT_POOL

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
ERROR_WIDTH = 200


@click.group()
@target_options
def drainers() -> None:
    """Drainers: events become runs in strict order, and a failure halts."""


@drainers.command("list")
@_JSON
@target_options
@click.pass_obj
def list_drainers(target: Target, as_json: bool) -> None:
    """List drainers with how they are doing.

    LAG is how many entries the journal is ahead, HALTED for how long; below is where and why, and
    which run a drainer waits for.
    """

    async def read() -> list[DrainerState]:
        async with connect(target) as client:
            return await client.drainers()

    states = asyncio.run(read())
    with quiet_on_broken_pipe():
        if as_json:
            for state in states:
                print_json(drainer_record(state))
            return
        columns = "DRAINER", "SUBSCRIPTIONS", "LAG", "PASSED", "DISPATCHED", "FAILED", "SKIPPED"
        halted = ["red" if state.drainer.halted_on_event_id else "" for state in states]
        print_table((*columns, "HALTED"), map(_row, states), styles=halted)
        for state in states:
            if words := held_up_words(state):
                say(words)


@drainers.command()
@click.argument("drainer")
@click.argument("event_id")
@click.option("--reason", required=True, help="Why it is not to be dispatched; it is recorded.")
@by_option
@_JSON
@target_options
@click.pass_obj
def skip(
    target: Target, *, drainer: str, event_id: str, reason: str, by: str, as_json: bool
) -> None:
    """Move DRAINER past EVENT_ID, which it is halted on or whose run it waits for.

    The run stays as it is: cancel it if it must not happen later.
    """

    async def ask(client: AsyncTapeClient) -> DrainerState:
        return await client.skip_event(drainer, event_id, reason=reason, by=by or user_name())

    _help(target, ask, f"{drainer} goes on after {event_id}", as_json=as_json)


@drainers.command()
@click.argument("drainer", default=DEFAULT_DRAINER, metavar="[DRAINER]")
@by_option
@_JSON
@target_options
@click.pass_obj
def resume(target: Target, drainer: str, by: str, as_json: bool) -> None:
    """Have a halted drainer try its event again now."""

    async def ask(client: AsyncTapeClient) -> DrainerState:
        return await client.resume_drainer(drainer, by=by or user_name())

    _help(target, ask, f"{drainer} is resumed", as_json=as_json)


@drainers.command()
@click.argument("drainer", default="", metavar="[DRAINER]")
@_JSON
@target_options
@click.pass_obj
def subscriptions(target: Target, drainer: str, as_json: bool) -> None:
    """List what events are dispatched to, by one drainer or by all."""

    async def read() -> list[EventSubscription]:
        async with connect(target) as client:
            return await client.event_subscriptions(drainer)

    rows = asyncio.run(read())
    with quiet_on_broken_pipe():
        if as_json:
            for row in rows:
                print_json(subscription_record(row))
            return
        columns = "SUBSCRIPTION", "DRAINER", "EVENTS", "WHERE", "APP", "STATE"
        print_table(columns, map(_subscription_row, rows))


@drainers.command()
@click.argument("event_type_glob", metavar="GLOB")
@click.argument("app")
@click.option("--id", "subscription_id", default="", help="By default the app and the glob.")
@click.option("--drainer", default=DEFAULT_DRAINER, show_default=True)
@click.option("--where", default="", metavar="CEL", help="Only events for which this holds.")
@click.option(
    "--input",
    "recipes",
    multiple=True,
    metavar="NAME=RECIPE",
    help="What the app is given: $.payload.x, $.entity_id or literal:text. By default the event.",
)
@click.option("--pool", default="", metavar="NAME", help="Whose workers drive its runs.")
@click.option("--begun", is_flag=True, help="Go on when the run has begun, not when it has ended.")
@click.option("--disabled", is_flag=True, help="Keep it, and dispatch nothing to it.")
@_JSON
@target_options
@click.pass_obj
def subscribe(
    target: Target, *, event_type_glob: str, app: str, subscription_id: str, drainer: str,
    where: str, recipes: tuple[str, ...], pool: str, begun: bool, disabled: bool, as_json: bool,
) -> None:  # fmt: skip
    """Have events whose type matches GLOB run APP; * is any run of characters.

    One that is there is changed, and no drainer's place.
    """
    mapper = dict(map(_recipe, recipes))
    target.inputs |= {"event_type_glob": event_type_glob, "filter_expr": where}
    target.inputs |= {f"input_mapper.{name}": recipe for name, recipe in mapper.items()}

    async def put() -> EventSubscription:
        async with connect(target) as client:
            return await client.subscribe_events(
                event_type_glob,
                app,
                subscription_id=subscription_id,
                drainer=drainer,
                where=where,
                input=mapper,
                enabled=not disabled,
                awaits_end=not begun,
                pool=pool,
            )

    made = asyncio.run(put())
    if as_json:
        print_json(subscription_record(made))
    else:
        say(f"{made.subscription_id} is subscribed: {made.event_type_glob} → {made.workflow_type}")


@drainers.command()
@click.argument("subscription_id", metavar="SUBSCRIPTION")
@target_options
@click.pass_obj
def unsubscribe(target: Target, subscription_id: str) -> None:
    """Remove a subscription; exit code 1 if there is none. The runs it has made go on."""

    async def remove() -> bool:
        async with connect(target) as client:
            return await client.unsubscribe_events(subscription_id)

    if not asyncio.run(remove()):
        raise NotFound(f"no event subscription {subscription_id}")
    say(f"{subscription_id} is unsubscribed")


def _help(
    target: Target,
    ask: Callable[[AsyncTapeClient], Awaitable[DrainerState]],
    done: str,
    *,
    as_json: bool,
) -> None:
    async def asked() -> DrainerState:
        async with connect(target) as client:
            return await ask(client)

    state = asyncio.run(asked())
    if as_json:
        print_json(drainer_record(state))
    else:
        say(done)


def _recipe(text: str) -> tuple[str, str]:
    name, equals, recipe = text.partition("=")
    if not (name and equals):
        raise click.UsageError(f"--input {text!r} is not NAME=RECIPE")
    return name, recipe


def held_up_words(state: DrainerState) -> str:
    """Why a drainer does not go on; empty if nothing holds it up."""
    drainer, now_ms = state.drainer, time.time_ns() // 1_000_000
    waits = ""
    if drainer.waiting_on_run_id:
        since = span(max(0, now_ms - drainer.waiting_since_ms))
        run = f"run {drainer.waiting_on_run_id} of app {state.waiting_on_app}"
        waits = f"has waited {since} for {run} in pool {state.waiting_on_pool}"
    if drainer.halted_on_event_id:
        failed = f"failed {state.failed_attempts} time{'s' * (state.failed_attempts != 1)}"
        again = f"tried again in {span(max(0, drainer.next_try_at_ms - now_ms))}"
        if waits:
            again = f"is tried again and {waits}"
        where = f"{drainer.drainer_id} is halted at {drainer.halted_on_event_id}, {failed}, {again}"
        return f"{where}: {abridged(drainer.last_error, ERROR_WIDTH)}"
    return f"{drainer.drainer_id} {waits}, event {drainer.waiting_on_event_id}" if waits else ""


def _row(state: DrainerState) -> tuple[str, ...]:
    drainer = state.drainer
    halted = ""
    if drainer.halted_on_event_id:
        halted = span(time.time_ns() // 1_000_000 - drainer.halted_at_ms)
    counts = (
        state.subscriptions, state.lag, drainer.events_processed_total, drainer.dispatched_total,
        drainer.failed_total, drainer.skipped_total,
    )  # fmt: skip
    return (drainer.drainer_id, *map(str, counts), halted)


def _subscription_row(row: EventSubscription) -> tuple[str, ...]:
    state = "enabled" if row.enabled else "disabled"
    if not row.awaits_end:
        state += ", begun only"
    app = row.workflow_type
    if row.pool not in ("", DEFAULT_POOL):
        app += f" in {row.pool}"
    return (
        row.subscription_id, row.drainer_id, row.event_type_glob, abridged(row.filter_expr, 60),
        app, state,
    )  # fmt: skip
