"""A worker: a process that does the work of reactions, and drives the runs of its pool.

It registers what is declared, and works until it is told to stop. On a store in this process it
also matches and drains whenever no other process does, so that it needs no server; with a server's
URL the server does that.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple

from tape.brokers.by_target import open_broker
from tape.brokers.logins import Logins
from tape.brokers.reach import Reach, places
from tape.brokers.targets import parse_target
from tape.bus import Bus, FollowQuery, Operations
from tape.client.run_calls import lease_owner
from tape.client.running_loop import refuse_running_loop
from tape.errors import InvalidArgument, TapeError
from tape.ledger.declare import DECLARED_EVENT_SUBSCRIPTIONS, EventSubscriptions, put_declared
from tape.model.reaction import HandlerKind, Reaction
from tape.model.run import DEFAULT_POOL
from tape.model.task import ANY_SHARD
from tape.ports.broker import Broker
from tape.programs.connect import default_token, default_url, nothing, open_operations
from tape.programs.event_loop import run_to_end, stopping_on_signals
from tape.programs.health_door import answering_probes
from tape.programs.listening import ListensFor, listeners_keeper, opening_sources
from tape.programs.opening_credentials import opening_credentials
from tape.programs.store_gauges import refresh_metrics
from tape.reactions.declare import DECLARED, Declaration, Registry, register_declared
from tape.reactions.dispatch import Dispatcher, ReactionJob
from tape.reactions.threads import HandlerThreads
from tape.reactions.work import CallHandler, PublishTasks, TaskWork
from tape.runs.declare import DECLARED_APPS, App, Apps
from tape.runs.reactors.run_reactors import RunReactors
from tape.settings import DispatcherSettings, Settings
from tape.subscriptions.operations import ListensHere
from tape.telemetry.loop_watch import watched_loop
from tape.telemetry.tracing import export_spans

log = logging.getLogger("tape.worker")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a worker works on. `bridge` publishes tasks there instead of calling their handlers."""

    url: str | None = None
    token: str | None = None
    registry: Registry = field(default_factory=lambda: DECLARED)
    settings: Settings = field(default_factory=Settings)
    owner: str = ""
    bridge: str = ""
    reaction_ids: tuple[str, ...] = ()
    """Only these; by default all that are declared, for a bridge all that make tasks."""
    shard: int = ANY_SHARD
    """Only this shard of each; negative is any."""
    apps: Apps = field(default_factory=lambda: DECLARED_APPS)
    """What it can run."""
    event_subscriptions: EventSubscriptions = field(
        default_factory=lambda: DECLARED_EVENT_SUBSCRIPTIONS
    )
    """Which events run it."""
    pool: str = DEFAULT_POOL
    """Whose runs it takes, and no others but those of `other_pools`."""
    other_pools: tuple[str, ...] = ()
    listen: str = ""
    """The pool of listeners that it is one of; empty for none."""
    http_address: str | None = None
    """Where to answer /metrics, /healthz and /readyz; on this machine only."""
    health_address: str | None = None
    """Where to answer /healthz and /readyz alone: to anybody, without a token or TLS."""


class Ready(NamedTuple):
    """What a worker has begun to serve, and where it answers HTTP and probes."""

    reactions: list[Reaction]
    http: str | None
    apps: list[App[Any]]
    health: str | None = None


async def work(
    options: WorkerOptions,
    *,
    on_ready: Callable[["Ready"], None] = lambda _ready: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Work until `stop` is set; then finish what is in hand."""
    async with opened_to_work(options) as operations:
        await work_at(operations, options, on_ready=on_ready, stop=stop)


@asynccontextmanager
async def opened_to_work(
    options: WorkerOptions, *, listens_for: ListensHere = nothing
) -> AsyncIterator[Operations]:
    """Within this, what the options name. On a store it also matches and drains."""
    operations = await open_operations(
        options.url or default_url(),
        options.token or default_token(),
        _settings_of(options),
        listens_for=listens_for,
    )
    try:
        if isinstance(operations, Bus):
            operations.start_matching()
            operations.start_draining()
            operations.start_upkeep()
        yield operations
    finally:
        await operations.close()


async def work_at(
    operations: Operations,
    options: WorkerOptions,
    *,
    on_ready: Callable[["Ready"], None] = lambda _ready: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Like `work`, at what `opened_to_work` has opened by these options."""
    settings = _settings_of(options)
    async with AsyncExitStack() as running:
        open_credential = await running.enter_async_context(opening_credentials(operations))
        logins = Logins(settings.credentials, open_credential)
        brokers = _Brokers(Reach.of(settings, exposed=operations.exposed), logins, running)
        await brokers.open_declared(options)
        await register_declared(operations.reactions, options.registry, options.apps.apps)
        await put_declared(operations.ledger, options.event_subscriptions)
        reactions = await _served(operations, options)
        executor = HandlerThreads(settings.dispatcher.threads)
        running.callback(executor.shutdown)
        owner = options.owner or lease_owner()
        jobs = await _jobs(reactions, options, executor, brokers)
        http = await _answer_http(operations, options.http_address, settings, running)
        answering = answering_probes(operations, options.health_address, settings.doors)
        health = await running.enter_async_context(answering)
        on_ready(Ready(reactions, http, list(options.apps), health))
        stop = stop or asyncio.Event()
        leases = (settings.dispatcher.lease_s, settings.reactors.recovery.lease_ttl_s)
        running.enter_context(watched_loop(min(leases)))
        try:
            async with asyncio.TaskGroup() as group:
                if jobs:
                    dispatcher = Dispatcher(operations.tasks, jobs, owner, settings.dispatcher)
                    group.create_task(dispatcher.run(stop))
                if options.apps.apps or options.apps.effects:
                    threads = HandlerThreads(settings.reactors.threads)
                    running.callback(threads.shutdown)
                    reactors = RunReactors(
                        operations,
                        options.apps,
                        settings.reactors,
                        threads,
                        owner=owner,
                        pool=options.pool,
                        other_pools=options.other_pools,
                        open_source=opening_sources(open_credential),
                    )
                    listen = partial(_listen, operations)
                    group.create_task(reactors.work(listen, stop, settings.dispatcher.grace_s))
                if options.listen:
                    wanted = ListensFor(options.listen)
                    keeper = listeners_keeper(
                        operations, open_credential, wanted, settings.listeners,
                        owner=owner, on_first_look=wanted.log_pool,
                    )  # fmt: skip
                    group.create_task(keeper.run(stop))
                # With agent reactions alone there is nothing more to do here than to match.
                group.create_task(stop.wait())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None


async def _listen(operations: Operations, pattern: str, ring: Callable[[], None]) -> None:
    """Ring for each page of entries from now on."""
    head = (await operations.info()).head_global_seq
    async with aclosing(operations.follow(FollowQuery(pattern, after=head))) as pages:
        async for page in pages:
            if page.entries:
                ring()


async def _answer_http(
    operations: Operations, address: str | None, settings: Settings, running: AsyncExitStack
) -> str | None:
    if address is None:
        return None
    from tape.api.auth import Tokens
    from tape.api.http.door import Door
    from tape.api.http_server import HttpServer, health_app

    door = Door(
        operations,
        Tokens(),
        lambda: refresh_metrics(operations),
        settings.limits,
        settings=settings.doors,
    )
    listening = HttpServer(lambda: health_app(door), door)
    running.push_async_callback(listening.stop)
    return await listening.start(address)


def refuse_inside_loop(
    function: str,
    instead: str = "await tape.worker.work(tape.worker.WorkerOptions(url=url), stop=stop)",
) -> None:
    """Refuse to run a worker by a function that blocks, where an event loop is running."""
    refuse_running_loop(function, instead)


def run_worker(
    options: WorkerOptions,
    *,
    on_ready: Callable[[Ready], None] = lambda _ready: None,
) -> None:
    """Run a worker in a program without an event loop, until SIGTERM or Ctrl-C."""
    refuse_inside_loop("run_worker")

    async def until_signalled() -> None:
        stop = asyncio.Event()
        with stopping_on_signals(stop):
            await work(options, on_ready=on_ready, stop=stop)

    send_spans = export_spans("tape-worker")
    try:
        run_to_end(until_signalled())
    finally:
        send_spans()


async def register(
    url: str | None, token: str | None, settings: Settings | None = None
) -> list[Reaction]:
    """Register every declared reaction and event subscription; the reactions as they are now."""
    operations = await open_operations(
        url or default_url(), token or default_token(), settings or Settings()
    )
    try:
        await put_declared(operations.ledger, DECLARED_EVENT_SUBSCRIPTIONS)
        return await register_declared(operations.reactions, apps=DECLARED_APPS.apps)
    finally:
        await operations.close()


async def _served(operations: Operations, options: WorkerOptions) -> list[Reaction]:
    """The reactions that this worker serves. Runs of `agent` ones are begun by who matches."""
    registered = {
        state.reaction.reaction_id: state.reaction
        for state in await operations.reactions.list_reactions()
    }
    unknown = set(options.reaction_ids) - registered.keys()
    if unknown:
        name = min(unknown)
        near = get_close_matches(name, registered, n=1)
        meant = f". Did you mean {near[0]!r}?" if near else ""
        raise InvalidArgument(f"{name!r} is not registered{meant}", field="reaction_id")
    wanted: Iterable[str] = options.reaction_ids
    if not wanted and options.bridge:
        wanted = (name for name, r in registered.items() if r.handler_kind == HandlerKind.TASK)
    elif not wanted:
        wanted = (declaration.new.reaction_id for declaration in options.registry)
    served = [registered[name] for name in wanted if name in registered]
    if not served and not options.apps.apps and not options.listen:
        raise InvalidArgument(
            "there is nothing to do: no app and no reaction is declared in this process, and it "
            "listens for no pool",
            field="reactions",
        )
    return served


class _Brokers:
    """What is published to, each opened once."""

    def __init__(self, reach: Reach, logins: Logins, running: AsyncExitStack) -> None:
        self._reach = reach
        self._logins = logins
        self._running = running
        self._open: dict[str, Broker] = {}

    async def at(self, target: str) -> Broker:
        if target not in self._open:
            self._open[target] = await open_broker(target, self._reach, self._logins)
            self._running.push_async_callback(self._open[target].close)
        return self._open[target]

    async def open_declared(self, options: WorkerOptions) -> None:
        """All that this worker will need, before anything is registered: a reaction that nobody can
        serve, for want of a secret or a package, would collect tasks."""
        if options.bridge:
            await self.at(options.bridge)
            return
        for declaration in options.registry:
            new = declaration.new
            if not new.publish_target or new.reaction_id not in (
                options.reaction_ids or [new.reaction_id]
            ):
                continue
            try:
                await self.at(new.publish_target)
            except TapeError as error:
                error.args = (f"{declaration.origin}: {error}",)
                raise


async def _jobs(
    reactions: Iterable[Reaction], options: WorkerOptions, executor: Executor, brokers: _Brokers
) -> Mapping[str, ReactionJob]:
    jobs: dict[str, ReactionJob] = {}
    for reaction in reactions:
        if reaction.handler_kind == HandlerKind.AGENT:
            continue
        target = options.bridge or reaction.publish_target
        declared = options.registry.get(reaction.reaction_id)
        job: TaskWork
        if target:
            job = PublishTasks(await brokers.at(target))
        else:
            job = CallHandler(_handler(reaction, declared), executor)
        jobs[reaction.reaction_id] = ReactionJob(job, reaction.max_concurrency, options.shard)
    return jobs


def _settings_of(options: WorkerOptions) -> Settings:
    return _trusting(_from_environment(options.settings), options)


def _trusting(settings: Settings, options: WorkerOptions) -> Settings:
    """With the hosts that this program itself publishes to: what it declares, and its bridge."""
    declared = (declaration.new.publish_target for declaration in options.registry)
    hosts: list[str] = []
    for target in filter(None, (*declared, options.bridge)):
        with suppress(InvalidArgument):  # whoever registers or opens it says what is wrong with it
            hosts += map(str, places(parse_target(target)))
    brokers = replace(settings.brokers, hosts=(*settings.brokers.hosts, *hosts))
    return replace(settings, brokers=brokers)


def _handler(reaction: Reaction, declared: Declaration | None) -> Callable[[dict[str, Any]], Any]:
    if declared is None or declared.handler is None:
        raise InvalidArgument(
            f"{reaction.reaction_id!r} has no handler in this process", field="reaction_id"
        )
    return declared.handler


def _from_environment(settings: Settings) -> Settings:
    """TAPE_LEASE_MS, where it is set and the settings leave the default."""
    lease_ms = os.environ.get("TAPE_LEASE_MS", "")
    if not lease_ms or settings.dispatcher.lease_s != DispatcherSettings().lease_s:
        return settings
    if not lease_ms.isdecimal() or int(lease_ms) < 100:
        raise InvalidArgument(f"{lease_ms!r} is not a number of 100 or more", field="TAPE_LEASE_MS")
    return replace(settings, dispatcher=replace(settings.dispatcher, lease_s=int(lease_ms) / 1000))
