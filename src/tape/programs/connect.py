"""Open what a URL names: a bus on a store in this process, or a client of a server."""

import os

from tape.brokers.by_target import check_target, open_bus_broker
from tape.brokers.logins import ENVIRONMENT, Logins
from tape.brokers.reach import Reach
from tape.bus import Bus, Operations
from tape.client import AsyncTapeClient, Connecting, TapeClient
from tape.errors import InvalidArgument
from tape.model.subscription import Subscription
from tape.ports.broker import BusBroker
from tape.programs.polling import ClientSources
from tape.settings import DEFAULT_URL, Settings
from tape.sources.by_spec import open_source
from tape.stores.by_url import STORE_URLS, open_store
from tape.stores.login import scheme_of
from tape.subscriptions.operations import ListensHere
from tape.wallet.keys import Keys

CLIENT_URLS = f"{STORE_URLS}, or tape://HOST:PORT or tapes://HOST:PORT for a server"


def nothing(_subscription: Subscription) -> bool:
    """What a process listens for that only asks."""
    return False


async def open_bus(
    url: str,
    settings: Settings | None = None,
    *,
    migrating: bool = True,
    creating: bool = True,
    exposed: bool = False,
    listens_for: ListensHere = nothing,
) -> Bus:
    """Tape in this process on the store a URL names; `exposed` to others as a server. The source of
    a subscription that this process `listens_for` is looked at when it is activated."""
    settings = settings or Settings()
    store = await open_store(url, settings, migrating=migrating, creating=creating)

    def check(target: str) -> None:
        check_target(target, Reach.of(settings, exposed=exposed))

    return Bus(
        store,
        settings,
        check_target=check,
        keys=Keys(os.environ),
        open_source=open_source,
        listens_for=listens_for,
    )


def connect(
    url: str | None = None, *, token: str | None = None, settings: Settings | None = None
) -> TapeClient:
    """Return a client for a program without an event loop.

    `sqlite:` and `postgres:` URLs open the store in this process, `tape:` and `tapes:` URLs name a
    server. Without a URL it is TAPE_URL, else TAPE_STORE, else the default server. Without a token
    it is TAPE_TOKEN.
    """
    return TapeClient(lambda: _connected(url, token, settings))


def connect_async(
    url: str | None = None, *, token: str | None = None, settings: Settings | None = None
) -> Connecting:
    """Return a client like `connect`, on the running event loop: await it, or use `async with`."""
    return Connecting(lambda: _connected(url, token, settings))


def connect_to_existing(url: str | None, settings: Settings) -> Connecting:
    """Like `connect_async`, but a store that is not there is refused and not created."""
    return Connecting(lambda: _connected(url, None, settings, creating=False))


async def _connected(
    url: str | None, token: str | None, settings: Settings | None, *, creating: bool = True
) -> AsyncTapeClient:
    url = default_url() if url is None else url
    token = default_token() if token is None else token
    settings = settings or Settings()
    operations = await open_operations(url, token, settings, creating=creating)
    return AsyncTapeClient(operations, ClientSources(operations))


def default_url() -> str:
    """Where a program works that was not told where."""
    return os.environ.get("TAPE_URL") or os.environ.get("TAPE_STORE") or DEFAULT_URL


def default_token() -> str:
    return os.environ.get("TAPE_TOKEN", "")


async def open_operations(
    url: str,
    token: str,
    settings: Settings,
    *,
    creating: bool = True,
    listens_for: ListensHere = nothing,
) -> Operations:
    """What a client's URL names: a store in this process, or a server."""
    scheme = url.partition(":")[0]
    if scheme in ("sqlite", "postgres", "postgresql"):
        return await open_bus(url, settings, creating=creating, listens_for=listens_for)
    if scheme in ("tape", "tapes"):
        from tape.client.grpc_bus import GrpcBus  # costs what a store never needs

        return await GrpcBus.open(url, token, settings)
    named = repr(scheme_of(url))
    raise InvalidArgument(f"{named} is not a kind of URL; use {CLIENT_URLS}", field="url")


def bus_broker(
    settings: Settings, nats: str = "", logins: Logins = ENVIRONMENT
) -> BusBroker | None:
    """Where the outbox is published: what was said here, or else the settings. None: nowhere."""
    field = "nats" if nats else "tape.outbox.nats"
    url = nats or settings.outbox.nats
    if not url:
        return None
    return open_bus_broker(
        url, settings.stream, keep_s=settings.outbox.keep_s, field=field, logins=logins
    )
