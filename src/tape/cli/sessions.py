"""`tape sessions`: look at sessions and their events."""

import asyncio

import click

from tape.cli.complaints import quiet_on_broken_pipe
from tape.cli.output import abridged, date_time, print_json, print_table, say
from tape.cli.records import session_event_record, session_record
from tape.cli.target import Target, connect, target_options
from tape.errors import NotFound
from tape.model.session import SessionWithEvents

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")


@click.group()
@target_options
def sessions() -> None:
    """Sessions: a conversation's state and its events."""


@sessions.command("list")
@click.argument("app_name")
@click.argument("user_id")
@_JSON
@target_options
@click.pass_obj
def list_sessions(target: Target, app_name: str, user_id: str, as_json: bool) -> None:
    """List a user's sessions, newest change first."""

    async def read() -> list[SessionWithEvents]:
        async with connect(target) as client:
            return await client.list_sessions(app_name, user_id)

    found = [item.session for item in asyncio.run(read())]
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


@sessions.command()
@click.argument("app_name")
@click.argument("user_id")
@click.argument("session_id")
@click.option(
    "--events",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Show so many of the newest events.",
)
@_JSON
@target_options
@click.pass_obj
def show(
    target: Target, *, app_name: str, user_id: str, session_id: str, events: int, as_json: bool
) -> None:
    """Show a session's state and newest events; exit code 1 if there is none."""

    async def read() -> SessionWithEvents | None:
        async with connect(target) as client:
            return await client.get_session(app_name, user_id, session_id, max_events=events)

    found = asyncio.run(read())
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
