"""`tape record`: one event from the command line, or many from a file."""

import asyncio
import sys
from pathlib import Path

import click

from tape.cli import batch
from tape.cli.command_tree import ExampleCommand
from tape.cli.output import print_json, say
from tape.cli.target import Target, announcing_created_store, connect, target_options
from tape.model.event import NewEvent, Recorded, draft_event


@click.command(
    cls=ExampleCommand,
    example="""\
tape record order.placed --entity order/7 --payload '{"total": 40.5}' --key placed-7
tape record --batch day.ndjson""",
)
@click.argument("event_type", required=False)
@click.option(
    "--payload", metavar="JSON|@FILE|-", help="Payload: JSON, a file (@FILE) or standard input (-)."
)
@click.option("--entity", metavar="TYPE/ID", help="Entity that the event is about.")
@click.option("--key", default="", help="Idempotency key: a second event with it is not recorded.")
@click.option("--caused-by", default="", metavar="EVENT_ID", help="Event that caused this one.")
@click.option("--source", default="", help="System that the event comes from.")
@click.option(
    "--occurred-at",
    type=click.IntRange(min=0),
    default=0,
    metavar="MS",
    help="Time of the event in milliseconds since 1970; by default now.",
)
@click.option(
    "--schema-version", type=int, default=1, show_default=True, help="Version of the payload."
)
@click.option(
    "--batch", "batch_file", metavar="FILE|-", help="Record events from a file, one JSON per line."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@target_options
@click.pass_context
def record(
    ctx: click.Context, *, event_type: str | None, payload: str | None, entity: str | None,
    key: str, caused_by: str, source: str, occurred_at: int, schema_version: int,
    batch_file: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Record an event of type EVENT_TYPE, or many events with --batch.

    A store that does not exist is created.

    A line of a batch is a JSON object with event_type and optionally payload, entity_type,
    entity_id, idempotency_key, caused_by, source, occurred_at_ms and schema_version.
    """
    target = ctx.ensure_object(Target)
    if batch_file is not None:
        _refuse_beside_batch(ctx)
        asyncio.run(batch.record_batch(target, batch_file, as_json=as_json))
        return
    if event_type is None:
        raise click.UsageError("give an EVENT_TYPE, or events with --batch", ctx)
    entity_type, entity_id = _entity(ctx, entity)
    event = NewEvent(
        event_type, _read(ctx, payload), entity_type, entity_id, key, caused_by, source,
        occurred_at, schema_version,
    )  # fmt: skip
    target.inputs["payload_json"] = event.payload_json
    recorded = asyncio.run(_record(target, event))
    if as_json:
        print_json(recorded._asdict())
    else:
        verb = "already recorded" if recorded.duplicate else "recorded"
        say(f"{verb} as {recorded.global_seq}, event {recorded.event_id}")


async def _record(target: Target, event: NewEvent) -> Recorded:
    if not target.server_url:
        draft_event(event, "", target.settings.limits)  # a refused event creates no store
    with announcing_created_store():
        client = await connect(target, creating=True)
    async with client:
        (recorded,) = await client.record_many([event])
        return recorded


def _refuse_beside_batch(ctx: click.Context) -> None:
    for name in ctx.params.keys() - {"batch_file", "as_json"}:
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("--batch takes each event whole from its line", ctx)


def _entity(ctx: click.Context, entity: str | None) -> tuple[str, str]:
    if entity is None:
        return "", ""
    entity_type, slash, entity_id = entity.partition("/")
    if not (slash and entity_type and entity_id):
        raise click.UsageError(f"--entity is TYPE/ID, such as order/7, not {entity!r}", ctx)
    return entity_type, entity_id


def _read(ctx: click.Context, payload: str | None) -> str:
    if payload is None:
        return "null"
    if payload == "-":
        text = sys.stdin.read()
    else:
        text = Path(payload[1:]).read_text("utf-8") if payload.startswith("@") else payload
    if not text.strip():
        raise click.UsageError("the payload is empty; write null for no payload", ctx)
    return text
