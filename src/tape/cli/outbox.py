"""`tape outbox`: events of programs' own transactions, on their way to the journal and to NATS."""

import asyncio

import click

from tape.brokers.by_target import require_nats
from tape.cli.command_tree import CommandGroup
from tape.cli.logs import start_logging
from tape.cli.output import abridged, date_time, print_json, print_table, say, span
from tape.cli.target import (
    Target,
    ask,
    by_option,
    refuse_absent_store,
    target_options,
    user_name,
)
from tape.errors import InvalidArgument
from tape.model.outbox import NATS_RELAY
from tape.ports.outbox import OutboxStatus
from tape.programs.outbox_relay import run_relay
from tape.settings import Settings

ERROR_WIDTH = 320  # a reason ends with what to do
COUNTED = 100_000
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_NATS = click.option(
    "--nats", default="", metavar="URL", help="nats://HOST:PORT; by default as in the settings."
)


@click.group(cls=CommandGroup)
@target_options
def outbox() -> None:
    """Relay and inspect the outbox: events that programs wrote in their own transactions."""


@outbox.command(
    example="tape outbox relay --store postgres://desk@db/desk --nats nats://127.0.0.1:4222"
)
@_NATS
@target_options
@click.pass_obj
def relay(target: Target, nats: str) -> None:
    """Relay outbox rows to the journal and to NATS JetStream, until SIGTERM or Ctrl-C.

    You can run any number of relays: one leads, and another takes over when it is gone. Without
    --nats and without NATS in the settings, rows go only to the journal. The login comes from
    TAPE_NATS_USER and TAPE_NATS_PASSWORD, or from the file in TAPE_NATS_CREDENTIALS, unless the
    settings name a credential.
    """
    start_logging(verbose=target.verbose, form="%(asctime)s %(name)s %(message)s")
    url = target.store_to_open(changes=True)
    asyncio.run(refuse_absent_store(url, target.settings))
    run_relay(url, nats=nats, settings=target.settings)


@outbox.command(example="tape outbox status --repeats")
@click.option("--repeats", is_flag=True, help="Also list the rows that repeat an event.")
@_JSON
@target_options
@click.pass_obj
def status(target: Target, repeats: bool, as_json: bool) -> None:
    """Show how many rows wait and since when, which rows failed and why, and which relay leads."""
    found = ask(target, lambda client: client.outbox_status())
    if as_json:
        print_json(
            {
                "waiting": found.waiting, "unpromoted": found.unpromoted,
                "oldest_ms": found.oldest_ms,
                "failing": [row._asdict() for row in found.failing],
                "relays": [term._asdict() for term in found.terms],
                "repeated": found.repeated,
                "repeats": [row._asdict() for row in found.repeats],
            }
        )  # fmt: skip
        return
    _print_status(found)
    if repeats:
        _print_repeats(found)


@outbox.command(example="tape outbox skip 17 --reason 'the payload is not JSON'")
@click.argument("row_id", type=click.IntRange(min=1), metavar="ROW")
@click.option("--reason", required=True, help="Record why it is skipped.")
@by_option
@_JSON
@target_options
@click.pass_obj
def skip(target: Target, row_id: int, reason: str, by: str, as_json: bool) -> None:
    """Skip a row that failed, so that later rows with the same subject can be relayed."""
    by = by or user_name()
    place = ask(target, lambda client: client.skip_outbox_row(row_id, reason=reason, by=by))
    if as_json:
        print_json(place._asdict())
    else:
        say(f"row {row_id} ({place.event_id}, {place.subject}) is skipped")


@outbox.group()
@target_options
def stream() -> None:
    """Show and apply the settings of the JetStream stream that the outbox is published to."""


@stream.command(example="tape outbox stream show --nats nats://127.0.0.1:4222")
@_NATS
@_JSON
@target_options
@click.pass_obj
def show(target: Target, nats: str, as_json: bool) -> None:
    """Show the stream, and where it differs from the settings."""
    require_nats()
    from tape.cli.streams import show_stream

    show_stream(_nats(target.settings, nats), target, as_json=as_json)


@stream.command(example="tape outbox stream apply --nats nats://127.0.0.1:4222")
@click.option("--force", is_flag=True, help="Also make changes that could lose messages.")
@_NATS
@_JSON
@target_options
@click.pass_obj
def apply(target: Target, nats: str, force: bool, as_json: bool) -> None:
    """Create the stream, or change it as the settings say, without losing messages."""
    require_nats()
    from tape.cli.streams import apply_settings

    url = _nats(target.settings, nats)
    apply_settings(url, target, force=force, as_json=as_json)


def _nats(settings: Settings, given: str) -> str:
    url = given or settings.outbox.nats
    if not url:
        raise InvalidArgument("give the address of NATS: nats://HOST:PORT", field="--nats")
    return url


def _print_status(found: OutboxStatus) -> None:
    publishes = any(term.relay == NATS_RELAY for term in found.terms)
    waiting = found.waiting if publishes else found.unpromoted
    if waiting:
        more = " or more" if waiting >= COUNTED else ""
        say(f"{waiting:,}{more} rows wait, the oldest for {span(found.oldest_ms)}")
    else:
        say("nothing waits")
    for term in found.terms:
        since = date_time(term.elected_at_ms)
        say(f"relay {term.relay}: term {term.term}, elected {since}, {term.owner}")
    if found.repeated:
        more = " or more" if found.repeated >= COUNTED else ""
        say(f"{found.repeated:,}{more} rows repeat an event and were not published: --repeats")
    if found.failing:
        rows = [
            (str(row.id), row.subject, str(row.attempts), abridged(row.last_error, ERROR_WIDTH))
            for row in found.failing
        ]
        print_table(("ROW", "SUBJECT", "ATTEMPTS", "ERROR"), rows)


def _print_repeats(found: OutboxStatus) -> None:
    rows = [
        (str(row.id), row.subject, row.idempotency_key, row.repeat_of, str(row.repeat_of_seq))
        for row in found.repeats
    ]
    print_table(("ROW", "SUBJECT", "KEY", "REPEATS", "AT"), rows)
