"""`tape subscriptions`: the documents that make runs of a source's messages, and their states."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from tape.cli.command_tree import CommandGroup
from tape.cli.documents import read_document
from tape.cli.error_text import quiet_on_broken_pipe
from tape.cli.output import abridged, date_time, notes, print_json, print_table, say, span
from tape.cli.target import Target, ask, connect, json_option, target_options
from tape.errors import NotFound
from tape.model.subscription import SubscriptionState, SubscriptionVerb
from tape.subscriptions.operations import SubscriptionView
from tape.subscriptions.shown import subscription_json

if TYPE_CHECKING:
    from tape.client import AsyncTapeClient

LOOK_S = 0.5
ERROR_WIDTH = 200
STATE_STYLES = {
    SubscriptionState.REGISTERED: "dim",
    SubscriptionState.PAUSED: "yellow",
    SubscriptionState.DRAINING: "yellow",
    SubscriptionState.DEACTIVATED: "dim",
}
DONE = {
    SubscriptionVerb.ACTIVATE: ("Let listeners work for a subscription.", ""),
    SubscriptionVerb.PAUSE: (
        "Fetch nothing more until the subscription is resumed.",
        "What is in hand is finished.",
    ),
    SubscriptionVerb.RESUME: ("Go on with a paused subscription.", ""),
    SubscriptionVerb.DEACTIVATE: (
        "Stop a subscription at once.",
        "What is in hand goes back to the source.",
    ),
}

_NAME = click.argument("subscription", metavar="NAME")


@click.group(cls=CommandGroup)
@target_options
def subscriptions() -> None:
    """Register, list and show subscriptions, and move them through their states.

    A subscription takes the messages of a source and makes a run of each. A document says which.
    """


@subscriptions.command(example="tape subscriptions register orders.yaml")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@json_option
@target_options
@click.pass_obj
def register(target: Target, file: Path, as_json: bool) -> None:
    """Register the document in FILE, YAML or JSON; - is standard input.

    If there is a subscription by its path, the document becomes its next revision; the same
    document again changes nothing. Exits with 2 if the document has a fault, and says in which
    field and line.
    """
    document = read_document(file)
    made = ask(target, lambda client: client.register_subscription(document))
    if as_json:
        facts = {"is_new": made.is_new, "is_changed": made.is_changed}
        print_json(subscription_json(made.view) | facts)
        return
    subscription = made.view.subscription
    name, revision = subscription.name, subscription.revision
    if made.is_new:
        say(f"{name} is registered; `tape subscriptions activate {name}` lets listeners work")
    elif made.is_changed:
        say(f"{name} is {subscription.state}, now by revision {revision}")
    else:
        say(f"{name} is {subscription.state}; revision {revision} says the same")


@subscriptions.command("list", example="tape subscriptions list")
@json_option
@target_options
@click.pass_obj
def list_subscriptions(target: Target, as_json: bool) -> None:
    """List subscriptions and what was done with their messages.

    ACCEPTED counts messages that became runs, DEAD those that could not. IN HAND counts those that
    are fetched and not yet accepted, WAITING those at the source, as far as it says. Last errors
    follow as notes on standard error.
    """
    views = ask(target, lambda client: client.subscriptions())
    with quiet_on_broken_pipe():
        if as_json:
            for view in views:
                print_json(subscription_json(view))
            return
        columns = "NAME", "STATE", "SOURCE", "REVISION", "ACCEPTED", "DEAD", "IN HAND", "WAITING"
        states = [SubscriptionState(view.subscription.state) for view in views]
        styles = [STATE_STYLES.get(state, "") for state in states]
        print_table((*columns, "LISTENER"), map(_row, views), styles=styles)
    for view in views:
        if view.listener.last_error:
            error = abridged(view.listener.last_error, ERROR_WIDTH)
            notes().print(f"note: {view.subscription.name}: {error}")


@subscriptions.command(example="tape subscriptions show orders")
@_NAME
@json_option
@target_options
@click.pass_obj
def show(target: Target, subscription: str, as_json: bool) -> None:
    """Show a subscription: its state, its counts, who listens, and its document.

    Exits with 1 if there is no such subscription.
    """
    view = ask(target, lambda client: client.subscription(subscription))
    if as_json:
        print_json(subscription_json(view))
        return
    said = _facts(view)
    width = max(map(len, said))
    for name, text in said.items():
        if text:
            say(f"{name:{width}}  {text}")
    say("")
    document = orjson.dumps(orjson.loads(view.document_json), option=orjson.OPT_INDENT_2)
    for line in document.decode().splitlines():
        say(line)


def _add_move(verb: SubscriptionVerb, summary: str, more: str) -> None:
    @subscriptions.command(verb.value, example=f"tape subscriptions {verb} orders")
    @_NAME
    @json_option
    @target_options
    @click.pass_obj
    def move(target: Target, subscription: str, as_json: bool) -> None:
        view = ask(target, lambda client: client.move_subscription(subscription, verb))
        _print_moved(view, as_json=as_json)

    move.help = f"{summary}\n\n{more}".strip()


for _verb, (_summary, _more) in DONE.items():
    _add_move(_verb, _summary, _more)


@subscriptions.command(example="tape subscriptions drain orders --wait")
@_NAME
@click.option("--wait", is_flag=True, help="Wait until it is deactivated, and show progress.")
@json_option
@target_options
@click.pass_obj
def drain(target: Target, subscription: str, wait: bool, as_json: bool) -> None:
    """Fetch nothing more, finish what is in hand, then deactivate a subscription.

    It is deactivated by itself: when its listener has nothing in hand any more, or its lease has
    expired.
    """

    async def work() -> SubscriptionView:
        async with connect(target) as client:
            view = await client.move_subscription(subscription, SubscriptionVerb.DRAIN)
            if wait:
                view = await _until_drained(client, view)
            return view

    _print_moved(asyncio.run(work()), as_json=as_json)


@subscriptions.command(example="tape subscriptions remove orders")
@_NAME
@json_option
@target_options
@click.pass_obj
def remove(target: Target, subscription: str, as_json: bool) -> None:
    """Remove a subscription, with its dead letters. Its runs continue.

    It has to be deactivated, or never activated. Exits with 1 if there is no such subscription.
    """
    if not ask(target, lambda client: client.delete_subscription(subscription)):
        raise NotFound(f"no subscription {subscription!r}")
    if as_json:
        print_json({"name": subscription, "deleted": True})
    else:
        say(f"{subscription} is removed")


async def _until_drained(client: "AsyncTapeClient", view: SubscriptionView) -> SubscriptionView:
    """Its state once it no longer drains. What changes meanwhile is told on standard error."""
    told = ""
    while view.subscription.state == SubscriptionState.DRAINING:
        if (words := _draining_words(view)) != told:
            notes().print(words, style="dim")
            told = words
        await asyncio.sleep(LOOK_S)
        view = await client.subscription(view.subscription.name)
    return view


def _draining_words(view: SubscriptionView) -> str:
    listener = view.listener
    by = f"by {listener.lease_owner}" if view.is_held else "and nobody listens"
    return f"{view.subscription.name}: {listener.in_flight} in hand, {by}"


def _print_moved(view: SubscriptionView, *, as_json: bool) -> None:
    if as_json:
        print_json(subscription_json(view))
    else:
        say(f"{view.subscription.name} is {view.subscription.state}")


def _row(view: SubscriptionView) -> tuple[str, ...]:
    subscription, listener = view.subscription, view.listener
    source = f"{subscription.source} {subscription.mode}"
    counts = listener.accepted, listener.dead_lettered, listener.in_flight
    waiting = str(listener.backlog) if listener.backlog >= 0 else ""
    return (
        subscription.name, subscription.state, source, str(subscription.revision),
        *map(str, counts), waiting, listener.lease_owner if view.is_held else "",
    )  # fmt: skip


def _facts(view: SubscriptionView) -> dict[str, str]:
    subscription, listener = view.subscription, view.listener
    now_ms = time.time_ns() // 1_000_000
    counts: dict[str, Any] = subscription_json(view)["counts"]
    left = span(max(0, listener.lease_expires_at_ms - now_ms))
    held = f"{listener.lease_owner}, {left} left of its lease" if view.is_held else "nobody"
    return {
        "name": subscription.name,
        "state": f"{subscription.state}, since {date_time(subscription.changed_at_ms)}",
        "source": " ".join(
            filter(None, (subscription.source, subscription.mode, subscription.activation))
        ),
        "cadence": subscription.cadence,
        "gateway path": subscription.gateway_path,
        "target": subscription.target,
        "listeners of": subscription.listener_pool,
        "revision": str(subscription.revision),
        "registered": date_time(subscription.created_at_ms),
        "listener": held,
        "in hand": str(listener.in_flight),
        "waiting": str(listener.backlog) if listener.backlog >= 0 else "the source does not say",
        "next fetch": _moment(listener.due_at_ms),
        **{name.replace("_", " "): str(count) for name, count in counts.items()},
        "last accepted": _moment(listener.last_accepted_at_ms) or "never",
        "last error": listener.last_error,
    }


def _moment(ms: int) -> str:
    return date_time(ms) if ms else ""
