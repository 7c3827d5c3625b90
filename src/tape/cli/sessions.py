"""`tape sessions`: look at sessions and their events."""

import click

from tape.cli.command_tree import CommandGroup
from tape.cli.error_text import quiet_on_broken_pipe
from tape.cli.near_ids import note_if_unknown
from tape.cli.output import abridged, date_time, print_json, print_table, say
from tape.cli.records import session_event_record, session_record
from tape.cli.target import Target, ask, json_option, target_options
from tape.errors import NotFound


@click.group(cls=CommandGroup)
@target_options
def sessions() -> None:
    """List and show sessions: each holds the state and the events of a conversation."""


@sessions.command(example="tape sessions apps")
@json_option
@target_options
@click.pass_obj
def apps(target: Target, as_json: bool) -> None:
    """List the apps that have sessions."""
    names = ask(target, lambda client: client.list_session_apps())
    with quiet_on_broken_pipe():
        if as_json:
            for name in names:
                print_json({"app_name": name})
            return
        print_table(("APP",), [(name,) for name in names])


@sessions.command("list", example="tape sessions list shop ada")
@click.argument("app_name")
@click.argument("user_id")
@json_option
@target_options
@click.pass_context
def list_sessions(ctx: click.Context, app_name: str, user_id: str, as_json: bool) -> None:
    """List the sessions of user USER_ID with app APP_NAME, last changed first."""
    target = ctx.ensure_object(Target)
    found = [
        item.session for item in ask(target, lambda client: client.list_sessions(app_name, user_id))
    ]
    with quiet_on_broken_pipe():
        if as_json:
            for session in found:
                print_json(session_record(session))
            return
        rows = [
            (s.session_id, str(s.event_count), abridged(s.state_json, 60),
             date_time(s.last_update_time_ms))
            for s in found
        ]  # fmt: skip
        print_table(("SESSION", "EVENTS", "STATE", "CHANGED"), rows)
    if not found:
        note_if_unknown(ctx, "app_name")


@sessions.command(example="tape sessions show shop ada s1 --events 50")
@click.argument("app_name")
@click.argument("user_id")
@click.argument("session_id")
@click.option(
    "--events",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Show the newest N events.",
)
@json_option
@target_options
@click.pass_obj
def show(
    target: Target, *, app_name: str, user_id: str, session_id: str, events: int, as_json: bool
) -> None:
    """Show the state of a session and its newest events. Exits with 1 if there is none."""
    found = ask(
        target, lambda client: client.get_session(app_name, user_id, session_id, max_events=events)
    )
    if found is None:
        raise NotFound(f"no session {app_name}/{user_id}/{session_id}")
    if as_json:
        listed = [session_event_record(event) for event in found.events]
        print_json(session_record(found.session) | {"events": listed})
        return
    say(f"state  {found.session.state_json}")
    say(f"events {found.session.event_count}")
    for event in found.events:
        text = f"{date_time(event.timestamp_ms)} {event.author or '-'} {event.id} "
        say(text + abridged(event.content_json, 100))
