"""One subscription in one process: registered, listened to, and its runs driven.

    document ──► registered ──► active ──► held and listened to ──► draining ──► deactivated

What a server does for many subscriptions this does for one, from its registration to its end. On a
store it needs no other process; at a server it hands the messages over to that. Told to stop, it
fetches nothing more, finishes what it has in hand and leaves the subscription deactivated.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from tape.bus import Operations
from tape.client.run_calls import lease_owner
from tape.errors import NotFound, StoreUnavailable, TapeError, WrongState
from tape.model.entry import Entry, Kind
from tape.model.subscription import SubscriptionState, SubscriptionVerb
from tape.model.subscription_spec import SubscriptionSpec
from tape.programs.event_loop import run_to_end, stopping_on_signals
from tape.programs.file_sink import FileSink
from tape.programs.health_door import answering_probes
from tape.programs.listening import listeners_keeper
from tape.programs.opening_credentials import opening_credentials
from tape.programs.subscription_document import check_apps, check_fetched, pools_of
from tape.programs.subscription_lease import until_free
from tape.programs.subscription_tally import RunCounts, RunTally, open_runs, word_of
from tape.programs.subscription_trail import SubscriptionTrail, position_after, told_of
from tape.programs.worker import WorkerOptions, opened_to_work, work_at
from tape.settings import Settings
from tape.subscriptions.listener import ListenerEnd, ListeningManner
from tape.subscriptions.operations import HoldSubscription, SubscriptionView
from tape.subscriptions.spec import read_document
from tape.telemetry.tracing import export_spans

GRACE_S: Final = 8.0
STORE_S: Final = 5.0
"""A process that is told to stop ends within 30 s: it has STORE_S to say so, GRACE_S for what is in
hand beside what a listener gives its source to close, and STORE_S to read what the journal has."""
LETTERS_NAMED: Final = 10
COUNTED: Final = ("fetched", "accepted", "redelivered", "deduplicated", "dead_lettered")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """`document` is its text. `worker` says where the journal is and what is declared here, and
    `drives_runs` whether that is worked on. With `once` it ends when the source is empty and the
    runs that are driven here have ended. `events` gets each entry of the subscription and of its
    runs. At `health_address` probes are answered from the start, also while the lease of one that
    was killed runs out."""

    document: str
    worker: WorkerOptions = field(default_factory=WorkerOptions)
    drives_runs: bool = False
    once: bool = False
    events: FileSink | None = None
    health_address: str | None = None


class SubscribeReport(NamedTuple):
    """What was done meanwhile. `trouble` is why it ended otherwise than because it was told to, or
    because the source was empty."""

    name: str
    state: str
    revision: int
    counts: dict[str, int]
    runs: RunCounts
    failed_runs: list[str]
    trouble: str


def run_subscribe(
    options: SubscribeOptions, *, on_ready: Callable[[SubscriptionView], None], note: Say
) -> SubscribeReport:
    """Work for a subscription in a program without an event loop, until SIGTERM or Ctrl-C."""
    reports: list[SubscribeReport] = []

    async def until_signalled() -> None:
        stop = asyncio.Event()
        with stopping_on_signals(stop):
            reports.append(await subscribe(options, on_ready=on_ready, note=note, stop=stop))

    send_spans = export_spans("tape-subscribe")
    try:
        run_to_end(until_signalled())
    finally:
        send_spans()
    return reports[0]


async def subscribe(
    options: SubscribeOptions,
    *,
    on_ready: Callable[[SubscriptionView], None],
    note: Say,
    stop: asyncio.Event,
) -> SubscribeReport:
    """Work for the subscription of a document until `stop` is set, or with `once` to its end."""
    spec = (await asyncio.to_thread(read_document, options.document)).spec
    check_fetched(spec)
    worker = replace(
        options.worker,
        settings=_bounded(options.worker.settings),
        owner=options.worker.owner or lease_owner(),
        other_pools=pools_of(spec, options.worker.apps),
    )
    options = replace(options, worker=worker)
    async with AsyncExitStack() as running:
        if options.events is not None:
            running.push_async_callback(options.events.close)
        opened = opened_to_work(worker, listens_for=lambda row: row.name == spec.name)
        operations = await running.enter_async_context(opened)
        answering = answering_probes(operations, options.health_address, worker.settings.doors)
        if health := await running.enter_async_context(answering):
            note(f"health {health}")
        work = SubscriptionWork(operations, spec, options, on_ready, note)
        try:
            return await work.run(stop)
        finally:
            await work.close()


def _bounded(settings: Settings) -> Settings:
    """With times of grace in which this process can end."""
    listeners, dispatcher = settings.listeners, settings.dispatcher
    return replace(
        settings,
        listeners=replace(listeners, grace_s=min(listeners.grace_s, GRACE_S)),
        dispatcher=replace(dispatcher, grace_s=min(dispatcher.grace_s, GRACE_S)),
    )


class SubscriptionWork:
    """Use it once. It goes on until it is told to stop, or something of it ends."""

    def __init__(
        self,
        operations: Operations,
        spec: SubscriptionSpec,
        options: SubscribeOptions,
        on_ready: Callable[[SubscriptionView], None],
        note: Say,
    ) -> None:
        self._operations = operations
        self._subscriptions = operations.subscriptions
        self._spec = spec
        self._options = options
        self._worker = options.worker
        self._on_ready = on_ready
        self._note = note
        self._tally = RunTally(self._worker.apps.apps if options.drives_runs else ())
        self._trails: list[SubscriptionTrail] = []
        self._head = 0
        """Where the journal ended when this began."""
        self._working: list[asyncio.Task[None]] = []
        self._following: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self._unheld = asyncio.Event()
        self._unheld.set()
        self._stop_working = asyncio.Event()
        self._is_ready = self._is_draining = False
        self._trouble = ""

    async def run(self, stop: asyncio.Event) -> SubscribeReport:
        stopping = asyncio.create_task(stop.wait())
        preparing = asyncio.create_task(self._prepare())
        try:
            await asyncio.wait((stopping, preparing), return_when=asyncio.FIRST_COMPLETED)
            if not preparing.done():
                return SubscribeReport(self._spec.name, "", 0, {}, RunCounts(), [], "")
            preparing.result()
            begun = await self._activate()
            await self._listen(begun, stopping)
            return await self._report(begun)
        finally:
            await _cancel(stopping, preparing)

    async def close(self) -> None:
        """End at once what still goes on, because something has failed."""
        self._stop_working.set()
        await _cancel(*self._working, *self._following)

    async def _prepare(self) -> None:
        """Everything that may be refused before anything is registered."""
        if self._options.drives_runs:
            await self._start_worker()
            check_apps(self._spec, self._worker.apps, self._note)
        await self._until_free()
        await self._check_state()
        await self._follow_journal()

    async def _start_worker(self) -> None:
        ready = asyncio.Event()
        work = work_at(
            self._operations,
            self._worker,
            on_ready=lambda _ready: ready.set(),
            stop=self._stop_working,
        )
        working = asyncio.create_task(work, name="tape-working")
        waiting = asyncio.create_task(ready.wait())
        self._working.append(working)
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        await _cancel(waiting)
        if working.done():
            working.result()

    async def _until_free(self) -> None:
        await until_free(
            self._subscriptions,
            self._spec.name,
            self._worker.owner,
            look_s=self._worker.settings.listeners.look_s,
            note=self._note,
        )

    async def _follow_journal(self) -> None:
        operations, name, events = self._operations, self._spec.name, self._options.events
        self._head = (await operations.info()).head_global_seq
        if events is None:
            patterns = told_of(name)
            self._trails = [
                SubscriptionTrail(operations, name, self._head, self._take, pattern=pattern)
                for pattern in patterns
            ]
        else:
            known = await position_after(operations, await events.open())
            after = self._head if known is None else known
            self._trails = [SubscriptionTrail(operations, name, after, self._take, sink=events)]
        if self._options.once and self._options.drives_runs:
            apps = self._worker.apps.apps
            self._tally.expect(await open_runs(operations.runs, name, apps))
        self._following = [asyncio.create_task(trail.follow()) for trail in self._trails]

    async def _check_state(self) -> None:
        """Refuse to wake what somebody has paused; end what one that is gone was to drain."""
        name = self._spec.name
        try:
            state = (await self._subscriptions.get_subscription(name)).subscription.state
        except NotFound:
            return
        if state == SubscriptionState.PAUSED:
            raise WrongState(
                f"subscription {name!r} is paused: `tape subscriptions resume {name}` lets it go "
                "on, and then this command can listen",
                state=state,
            )
        if state == SubscriptionState.DRAINING:
            ttl_ms = round(self._worker.settings.listeners.lease_s * 1000)
            hold = HoldSubscription(name, self._worker.owner, ttl_ms)
            await self._subscriptions.hold_subscription(hold)

    async def _activate(self) -> SubscriptionView:
        registered = await self._subscriptions.register_subscription(self._options.document)
        name = registered.view.subscription.name
        return await self._subscriptions.move_subscription(name, SubscriptionVerb.ACTIVATE)

    async def _listen(self, begun: SubscriptionView, stopping: asyncio.Task[Any]) -> None:
        """Until something ends, and then to the end of everything."""
        stop = asyncio.Event()
        async with opening_credentials(self._operations) as open_credential:
            keeper = listeners_keeper(
                self._operations,
                open_credential,
                lambda row: row.name == self._spec.name,
                self._worker.settings.listeners,
                owner=self._worker.owner,
                manner=ListeningManner(
                    tells_received=self._options.events is not None,
                    when_empty=self._when_empty if self._options.once else None,
                ),
                observe=lambda end: self._observe(end, begun),
            )
            listening = asyncio.create_task(keeper.run(stop), name="tape-listening")
            watching = asyncio.create_task(self._watch_lease())
            ended = asyncio.create_task(self._ended.wait())
            own = (listening, watching, *self._working, *self._following)
            try:
                await asyncio.wait((*own, ended, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not watching.done():
                    await self._drain()
                stop.set()
                self._stop_working.set()
                await asyncio.wait((listening, *self._working))
                await self._read_to_the_end()
            finally:
                await _cancel(ended, watching, listening)
            for task in own:
                if not task.cancelled():
                    task.result()

    async def _drain(self) -> None:
        self._is_draining = True
        try:
            async with asyncio.timeout(STORE_S):
                await self._subscriptions.move_subscription(self._spec.name, SubscriptionVerb.DRAIN)
        except (TapeError, TimeoutError) as error:
            why = str(error) or "the journal does not answer"
            self._trouble = self._trouble or f"{self._spec.name} could not be drained: {why}"

    async def _read_to_the_end(self) -> None:
        for trail in self._trails:
            trail.end()
        _read, unread = await asyncio.wait(self._following, timeout=STORE_S)
        if unread:
            raise StoreUnavailable("the journal does not answer: its last entries were not read")

    async def _when_empty(self) -> None:
        """Wait for the runs that are driven here, and drain while the subscription is still held:
        so whoever lets go deactivates it. The listener may notice that, and cancel this, before the
        answer is here."""
        if self._options.drives_runs:
            for trail in self._trails:
                await trail.catch_up()
            if waits := self._tally.open:
                self._note(f"waiting for {waits} run{'' if waits == 1 else 's'} to end")
            await self._tally.until_settled()
        try:
            await self._drain()
        finally:
            self._ended.set()

    async def _watch_lease(self) -> None:
        """LeaseHeld once another process has the lease, and renews it."""
        while True:
            await self._unheld.wait()
            with suppress(StoreUnavailable):
                await self._until_free()
            await asyncio.sleep(self._worker.settings.listeners.look_s)

    def _observe(self, end: ListenerEnd | None, begun: SubscriptionView) -> None:
        if end is not None:
            self._unheld.set()
            if end.is_trouble and self._options.once:
                self._end_with(f"subscription {self._spec.name!r}: {end.because}")
            return
        self._unheld.clear()
        if not self._is_ready:
            self._is_ready = True
            self._on_ready(begun)

    def _take(self, entry: Entry) -> None:
        """An entry of the subscription or of its runs."""
        if entry.global_seq <= self._head:
            return
        self._tally.note(entry)
        if entry.kind != Kind.SUBSCRIPTION:
            return
        name, word, payload = self._spec.name, word_of(entry), entry.payload
        if word == "message_dead_lettered" and self._tally.dead_letters <= LETTERS_NAMED:
            what, why = f"{payload['id']} of message {payload['message_id']}", payload["detail"]
            self._note(f"dead letter {what}: {payload['reason']}: {why}")
        elif word == "paused" and payload.get("by") == "listener":
            self._end_with(f"subscription {name!r} is refused: {payload['because']}")
        elif word == "paused":
            self._note(f"{name} is paused; `tape subscriptions resume {name}` lets it go on")
        elif word in ("draining", "deactivated") and not self._is_draining:
            by_others = f"subscription {name!r} was deactivated by somebody else"
            if self._options.once:
                self._end_with(by_others)
            elif not self._ended.is_set():
                self._note(by_others)
                self._ended.set()

    def _end_with(self, trouble: str) -> None:
        self._trouble = self._trouble or trouble
        self._ended.set()

    async def _report(self, begun: SubscriptionView) -> SubscribeReport:
        view = await self._subscriptions.get_subscription(self._spec.name)
        counts = {
            name: max(0, getattr(view.listener, name) - getattr(begun.listener, name))
            for name in COUNTED
        }
        subscription = view.subscription
        return SubscribeReport(
            subscription.name, subscription.state, subscription.revision, counts,
            self._tally.counts, self._tally.failed, self._trouble,
        )  # fmt: skip


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
