"""A server: a store and settings in, gRPC and HTTP out."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tape.api.auth import Tokens, is_loopback
from tape.api.listening import Tls
from tape.errors import InvalidArgument
from tape.programs.connect import bus_broker, open_bus
from tape.programs.store_gauges import refresh_metrics
from tape.settings import DEFAULT_STORE, DEFAULT_URL, Settings
from tape.telemetry.secret_files import warn_of_readers

DEFAULT_GRPC = DEFAULT_URL.removeprefix("tape://")
DEFAULT_HTTP = "127.0.0.1:7879"
SWITCH_S = 0.00005


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What a server serves and where. Port 0 picks one; without an address there is no HTTP.

    Tokens that are given, as text or in a file, must hold at least one.
    """

    store_url: str = DEFAULT_STORE
    grpc_address: str = DEFAULT_GRPC
    http_address: str | None = None
    settings: Settings = field(default_factory=Settings)
    tokens: str | None = None
    token_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False


class Addresses(NamedTuple):
    """Where a server really listens."""

    grpc: str
    http: str | None = None


async def serve(
    options: ServeOptions,
    *,
    on_ready: Callable[[Addresses], None] = lambda _addresses: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set or the task is cancelled; either way what was taken is finished."""
    from tape.api.descriptors import fit_to_descriptors
    from tape.api.grpc.server import GrpcServer
    from tape.api.stream_slots import StreamSlots

    tls, tokens, insecure = _tls(options), _tokens(options), options.insecure
    # What waits for the interpreter while a predicate has it waits so long; Python's own is 5 ms.
    sys.setswitchinterval(SWITCH_S)
    async with AsyncExitStack() as running:
        exposed = _is_exposed(options)
        bus = await open_bus(options.store_url, options.settings, exposed=exposed)
        running.push_async_callback(bus.close)
        bus.start_matching()
        bus.start_draining()
        bus.start_relay(bus_broker(options.settings))
        doors = fit_to_descriptors(options.settings.doors)
        streams = StreamSlots(doors)
        server = GrpcServer(bus, options.settings.limits, tokens, doors, streams, exposed=exposed)
        grpc = await server.start(options.grpc_address, tls=tls, insecure=insecure)
        stops = [server.stop]
        running.push_async_callback(_all_at_once, stops)
        http = None
        if options.http_address is not None:
            from tape.api.http.door import Door
            from tape.api.http_server import HttpServer, server_app
            from tape.console import assets

            door = Door(
                bus,
                tokens,
                lambda: refresh_metrics(bus),
                options.settings.limits,
                bus.pacer,
                bus.checker,
                doors,
                streams,
            )
            listening = HttpServer(lambda: server_app(door, assets()), door)
            stops.append(listening.stop)
            http = await listening.start(options.http_address, tls=tls, insecure=insecure)
        on_ready(Addresses(grpc, http))
        await (stop or asyncio.Event()).wait()


async def _all_at_once(stops: Sequence[Callable[[], Awaitable[None]]]) -> None:
    ends = await asyncio.gather(*(stop() for stop in stops), return_exceptions=True)
    for fault in ends:
        if fault is not None:
            raise fault


def _is_exposed(options: ServeOptions) -> bool:
    """Whether others can reach one of its doors."""
    doors = (options.grpc_address, options.http_address)
    return any(not is_loopback(door.rpartition(":")[0]) for door in doors if door is not None)


def _tls(options: ServeOptions) -> Tls | None:
    if options.tls_cert and options.tls_key:
        warn_of_readers(options.tls_key, "private key")
        return Tls(options.tls_cert, options.tls_key)
    if options.tls_cert or options.tls_key:
        raise InvalidArgument("give a certificate together with its key", field="tls")
    return None


def _tokens(options: ServeOptions) -> Tokens:
    if options.tokens is not None and options.token_file is not None:
        raise InvalidArgument("give tokens as text or as a file, not both", field="tokens")
    if options.token_file is not None:
        return Tokens.read(options.token_file)
    return Tokens() if options.tokens is None else Tokens.parse(options.tokens)
