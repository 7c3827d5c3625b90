"""The operations every door calls.

`Operations` is the one API of Tape: `Bus` does it in this process on a store, `tape.client` does it
over gRPC. A refused operation raises the same error either way.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple, Protocol

from tape.config import Limits, Settings
from tape.errors import Pruned, TapeError
from tape.journal.follow import Follow, Page, check_position, follow, follow_run, watch_value
from tape.journal.ids import UlidFactory
from tape.journal.pacer import Pacer
from tape.journal.writer import Writer
from tape.ledger.operations import Ledger, LedgerOperations
from tape.model.entry import NO_TRACE, Entry, Trace
from tape.model.event import NewEvent, Recorded, RecordEvents, check_trace
from tape.model.names import check_name
from tape.model.outbox import OutboxPlace
from tape.model.outbox_skip import SkipOutboxRow
from tape.model.reaction import (
    DeregisterReaction,
    NewReaction,
    Reaction,
    ReactionState,
    RegisterReaction,
)
from tape.model.session import (
    Appended,
    AppendEvent,
    CreateSession,
    DeleteSession,
    Session,
    SessionEvent,
    SessionKey,
    SessionWithEvents,
)
from tape.model.subject import EVERYTHING, parse_pattern
from tape.model.task import Task, TaskOutcome, TaskStatus
from tape.model.value import Author, Deleted, DeleteValue, Value, ValueChange, WriteValue
from tape.outbox.relay import Relay
from tape.ports.broker import BusBroker
from tape.ports.outbox import OutboxStatus
from tape.ports.store import JournalInfo, NamesOf, Store
from tape.ports.tasks import Claim
from tape.predicates import Checker, PredicateLimits
from tape.reactions.agents import Agents
from tape.reactions.lead import Leader
from tape.reactions.tasks import Tasks
from tape.runs.operations import RunOperations, Runs

DEFAULT_PAGE = 1_000
MAX_SESSION_EVENTS = 10_000
FAILING_TOLD = 100

CheckTarget = Callable[[str], None]
"""Refuses a publish target that no broker would know."""


class FollowQuery(NamedTuple):
    """Entries with a `global_seq` greater than `after`, in order; 0 is from the earliest kept.

    With `until` the pages end there instead of going on into the present. A page ends when it has
    `max_bytes` of payloads; 0 is as many as the limits allow.
    """

    pattern: str = EVERYTHING
    predicate: str = ""
    after: int = 0
    max_batch: int = 0
    kind: str = ""
    run_id: str = ""
    from_ts_ms: int = 0
    until: int = 0
    max_bytes: int = 0


class Operations(Protocol):
    @property
    def exposed(self) -> bool:
        """Whether others than this machine's programs can register reactions here."""

    @property
    def settings(self) -> Settings:
        """What this process is set to."""

    @property
    def runs(self) -> RunOperations:
        """The operations on runs."""

    @property
    def ledger(self) -> LedgerOperations:
        """The operations on event subscriptions, drainers and recent entries."""

    async def record_events(self, events: Sequence[NewEvent]) -> list[Recorded]:
        """Record all of them or none; the ids of each, in order, once durable."""

    def follow(self, query: FollowQuery) -> AsyncGenerator[Page, None]:
        """Pages of matching entries, from history into the present, until closed."""

    def follow_run(
        self, run_id: str, after_seq: int, max_bytes: int = 0
    ) -> AsyncGenerator[list[Entry], None]:
        """The entries of one run in its own order, until closed. Pages as in `FollowQuery`."""

    async def write_value(
        self, namespace: str, key: str, value_json: str, if_version: int, author: Author
    ) -> Value: ...

    async def get_value(self, namespace: str, key: str) -> Value | None:
        """The value, a tombstone if it was deleted, None if it never was."""

    def watch_value(
        self, namespace: str, key: str, from_version: int, max_bytes: int = 0
    ) -> AsyncGenerator[ValueChange, None]:
        """Its changes in order, until closed. About `max_bytes` are held, as in `FollowQuery`."""

    async def delete_value(self, namespace: str, key: str, author: Author) -> Deleted: ...

    async def list_values(self, namespace: str, after_key: str, limit: int) -> list[Value]: ...

    async def list_names(self, of: NamesOf, after: str, limit: int) -> list[str]:
        """Namespaces that hold a value, or apps that have a session, by name after `after`."""

    async def create_session(
        self, key: SessionKey, state_json: str, trace: Trace = NO_TRACE
    ) -> Session: ...

    async def get_session(self, key: SessionKey, max_events: int) -> SessionWithEvents | None: ...

    async def list_sessions(self, app_name: str, user_id: str) -> list[SessionWithEvents]: ...

    async def delete_session(self, key: SessionKey, trace: Trace = NO_TRACE) -> bool: ...

    async def append_event(
        self,
        key: SessionKey,
        event: SessionEvent,
        state_delta_json: str,
        run: tuple[str, int] = ("", 0),
        trace: Trace = NO_TRACE,
    ) -> Appended: ...

    async def register_reaction(self, new: NewReaction) -> Reaction:
        """Add a reaction, or change the settings of one that is there; never its cursors."""

    async def deregister_reaction(self, reaction_id: str) -> bool:
        """Stop it; False if there was none. Its tasks stay, unclaimed."""

    async def list_reactions(self, subject_pattern: str = "") -> list[ReactionState]:
        """All, those with this pattern, or those that this subject would wake."""

    async def claim_tasks(self, claim: Claim, wait_ms: int = 0) -> list[Task]:
        """Take tasks on lease; where there are none, wait so long for some."""

    async def listen_for_tasks(self, reaction_ids: Sequence[str], heard: int, wait_ms: int) -> int:
        """Wait until there may be tasks of these, at most so long. A hint, so it may be given up.

        `heard` is what the last call returned, 0 at first.
        """

    async def extend_tasks(self, owner: str, lease_ms: int, task_ids: Sequence[str]) -> list[str]:
        """Prolong leases; the ids of those the owner still holds."""

    async def settle_tasks(
        self, owner: str, outcomes: Sequence[TaskOutcome]
    ) -> list[TaskStatus | TapeError]:
        """What became of tasks the owner claimed; for each in order its status now, or why not."""

    async def get_task(self, task_id: str) -> Task | None: ...

    async def list_tasks(
        self, reaction_id: str, status: int = 0, limit: int = 0, after_task_id: str = ""
    ) -> list[Task]:
        """By reaction (empty is all), shard and source. Status 0 is any."""

    async def replay_dead_letters(self, reaction_id: str, task_ids: Sequence[str] = ()) -> int:
        """Queue dead letters again; without ids all of the reaction's. How many there were."""

    async def drop_dead_letters(self, reaction_id: str, task_ids: Sequence[str] = ()) -> int:
        """Give dead letters up for good; they stay on record as failed."""

    async def outbox_status(self) -> OutboxStatus:
        """What waits in the outbox, the first of what was not taken, and who leads."""

    async def skip_outbox_row(self, row_id: int, *, reason: str, by: str) -> OutboxPlace:
        """Let what comes after a row that was not taken pass it; the journal has the reason."""

    async def info(self) -> JournalInfo: ...

    async def close(self) -> None: ...


class Bus:
    """Tape in this process. Create it on the event loop it will be used on."""

    def __init__(
        self, store: Store, settings: Settings, *, check_target: CheckTarget | None = None
    ) -> None:
        self._store = store
        self._limits: Limits = settings.limits
        self._writer = Writer(store, settings.writer)
        self._ids = UlidFactory()
        self._check_target = check_target
        self._tasks = Tasks(store, self._writer, self._ids, self._limits)
        self._runs = Runs(store, self._writer, self._ids, self._limits)
        self.pacer = Pacer(settings.predicates)
        self.checker = Checker(
            PredicateLimits(length=self._limits.predicate_bytes), self.pacer.call_in_thread
        )
        self._ledger = Ledger(
            store, self._writer, self._ids, settings, pacer=self.pacer, checker=self.checker
        )
        self._settings = settings
        self._leading: asyncio.Task[None] | None = None
        self._draining: asyncio.Task[None] | None = None
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

    @property
    def runs(self) -> Runs:
        return self._runs

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    async def record_events(self, events: Sequence[NewEvent]) -> list[Recorded]:
        if not events:
            return []
        joined = [await self._in_trace(e) if e.run_id and not e.trace_id else e for e in events]
        move = RecordEvents(joined, self._ids.take(len(joined)), self._limits)
        return await self._writer.submit(move)

    async def _in_trace(self, event: NewEvent) -> NewEvent:
        trace = Trace(event.trace_id, event.span_id, event.parent_span_id)
        return event._replace(**(await self._runs.joined(event.run_id, trace))._asdict())

    async def _traced(self, author: Author) -> Author:
        check_trace(*author.trace)
        return author._replace(trace=await self._runs.joined(author.run_id, author.trace))

    def follow(self, query: FollowQuery) -> AsyncGenerator[Page, None]:
        check_position(query.after, "from_global_seq")
        check_position(query.until, "to_global_seq")
        check_position(query.from_ts_ms, "from_ts_ms")
        wanted = partial(
            Follow,
            pattern=parse_pattern(query.pattern, limits=self._limits),
            after=query.after,
            max_entries=self._page(query.max_batch),
            max_bytes=self._page_bytes(query.max_bytes),
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

    def follow_run(
        self, run_id: str, after_seq: int, max_bytes: int = 0
    ) -> AsyncGenerator[list[Entry], None]:
        check_name(run_id, self._limits, field="run_id", required=True)
        check_position(after_seq, "from_seq")
        most = self._page_bytes(max_bytes)
        return follow_run(self._store, run_id, after_seq, DEFAULT_PAGE, most)

    async def write_value(
        self, namespace: str, key: str, value_json: str, if_version: int, author: Author
    ) -> Value:
        move = WriteValue(
            namespace,
            key,
            value_json,
            if_version,
            author=await self._traced(author),
            event_id=next(self._ids),
            limits=self._limits,
        )
        return await self._writer.submit(move)

    async def get_value(self, namespace: str, key: str) -> Value | None:
        check_name(namespace, self._limits, field="namespace", required=True)
        check_name(key, self._limits, field="key", required=True)
        return await self._store.get_value(namespace, key)

    def watch_value(
        self, namespace: str, key: str, from_version: int, max_bytes: int = 0
    ) -> AsyncGenerator[ValueChange, None]:
        check_name(namespace, self._limits, field="namespace", required=True)
        check_name(key, self._limits, field="key", required=True)
        bounds = {"max_entries": DEFAULT_PAGE, "max_bytes": self._page_bytes(max_bytes)}
        return watch_value(self._store, namespace, key, from_version, **bounds)

    async def delete_value(self, namespace: str, key: str, author: Author) -> Deleted:
        traced = await self._traced(author)
        move = DeleteValue(namespace, key, traced, next(self._ids), self._limits)
        return await self._writer.submit(move)

    async def list_values(self, namespace: str, after_key: str, limit: int) -> list[Value]:
        check_name(namespace, self._limits, field="namespace", required=True)
        check_name(after_key, self._limits, field="after_key")
        return await self._store.list_values(namespace, after_key, self._page(limit))

    async def list_names(self, of: NamesOf, after: str, limit: int) -> list[str]:
        check_name(after, self._limits, field="after")
        return await self._store.list_names(of, after, self._page(limit))

    async def create_session(
        self, key: SessionKey, state_json: str, trace: Trace = NO_TRACE
    ) -> Session:
        event_id = next(self._ids)
        if not key.session_id:
            key = key._replace(session_id=event_id)
        move = CreateSession(key, state_json, event_id, self._limits, trace)
        return await self._writer.submit(move)

    async def get_session(self, key: SessionKey, max_events: int) -> SessionWithEvents | None:
        wanted = min(max_events, MAX_SESSION_EVENTS) if max_events > 0 else MAX_SESSION_EVENTS
        return await self._store.get_session(key.checked(self._limits), wanted)

    async def list_sessions(self, app_name: str, user_id: str) -> list[SessionWithEvents]:
        check_name(app_name, self._limits, field="app_name", required=True)
        check_name(user_id, self._limits, field="user_id", required=True)
        return await self._store.list_sessions(app_name, user_id)

    async def delete_session(self, key: SessionKey, trace: Trace = NO_TRACE) -> bool:
        return await self._writer.submit(DeleteSession(key, next(self._ids), self._limits, trace))

    async def append_event(
        self,
        key: SessionKey,
        event: SessionEvent,
        state_delta_json: str,
        run: tuple[str, int] = ("", 0),
        trace: Trace = NO_TRACE,
    ) -> Appended:
        event_id = next(self._ids)
        if not event.id:
            event = event._replace(id=event_id)
        move = AppendEvent(
            key,
            event,
            state_delta_json,
            event_id=event_id,
            limits=self._limits,
            run=run,
            trace=await self._runs.joined(run[0], trace),
        )
        return await self._writer.submit(move)

    async def register_reaction(self, new: NewReaction) -> Reaction:
        move = RegisterReaction(new, self._limits)
        await self.checker.checked(new.predicate_cel)
        if new.publish_target and self._check_target is not None:
            self._check_target(new.publish_target)
        if new.from_global_seq:
            await self._refuse_pruned(new.reaction_id, new.from_global_seq)
        return await self._writer.submit(move)

    async def _refuse_pruned(self, reaction_id: str, after: int) -> None:
        """A new reaction cannot start where entries are missing; one that is there goes on."""
        pruned = await self._store.read_pruned_through()
        if after < pruned:
            known = (await self._store.read_reactions()).reactions
            if all(reaction.reaction_id != reaction_id for reaction in known):
                raise Pruned(
                    f"from_global_seq: entries up to {pruned} have been pruned: start from "
                    "there, or from 0 for the oldest entry kept, and backfill the rest from the "
                    "lake"
                )

    async def deregister_reaction(self, reaction_id: str) -> bool:
        return await self._writer.submit(DeregisterReaction(reaction_id, self._limits))

    async def list_reactions(self, subject_pattern: str = "") -> list[ReactionState]:
        found = await self._store.list_reactions()
        return [
            state
            for state in found
            if subject_pattern in ("", state.reaction.subject_pattern)
            or parse_pattern(state.reaction.subject_pattern).matches(subject_pattern)
        ]

    async def claim_tasks(self, claim: Claim, wait_ms: int = 0) -> list[Task]:
        return await self._tasks.claim(claim, wait_ms)

    async def listen_for_tasks(self, reaction_ids: Sequence[str], heard: int, wait_ms: int) -> int:
        return await self._tasks.listen(reaction_ids, heard, wait_ms)

    async def extend_tasks(self, owner: str, lease_ms: int, task_ids: Sequence[str]) -> list[str]:
        return await self._tasks.extend(owner, lease_ms, task_ids)

    async def settle_tasks(
        self, owner: str, outcomes: Sequence[TaskOutcome]
    ) -> list[TaskStatus | TapeError]:
        return await self._tasks.settle(owner, outcomes)

    async def get_task(self, task_id: str) -> Task | None:
        return await self._tasks.get(task_id)

    async def list_tasks(
        self, reaction_id: str, status: int = 0, limit: int = 0, after_task_id: str = ""
    ) -> list[Task]:
        return await self._tasks.list_tasks(reaction_id, status, limit, after_task_id)

    async def replay_dead_letters(self, reaction_id: str, task_ids: Sequence[str] = ()) -> int:
        return await self._tasks.replay(reaction_id, task_ids)

    async def drop_dead_letters(self, reaction_id: str, task_ids: Sequence[str] = ()) -> int:
        return await self._tasks.drop(reaction_id, task_ids)

    async def info(self) -> JournalInfo:
        return await self._store.info()

    def start_matching(self) -> None:
        """Match entries to reactions in this process, whenever no other does."""
        if self._leading is None:
            agents = Agents(self._store, self._writer, self._ids, self._tasks, self._limits)
            leader = Leader(
                self._store, self._writer, self._ids, self._settings.matcher, agents.begin_runs,
                pacer=self.pacer,
            )  # fmt: skip
            self._leading = asyncio.create_task(leader.run(), name="tape-leader")

    def start_draining(self) -> None:
        """Drain what event subscriptions ask for in this process, whenever no other does."""
        if self._draining is None:
            work = self._ledger.keep_draining().run()
            self._draining = asyncio.create_task(work, name="tape-draining")

    def start_relay(self, broker: BusBroker | None) -> None:
        """Take outbox rows to the journal, and from there to the broker if there is one, in this
        process, whenever no other does."""
        if self._relaying is None:
            self._relaying = asyncio.create_task(
                self.relay_outbox(broker, self._stop_relay), name="tape-relay"
            )

    async def relay_outbox(self, broker: BusBroker | None, stop: asyncio.Event) -> None:
        """The same, until `stop` is set; the broker is closed at the end."""
        relay = Relay(
            self._store, self._writer, self._ids, self._settings.outbox, self._limits, broker=broker
        )
        await relay.run(stop)

    async def outbox_status(self) -> OutboxStatus:
        return await self._store.read_outbox_status(FAILING_TOLD)

    async def skip_outbox_row(self, row_id: int, *, reason: str, by: str) -> OutboxPlace:
        check_position(row_id, "row_id")
        move = SkipOutboxRow(row_id, reason, by, next(self._ids), self._limits)
        return await self._writer.submit(move)

    async def close(self) -> None:
        """Write what is queued, then let the store go."""
        self._stop_relay.set()
        if self._relaying is not None:
            await asyncio.gather(self._relaying, return_exceptions=True)
        tasks = [task for task in (self._leading, self._draining) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.pacer.close()
        await self._writer.close()
        await self._store.close()

    def _page(self, wanted: int) -> int:
        return min(wanted, self._limits.page_entries) if wanted > 0 else DEFAULT_PAGE

    def _page_bytes(self, wanted: int) -> int:
        return min(wanted or self._limits.page_bytes, self._limits.page_bytes)
