"""`tape drainers`: how far each has come, helping one that is halted, and what they dispatch to."""

import time

import click

from tape.cli.command_tree import CommandGroup
from tape.cli.error_text import quiet_on_broken_pipe
from tape.cli.near_ids import note_if_unknown
from tape.cli.output import abridged, print_json, print_table, say, span
from tape.cli.records import drainer_record, subscription_record
from tape.cli.target import Target, ask, by_option, json_option, target_options, user_name
from tape.errors import NotFound
from tape.model.drainer import DrainerState
from tape.model.event_subscription import DEFAULT_DRAINER, EventSubscription
from tape.model.run import DEFAULT_POOL

ERROR_WIDTH = 200


@click.group(cls=CommandGroup)
@target_options
def drainers() -> None:
    """Manage drainers and event subscriptions: they turn events into runs, in strict order."""


@drainers.command("list", example="tape drainers list")
@json_option
@target_options
@click.pass_obj
def list_drainers(target: Target, as_json: bool) -> None:
    """List drainers and their progress.

    LAG counts the entries that the drainer has not passed yet. HALTED says for how long a
    failure has halted it. Below the table: where and why it is halted, and which run it waits for.
    """
    states = ask(target, lambda client: client.drainers())
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


@drainers.command(
    example="tape drainers skip workflow_runner 01JX3ZD7N5Q8V2K4T6M9P0R1S3 --reason 'entered twice'"
)
@click.argument("drainer")
@click.argument("event_id")
@click.option("--reason", required=True, help="Record why it is skipped.")
@by_option
@json_option
@target_options
@click.pass_obj
def skip(
    target: Target, *, drainer: str, event_id: str, reason: str, by: str, as_json: bool
) -> None:
    """Move DRAINER past EVENT_ID, the event it is halted at or whose run it waits for.

    The run is left as it is. Cancel it if it must not happen later.
    """
    by = by or user_name()
    state = ask(target, lambda client: client.skip_event(drainer, event_id, reason=reason, by=by))
    _print_state(state, f"{drainer} continues after {event_id}", as_json=as_json)


@drainers.command(example="tape drainers resume workflow_runner")
@click.argument("drainer", default=DEFAULT_DRAINER, metavar="[DRAINER]")
@by_option
@json_option
@target_options
@click.pass_obj
def resume(target: Target, drainer: str, by: str, as_json: bool) -> None:
    """Make a halted drainer try its event again now. By default it is workflow_runner."""
    state = ask(target, lambda client: client.resume_drainer(drainer, by=by or user_name()))
    _print_state(state, f"{drainer} is resumed", as_json=as_json)


@drainers.command(example="tape drainers subscriptions")
@click.argument("drainer", default="", metavar="[DRAINER]")
@json_option
@target_options
@click.pass_context
def subscriptions(ctx: click.Context, drainer: str, as_json: bool) -> None:
    """List event subscriptions, of one drainer or of all."""
    target = ctx.ensure_object(Target)

    rows = ask(target, lambda client: client.event_subscriptions(drainer))
    with quiet_on_broken_pipe():
        if as_json:
            for row in rows:
                print_json(subscription_record(row))
            return
        columns = "SUBSCRIPTION", "DRAINER", "EVENTS", "WHERE", "APP", "STATE"
        print_table(columns, map(_subscription_row, rows))
    if not rows and drainer:
        note_if_unknown(ctx, "drainer")


@drainers.command(
    example="tape drainers subscribe 'order.*' checkout --input total='$.payload.total'"
)
@click.argument("event_type_glob", metavar="GLOB")
@click.argument("app")
@click.option(
    "--id", "subscription_id", default="", help="Name it; by default after the app and the glob."
)
@click.option(
    "--drainer", default=DEFAULT_DRAINER, show_default=True, help="Dispatch with this drainer."
)
@click.option("--where", default="", metavar="CEL", help="Only events for which this is true.")
@click.option(
    "--input",
    "recipes",
    multiple=True,
    metavar="NAME=RECIPE",
    help="Give the app this input: $.payload.x, $.entity_id or literal:text; by default the event.",
)
@click.option("--pool", default="", metavar="NAME", help="Let workers of this pool drive the runs.")
@click.option("--begun", is_flag=True, help="Continue when the run has begun, not when it ended.")
@click.option("--disabled", is_flag=True, help="Store the subscription, and dispatch nothing.")
@json_option
@target_options
@click.pass_obj
def subscribe(
    target: Target, *, event_type_glob: str, app: str, subscription_id: str, drainer: str,
    where: str, recipes: tuple[str, ...], pool: str, begun: bool, disabled: bool, as_json: bool,
) -> None:  # fmt: skip
    """Start a run of APP for each event whose type matches GLOB; * stands for any characters.

    If the subscription exists, it is updated; no drainer's cursor moves.
    """
    mapper = dict(map(_recipe, recipes))
    target.inputs |= {"event_type_glob": event_type_glob, "filter_expr": where}
    target.inputs |= {f"input_mapper.{name}": recipe for name, recipe in mapper.items()}

    made = ask(
        target,
        lambda client: client.subscribe_events(
            event_type_glob,
            app,
            subscription_id=subscription_id,
            drainer=drainer,
            where=where,
            input=mapper,
            enabled=not disabled,
            awaits_end=not begun,
            pool=pool,
        ),
    )
    if as_json:
        print_json(subscription_record(made))
    else:
        say(f"{made.subscription_id} is subscribed: {made.event_type_glob} → {made.workflow_type}")


@drainers.command(example="tape drainers unsubscribe 'checkout:order.*'")
@click.argument("subscription_id", metavar="SUBSCRIPTION")
@target_options
@click.pass_obj
def unsubscribe(target: Target, subscription_id: str) -> None:
    """Remove an event subscription. The runs that it started continue.

    Exits with 1 if there is no such subscription.
    """
    if not ask(target, lambda client: client.unsubscribe_events(subscription_id)):
        raise NotFound(f"no event subscription {subscription_id}")
    say(f"{subscription_id} is unsubscribed")


def _print_state(state: DrainerState, done: str, *, as_json: bool) -> None:
    if as_json:
        print_json(drainer_record(state))
    else:
        say(done)


def _recipe(text: str) -> tuple[str, str]:
    name, equals, recipe = text.partition("=")
    if not (name and equals):
        raise click.UsageError(f"--input {text!r} is not of the form NAME=RECIPE")
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
