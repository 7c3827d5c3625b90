"""Composition root: a URL and settings in, a running Tape out."""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tape.api.auth import Tokens, is_loopback
from tape.api.listening import Tls
from tape.brokers.by_target import check_target, open_bus_broker
from tape.brokers.reach import Reach
from tape.bus import Bus, Operations
from tape.client import AsyncTapeClient, Connecting, TapeClient
from tape.config import DEFAULT_STORE, DEFAULT_URL, Settings
from tape.errors import InvalidArgument
from tape.ports.broker import BusBroker
from tape.ports.user_code import came_by_signal
from tape.stores.by_url import STORE_URLS, open_store
from tape.stores.login import scheme_of
from tape.telemetry.secret_files import warn_of_readers

log = logging.getLogger("tape.app")

DEFAULT_GRPC = DEFAULT_URL.removeprefix("tape://")
DEFAULT_HTTP = "127.0.0.1:7879"
SWITCH_S = 0.00005
CLIENT_URLS = f"{STORE_URLS}, or tape://HOST:PORT or tapes://HOST:PORT for a server"


async def open_bus(
    url: str,
    settings: Settings | None = None,
    *,
    migrating: bool = True,
    creating: bool = True,
    exposed: bool = False,
) -> Bus:
    """Tape in this process on the store a URL names; `exposed` to others as a server."""
    settings = settings or Settings()
    store = await open_store(url, settings, migrating=migrating, creating=creating)

    def check(target: str) -> None:
        check_target(target, Reach.of(settings, exposed=exposed))

    return Bus(store, settings, check_target=check)


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
    return AsyncTapeClient(await open_operations(url, token, settings, creating=creating))


def default_url() -> str:
    """Where a program works that was not told where."""
    return os.environ.get("TAPE_URL") or os.environ.get("TAPE_STORE") or DEFAULT_URL


def default_token() -> str:
    return os.environ.get("TAPE_TOKEN", "")


async def open_operations(
    url: str, token: str, settings: Settings, *, creating: bool = True
) -> Operations:
    """What a client's URL names: a store in this process, or a server."""
    scheme = url.partition(":")[0]
    if scheme in ("sqlite", "postgres", "postgresql"):
        return await open_bus(url, settings, creating=creating)
    if scheme in ("tape", "tapes"):
        from tape.client.grpc_bus import GrpcBus  # costs what a store never needs

        return await GrpcBus.open(url, token, settings)
    named = repr(scheme_of(url))
    raise InvalidArgument(f"{named} is not a kind of URL; use {CLIENT_URLS}", field="url")


@contextmanager
def stopping_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT ask to stop; a second one ends the process as it always would."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def forget() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    def ask() -> None:
        forget()
        stop.set()

    for number in numbers:
        loop.add_signal_handler(number, ask)
    try:
        yield
    finally:
        forget()


def run_to_end(program: Coroutine[Any, Any, None]) -> None:
    """Run a program that calls functions of others on an event loop of its own.

    asyncio lets SystemExit and KeyboardInterrupt of any task out of the loop. Our own tasks keep
    them in. One that a function of others has begun does not: whoever waits for it is told all the
    same, and the rest goes on, unless a signal raised it.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        main = loop.create_task(program)
        while True:
            try:
                return loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt) as raised:
                if main.done() or came_by_signal(raised):
                    raise
                log.exception(
                    "a task that a function of this program started tried to exit; the program "
                    "continues"
                )


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


def bus_broker(settings: Settings, nats: str = "") -> BusBroker | None:
    """Where the outbox is published: what was said here, or else the settings. None: nowhere."""
    field = "nats" if nats else "tape.outbox.nats"
    url = nats or settings.outbox.nats
    if not url:
        return None
    return open_bus_broker(url, settings.stream, keep_s=settings.outbox.keep_s, field=field)


async def refresh_metrics(operations: Operations) -> None:
    """Bring the gauges of what the store holds up to date."""
    from tape.telemetry import metrics

    await _refresh_outbox(operations)
    head = (await operations.info()).head_global_seq
    metrics.JOURNAL_HEAD.set(head)
    states = await operations.reactions.list_reactions()
    for (reaction_id,) in metrics.LAG.series().keys() - {(s.reaction.reaction_id,) for s in states}:
        metrics.forget_reaction(reaction_id)
    for state in states:
        reaction_id = state.reaction.reaction_id
        metrics.LAG.labels(reaction_id).set(max(0, head - state.position))
        metrics.TASKS_PENDING.labels(reaction_id).set(state.pending)
        metrics.TASKS_CLAIMED.labels(reaction_id).set(state.claimed)
        metrics.DEAD_LETTERS.labels(reaction_id).set(state.dead_letters)
    await _refresh_drainers(operations)
    await _refresh_waiting_runs(operations)


async def _refresh_drainers(operations: Operations) -> None:
    from tape.telemetry import metrics

    states = [state for state in await operations.ledger.list_drainers() if state.subscriptions]
    names = {(state.drainer.drainer_id,) for state in states}
    for (drainer_id,) in (
        metrics.DRAINER_LAG.series().keys() | metrics.DRAINED.series().keys()
    ) - names:
        metrics.forget_drainer(drainer_id)
    for state in states:
        drainer_id = state.drainer.drainer_id
        metrics.DRAINER_LAG.labels(drainer_id).set(state.lag)
        drainer, now_ms = state.drainer, time.time() * 1000
        is_halted, is_waiting = drainer.halted_on_event_id, drainer.waiting_on_run_id
        halted_ms = max(0.0, now_ms - drainer.halted_at_ms) if is_halted else 0.0
        waiting_ms = max(0.0, now_ms - drainer.waiting_since_ms) if is_waiting else 0.0
        metrics.DRAINER_HALTED.labels(drainer_id).set(bool(is_halted))
        metrics.DRAINER_HALTED_SECONDS.labels(drainer_id).set(halted_ms / 1000)
        metrics.DRAINER_WAITING_SECONDS.labels(drainer_id).set(waiting_ms / 1000)


async def _refresh_waiting_runs(operations: Operations) -> None:
    from tape.telemetry import metrics

    groups = (await operations.runs.list_waiting_runs())[: metrics.RUNS_WAITING_SERIES]
    for app_name, _pool in metrics.RUNS_WAITING.series():
        metrics.RUNS_WAITING.forget(app_name)
        metrics.RUNS_WAITING_SECONDS.forget(app_name)
    for group in groups:
        labels = (group.app_name, group.pool)
        metrics.RUNS_WAITING.labels(*labels).set(group.waiting)
        waited_s = max(0.0, time.time() - group.since_ms / 1000)
        metrics.RUNS_WAITING_SECONDS.labels(*labels).set(waited_s)


async def _refresh_outbox(operations: Operations) -> None:
    from tape.telemetry import metrics

    status = await operations.outbox.outbox_status()
    metrics.OUTBOX_WAITING.set(status.waiting)
    metrics.OUTBOX_UNPROMOTED.set(status.unpromoted)
    metrics.OUTBOX_OLDEST.set(status.oldest_ms / 1000)
    metrics.OUTBOX_FAILING.set(len(status.failing))


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
