"""Tape in this process: the operations on a store, and what it does by itself."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

from tape.bus.operations import FollowQuery
from tape.bus.outbox import Outbox
from tape.bus.pages import page_bytes, page_entries
from tape.bus.reactions import CheckTarget, Reactions
from tape.bus.sessions import Sessions
from tape.bus.values import Values
from tape.journal.follow import Follow, Page, check_position, follow
from tape.journal.ids import UlidFactory
from tape.journal.pacer import Pacer
from tape.journal.writer import Writer
from tape.ledger.operations import Ledger
from tape.model.entry import Trace
from tape.model.event import NewEvent, Recorded, RecordEvents
from tape.model.names import check_name
from tape.model.subject import parse_pattern
from tape.model.subscription_spec import SubscriptionSpec
from tape.outbox.relay import OutboxRelay
from tape.ports.broker import BusBroker
from tape.ports.source import OpenSource
from tape.ports.store import JournalInfo, Store
from tape.predicates import Checker, PredicateLimits
from tape.reactions.agents import Agents
from tape.reactions.lead import Leader
from tape.reactions.tasks import Tasks
from tape.runs.operations import Runs
from tape.settings import Limits, Settings
from tape.subscriptions.operations import ListensHere, Subscriptions
from tape.wallet.keys import NO_KEYS, KeySource
from tape.wallet.operations import Wallet


class Bus:
    """Tape in this process. Create it on the event loop it will be used on."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        check_target: CheckTarget | None = None,
        keys: KeySource = NO_KEYS,
        open_source: OpenSource | None = None,
        listens_for: ListensHere = lambda _row: False,
    ) -> None:
        """Without `open_source` a subscription is activated without a look at its source and at the
        credentials that it names, and a source that this process does not listen to is not looked
        at."""
        self._store = store
        self._limits: Limits = settings.limits
        self._writer = Writer(store, settings.writer)
        self._ids = UlidFactory()
        written = (store, self._writer, self._ids, self._limits)
        self.pacer = Pacer(settings.predicates)
        self.checker = Checker(
            PredicateLimits(length=self._limits.predicate_bytes), self.pacer.call_in_thread
        )
        self.runs = Runs(*written)
        self.tasks = Tasks(*written)
        self.values = Values(*written, self.runs)
        self.sessions = Sessions(*written, self.runs)
        self.reactions = Reactions(store, self._writer, self._limits, self.checker, check_target)
        self.ledger = Ledger(
            store, self._writer, self._ids, settings, pacer=self.pacer, checker=self.checker
        )
        self.outbox = Outbox(*written)
        self.wallet = Wallet(*written, keys)
        self.subscriptions = Subscriptions(
            *written,
            has_credential=self.wallet.has_credential if open_source else None,
            check_source=partial(self._check_source, open_source) if open_source else None,
            listens_for=listens_for,
        )
        self._settings = settings
        self._leading: asyncio.Task[None] | None = None
        self._draining: asyncio.Task[None] | None = None
        self._tidying: asyncio.Task[None] | None = None
        self._relaying: asyncio.Task[None] | None = None
        self._stop_relay = asyncio.Event()

    @property
    def exposed(self) -> bool:
        return False

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def limits(self) -> Limits:
        return self._limits

    async def record_events(self, events: Sequence[NewEvent]) -> list[Recorded]:
        if not events:
            return []
        joined = [await self._in_trace(e) if e.run_id and not e.trace_id else e for e in events]
        move = RecordEvents(joined, self._ids.take(len(joined)), self._limits)
        return await self._writer.submit(move)

    async def _in_trace(self, event: NewEvent) -> NewEvent:
        trace = Trace(event.trace_id, event.span_id, event.parent_span_id)
        return event._replace(**(await self.runs.joined(event.run_id, trace))._asdict())

    def follow(self, query: FollowQuery) -> AsyncGenerator[Page, None]:
        check_position(query.after, "from_global_seq")
        check_position(query.until, "to_global_seq")
        check_position(query.from_ts_ms, "from_ts_ms")
        wanted = partial(
            Follow,
            pattern=parse_pattern(query.pattern, limits=self._limits),
            after=query.after,
            max_entries=page_entries(query.max_batch, self._limits),
            max_bytes=page_bytes(query.max_bytes, self._limits),
            kind=check_name(query.kind, self._limits, field="kind"),
            run_id=check_name(query.run_id, self._limits, field="run_id"),
            from_ts_ms=query.from_ts_ms,
            until=query.until,
        )
        predicate = self.checker.at_once(query.predicate)
        if predicate is None:
            return self._follow_checked(query.predicate, wanted)
        return follow(self._store, wanted(predicate=predicate), self.pacer.turns())

    async def _follow_checked(
        self, expression: str, wanted: Callable[..., Follow]
    ) -> AsyncGenerator[Page, None]:
        predicate = await self.checker.checked(expression)
        what = wanted(predicate=predicate)
        async with aclosing(follow(self._store, what, self.pacer.turns())) as pages:
            async for page in pages:
                yield page

    async def info(self) -> JournalInfo:
        return await self._store.info()

    async def _check_source(self, open_source: OpenSource, spec: SubscriptionSpec) -> None:
        """Open a source as a listener will, and close it again."""
        auth = spec.source.auth
        credential = await self.wallet.open_credential(auth) if auth else None
        source = await open_source(spec.source, credential, name=f"tape-check-{spec.name}")
        await source.close()

    def start_matching(self) -> None:
        """Match entries to reactions in this process, whenever no other does."""
        if self._leading is None:
            agents = Agents(self._store, self._writer, self._ids, self.tasks, self._limits)
            leader = Leader(
                self._store, self._writer, self._ids, self._settings.matcher, agents.begin_runs,
                pacer=self.pacer,
            )  # fmt: skip
            self._leading = asyncio.create_task(leader.run(), name="tape-leader")

    def start_draining(self) -> None:
        """Drain what event subscriptions ask for in this process, whenever no other does."""
        if self._draining is None:
            work = self.ledger.drain_loop().run()
            self._draining = asyncio.create_task(work, name="tape-draining")

    def start_upkeep(self) -> None:
        """Remove in this process what declared subscriptions leave behind."""
        if self._tidying is None:
            work = self.subscriptions.upkeep.run()
            self._tidying = asyncio.create_task(work, name="tape-upkeep")

    def start_relay(self, broker: BusBroker | None) -> None:
        """Take outbox rows to the journal, and from there to the broker if there is one, in this
        process, whenever no other does."""
        if self._relaying is None:
            self._relaying = asyncio.create_task(
                self.relay_outbox(broker, self._stop_relay), name="tape-relay"
            )

    async def relay_outbox(self, broker: BusBroker | None, stop: asyncio.Event) -> None:
        """The same, until `stop` is set; the broker is closed at the end."""
        relay = OutboxRelay(
            self._store, self._writer, self._ids, self._settings.outbox, self._limits, broker=broker
        )
        await relay.run(stop)

    async def close(self) -> None:
        """Write what is queued, then let the store go."""
        self._stop_relay.set()
        if self._relaying is not None:
            await asyncio.gather(self._relaying, return_exceptions=True)
        serving = (self._leading, self._draining, self._tidying)
        tasks = [task for task in serving if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.pacer.close()
        await self.wallet.close()
        await self._writer.close()
        await self.subscriptions.close()
        await self._store.close()
