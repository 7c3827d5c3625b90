"""Composition root: a URL and settings in, a running Tape out."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tape.api.auth import Tokens
from tape.bus import Bus, Operations
from tape.client import AsyncTapeClient, Connecting, TapeClient
from tape.config import DEFAULT_STORE, DEFAULT_URL, Settings
from tape.errors import InvalidArgument
from tape.stores.by_url import STORE_URLS, open_store

DEFAULT_GRPC = DEFAULT_URL.removeprefix("tape://")
CLIENT_URLS = f"{STORE_URLS}, or tape://HOST:PORT or tapes://HOST:PORT for a server"


async def open_bus(url: str, settings: Settings | None = None, *, migrating: bool = True) -> Bus:
    """Tape in this process on the store a URL names."""
    settings = settings or Settings()
    return Bus(await open_store(url, settings, migrating=migrating), settings)


def connect(
    url: str | None = None, *, token: str | None = None, settings: Settings | None = None
) -> TapeClient:
    """Tape for a program without an event loop.

    `sqlite:` and `postgres:` work in this process, `tape:` and `tapes:` with a server. Without a
    URL it is that of TAPE_URL, then TAPE_STORE, then the default server; the token is TAPE_TOKEN's.
    """
    return TapeClient(lambda: _connected(url, token, settings))


def connect_async(
    url: str | None = None, *, token: str | None = None, settings: Settings | None = None
) -> Connecting:
    """Like `connect`, on the running event loop: await it, or use it with `async with`."""
    return Connecting(lambda: _connected(url, token, settings))


async def _connected(
    url: str | None, token: str | None, settings: Settings | None
) -> AsyncTapeClient:
    if url is None:
        url = os.environ.get("TAPE_URL") or os.environ.get("TAPE_STORE") or DEFAULT_URL
    if token is None:
        token = os.environ.get("TAPE_TOKEN", "")
    return AsyncTapeClient(await open_operations(url, token, settings or Settings()))


async def open_operations(url: str, token: str, settings: Settings) -> Operations:
    """What a client's URL names: a store in this process, or a server."""
    scheme = url.partition(":")[0]
    if scheme in ("sqlite", "postgres", "postgresql"):
        return await open_bus(url, settings)
    if scheme in ("tape", "tapes"):
        from tape.client.grpc_bus import GrpcBus  # costs what a store never needs

        return await GrpcBus.open(url, token, settings)
    raise InvalidArgument(f"{scheme!r} is not a kind of URL; use {CLIENT_URLS}", field="url")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What a server serves and where. Port 0 picks one."""

    store_url: str = DEFAULT_STORE
    grpc_address: str = DEFAULT_GRPC
    settings: Settings = field(default_factory=Settings)
    tokens: str = ""
    token_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False


class Addresses(NamedTuple):
    """Where a server really listens."""

    grpc: str


async def serve(
    options: ServeOptions,
    *,
    on_ready: Callable[[Addresses], None] = lambda _addresses: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set or the task is cancelled; either way what was taken is finished."""
    from tape.api.grpc_server import GrpcServer, Tls

    if (options.tls_cert is None) != (options.tls_key is None):
        raise InvalidArgument("a certificate and its key go together", field="tls")
    tls = Tls(options.tls_cert, options.tls_key) if options.tls_cert and options.tls_key else None
    tokens = _tokens(options)
    bus = await open_bus(options.store_url, options.settings)
    try:
        server = GrpcServer(bus, options.settings.limits, tokens)
        address = await server.start(options.grpc_address, tls=tls, insecure=options.insecure)
        try:
            on_ready(Addresses(address))
            await (stop or asyncio.Event()).wait()
        finally:
            await server.stop()
    finally:
        await bus.close()


def _tokens(options: ServeOptions) -> Tokens:
    if options.tokens and options.token_file:
        raise InvalidArgument("tokens come as text or from a file, not both", field="tokens")
    return Tokens.read(options.token_file) if options.token_file else Tokens.parse(options.tokens)
