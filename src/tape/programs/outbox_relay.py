"""The outbox relay for programs: any service may run one, and one of them leads.

tape.run_relay("postgres://desk@db/desk", nats="nats://127.0.0.1:4222")
"""

import asyncio
import os

from tape.brokers.logins import Logins
from tape.bus import Bus
from tape.client.running_loop import refuse_running_loop
from tape.errors import InvalidArgument
from tape.ports.credentials import OpenedCredential
from tape.programs.connect import bus_broker, open_bus
from tape.programs.event_loop import stopping_on_signals
from tape.settings import DEFAULT_STORE, Settings


def run_relay(
    store: str | None = None, *, nats: str = "", settings: Settings | None = None
) -> None:
    """Take outbox rows to the journal and to NATS until SIGTERM or SIGINT, then finish the current
    rows.

    Without `nats` the settings name it; if they do not, rows go only to the journal. Without
    `store` it is TAPE_STORE, else the default store. A relay cannot work through a server, so it is
    refused if only TAPE_URL is set.
    """

    refuse_running_loop("tape.run_relay", "await tape.relaying.relay_until(stop, store)")

    async def relay() -> None:
        stop = asyncio.Event()
        with stopping_on_signals(stop):
            await relay_until(stop, store, nats=nats, settings=settings)

    asyncio.run(relay())


async def relay_until(
    stop: asyncio.Event,
    store: str | None = None,
    *,
    nats: str = "",
    settings: Settings | None = None,
) -> None:
    """Like `run_relay`, on the running event loop, until `stop` is set."""
    settings = settings or Settings()
    opened: Bus

    async def open_credential(alias: str, *, counts: bool = True) -> OpenedCredential:
        return await opened.wallet.open_credential(alias, counts=counts)

    logins = Logins(settings.credentials, open_credential)
    broker = bus_broker(settings, nats, logins)  # a bad address is refused before a store is made
    opened = await open_bus(store or _store_of_environment(), settings)
    try:
        if broker is not None:
            await logins.check_alias(settings.credentials.nats)
        await opened.relay_outbox(broker, stop)
    finally:
        await opened.close()


def _store_of_environment() -> str:
    store, server = os.environ.get("TAPE_STORE"), os.environ.get("TAPE_URL")
    if server and not store:
        raise InvalidArgument(
            "a relay opens the store itself and cannot work through TAPE_URL: give it the store's "
            "URL, sqlite:PATH or postgres://…, or set TAPE_STORE",
            field="store",
        )
    return store or DEFAULT_STORE
