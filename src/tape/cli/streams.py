"""What `tape outbox stream` does, apart from its command line: it needs the client of NATS."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tape.brokers.jetstream import Difference, StreamChange, apply_stream, differences, read_stream
from tape.brokers.logins import Logins
from tape.brokers.nats_bus import open_connection
from tape.brokers.nats_connection import NatsConnection
from tape.cli.output import print_json, print_table, say
from tape.cli.target import Target
from tape.programs.credentials import DistantWallet


def show_stream(url: str, target: Target, *, as_json: bool) -> None:
    settings = target.settings.stream

    async def read() -> dict[str, object]:
        async with _connected(url, target) as connection:
            return await read_stream(connection, settings.name)

    answer = asyncio.run(read())
    config: dict[str, object] = answer["config"]  # type: ignore[assignment]  # of the server's JSON
    state: dict[str, object] = answer["state"]  # type: ignore[assignment]
    found = differences(config, settings)
    if as_json:
        print_json({"config": config, "state": state, "differences": _as_records(found)})
        return
    say(f"stream {settings.name}: {state['messages']} messages, {state['bytes']} bytes")
    print_table(("SETTING", "VALUE"), [(k, str(v)) for k, v in sorted(config.items())])
    if found:
        say("The stream differs from the settings:")
        _print_differences(found)


def apply_settings(url: str, target: Target, *, force: bool, as_json: bool) -> None:
    settings = target.settings.stream

    async def work() -> StreamChange:
        async with _connected(url, target) as connection:
            return await apply_stream(connection, settings, force=force)

    applied = asyncio.run(work())
    if as_json:
        record = {"stream": settings.name, "outcome": applied.outcome}
        print_json({**record, "changes": _as_records(applied.changes)})
        return
    say(f"stream {settings.name}: {applied.outcome}")
    if applied.changes:
        _print_differences(applied.changes)


@asynccontextmanager
async def _connected(url: str, target: Target) -> AsyncIterator[NatsConnection]:
    async with AsyncExitStack() as stack:
        settings = target.settings
        wallet = DistantWallet(settings, target.address)
        stack.push_async_callback(wallet.close)
        logins = Logins(settings.credentials, wallet)
        await logins.check_alias(settings.credentials.nats)
        connection = await open_connection(url, field="--nats", logins=logins)
        stack.push_async_callback(connection.close)
        yield connection


def _as_records(found: list[Difference]) -> list[dict[str, str]]:
    return [difference._asdict() for difference in found]


def _print_differences(found: list[Difference]) -> None:
    print_table(
        ("SETTING", "IS", "WANTED", "CHANGE"),
        [(d.field, d.is_now, d.wanted, d.verdict) for d in found],
    )
