"""A server: a store and settings in, gRPC and HTTP out."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tape.api.auth import Tokens, is_loopback
from tape.api.listening import Tls
from tape.bus import Bus
from tape.errors import InvalidArgument
from tape.programs.connect import bus_broker, nothing, open_bus
from tape.programs.credentials import logins_for
from tape.programs.listening import ANY_POOL, ListensFor, listeners_keeper, listening
from tape.programs.store_gauges import refresh_metrics
from tape.settings import DEFAULT_STORE, DEFAULT_URL, DoorSettings, Settings
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
    listen: str | None = ANY_POOL
    """Which subscriptions it listens for: those of a pool of listeners, by default all that do not
    run in a service of their own; None for none."""
    health_address: str | None = None
    """Where to answer /healthz and /readyz alone: to anybody, without a token or TLS."""


class Addresses(NamedTuple):
    """Where a server really listens."""

    grpc: str
    http: str | None = None
    health: str | None = None


async def serve(
    options: ServeOptions,
    *,
    on_ready: Callable[[Addresses], None] = lambda _addresses: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set or the task is cancelled; either way what was taken is finished."""
    from tape.api.descriptors import SERVED, fit_to_descriptors
    from tape.api.grpc.server import GrpcServer
    from tape.api.stream_slots import StreamSlots

    tls, tokens, insecure = _tls(options), _tokens(options), options.insecure
    # What waits for the interpreter while a predicate has it waits so long; Python's own is 5 ms.
    sys.setswitchinterval(SWITCH_S)
    async with AsyncExitStack() as running:
        exposed = _is_exposed(options)
        wanted = None if options.listen is None else ListensFor(options.listen)
        bus = await open_bus(
            options.store_url,
            options.settings,
            exposed=exposed,
            listens_for=nothing if wanted is None else wanted.is_meant,
        )
        running.push_async_callback(bus.close)
        bus.start_matching()
        bus.start_draining()
        bus.start_upkeep()
        logins = await running.enter_async_context(logins_for(bus, options.settings))
        if broker := bus_broker(options.settings, logins=logins):
            await logins.check_alias(options.settings.credentials.nats)
        bus.start_relay(broker)
        health_doors = () if options.health_address is None else ("health",)
        doors = fit_to_descriptors(options.settings.doors, (*SERVED, *health_doors))
        streams = StreamSlots(doors)
        server = GrpcServer(bus, options.settings.limits, tokens, doors, streams, exposed=exposed)
        grpc = await server.start(options.grpc_address, tls=tls, insecure=insecure)
        stops: list[Callable[[], Awaitable[None]]] = [server.stop]
        if wanted is not None:
            keeper = listeners_keeper(
                bus, bus.wallet.open_credential, wanted, options.settings.listeners
            )
            stops.append(await _started(listening(keeper)))
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
            http_server = HttpServer(lambda: server_app(door, assets()), door)
            stops.append(http_server.stop)
            http = await http_server.start(options.http_address, tls=tls, insecure=insecure)
        health = await _answer_probes(bus, options.health_address, doors, stops)
        on_ready(Addresses(grpc, http, health))
        await (stop or asyncio.Event()).wait()


async def _answer_probes(
    bus: Bus, address: str | None, doors: DoorSettings, stops: list[Callable[[], Awaitable[None]]]
) -> str | None:
    if address is None:
        return None
    from tape.api.health_server import HealthServer

    server = HealthServer(bus, doors)
    stops.append(server.stop)
    return await server.start(address)


async def _started(work: AbstractAsyncContextManager[None]) -> Callable[[], Awaitable[None]]:
    """Begin it; how to end it."""
    begun = AsyncExitStack()
    await begun.enter_async_context(work)
    return begun.aclose


async def _all_at_once(stops: Sequence[Callable[[], Awaitable[None]]]) -> None:
    ends = await asyncio.gather(*(stop() for stop in stops), return_exceptions=True)
    for fault in ends:
        if fault is not None:
            raise fault


def _is_exposed(options: ServeOptions) -> bool:
    """Whether others can have it do something. The door of health takes no orders."""
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
