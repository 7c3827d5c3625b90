"""The journal in Postgres. `turn` writes, a small pool reads, one session listens.

A wake-up is only a hint: whoever may connect may notify, so the head is read from the journal and
never from the notification. Its channel is named after this journal's own table, so two journals in
one database do not wake each other. Listening may fail at any time; a slow poll beside it means a
lost notification costs a second, never an entry.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import asyncpg

from tape.config import PostgresSettings
from tape.errors import StoreUnavailable, TapeError
from tape.model.budget import Budget
from tape.model.bulk_write import Write, WriteList
from tape.model.drainer import Drainer
from tape.model.effect import Effect
from tape.model.entry import Entry
from tape.model.event_subscription import EventSubscription
from tape.model.move import Need, Place
from tape.model.obligation import Obligation
from tape.model.reaction import ReactionState
from tape.model.run import Run
from tape.model.session import Session, SessionKey, SessionWithEvents, StoredEvent
from tape.model.task import Task, TaskKey, TaskStatus
from tape.model.timer import Timer
from tape.model.value import Value
from tape.ports.ledger import RecentEntries, RecentQuery
from tape.ports.matching import MatcherLease, Queued, QueueTasks, Reactions, Step, StepResult
from tape.ports.outbox import Lead, OutboxLeader, OutboxStatus
from tape.ports.predicate import SqlCondition
from tape.ports.retention import Extent, PruneStep, Retention, StepDone
from tape.ports.runs import PendingQuery, RecoverQuery, RunQuery, WaitingRuns
from tape.ports.store import PAGE_BYTES, Decide, EntryRange, JournalInfo, ReadEntries
from tape.ports.tasks import Claim, Settlement
from tape.stores.bell import Bell
from tape.stores.filtered import FILTER_S, FilteredReads
from tape.stores.head import Head
from tape.stores.migrations import has_draw_subjects, log_created, no_store
from tape.stores.postgres.connection import (
    address,
    connect_reader,
    connect_worker,
    translated,
)
from tape.stores.postgres.ledger import PostgresLedger
from tape.stores.postgres.matching import PostgresMatching
from tape.stores.postgres.migrate import applied_migrations, check_current, migrate
from tape.stores.postgres.outbox import PostgresOutbox
from tape.stores.postgres.pool import Pool
from tape.stores.postgres.retention import PostgresRetention
from tape.stores.postgres.runs import PostgresRuns
from tape.stores.postgres.tasks import PostgresTasks
from tape.stores.postgres.turn import SQL, Turns
from tape.stores.postgres.writes import PostgresWrites
from tape.stores.recent import Recent
from tape.stores.retained import may_have_holes, refuse_pruned
from tape.stores.rows import prefix_range
from tape.stores.statements import PREDICATE

T = TypeVar("T")

log = logging.getLogger("tape.postgres")
LIST_LIMIT = 10_000
_PAYLOAD = Entry._fields.index("payload_json")
FIRST_PREDICATE_PARAMETER = 10


class PostgresStore:
    def __init__(self, url: str, settings: PostgresSettings) -> None:
        self._url = url
        self._settings = settings
        self._head = Head()
        self._recent = Recent()
        self._bell = Bell()
        self._turns = Turns(url, settings)
        self._reads = Pool(url, settings.readers, lambda: connect_reader(url, settings))
        self._filtered = FilteredReads("postgres", settings.readers)
        quick, durable = (
            Pool(url, settings.workers, partial(connect_worker, url, settings, durable=durable))
            for durable in (False, True)
        )
        self._pools = (self._reads, quick, durable)
        self._steps = quick
        self._tasks = PostgresTasks(claims=quick, reads=self._reads, writes=durable)
        self._runs = PostgresRuns(self._reads)
        self._writes = PostgresWrites(reads=self._reads, writes=durable)
        self._matching = PostgresMatching(steps=quick, reads=self._reads, writes=durable)
        self._retention = PostgresRetention(steps=quick, reads=self._reads)
        self._ledger = PostgresLedger(self._reads)
        self._outbox = PostgresOutbox(url, settings, self._reads)
        self._listen: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self.has_draw_subjects = False

    @classmethod
    async def open(
        cls,
        url: str,
        settings: PostgresSettings,
        *,
        migrating: bool = True,
        creating: bool = True,
    ) -> "PostgresStore":
        store = cls(url, settings)
        await store._first_contact(migrating=migrating, creating=creating)
        store._listen = asyncio.create_task(store._keep_listening(), name="tape-postgres-listen")
        return store

    @property
    def head(self) -> int:
        return self._head.global_seq

    async def await_beyond(self, global_seq: int) -> int:
        return await self._head.beyond(global_seq)

    async def commit(self, needs: Iterable[Need], decide: Decide) -> Place:
        self._head.check_open()
        place, entries = await self._turns.commit(list(needs), decide, self._head.global_seq)
        self._recent.note(place, entries)
        self._head.advance(place.global_seq + len(entries) - 1)
        return place

    async def read_last_given(self) -> int:
        (last,) = await self._rows(int, "read_last_given")
        return last

    async def read_entries(self, query: ReadEntries) -> EntryRange:
        recent = self._recent.read(query)
        if recent is not None:
            return recent
        found = await self._filtered.read(query, self._read_range)
        if query.unbroken and may_have_holes(query, found):
            refuse_pruned(query, await self.read_pruned_through())
        return found

    async def _read_range(
        self, query: ReadEntries, condition: SqlCondition | None
    ) -> EntryRange | None:
        statement, extra, within_s = SQL["read_entries"], tuple[object, ...](), None
        if condition is not None:
            condition = condition.renumbered(FIRST_PREDICATE_PARAMETER)
            statement = statement.replace(PREDICATE, f"({condition.text}) IS NOT FALSE")
            extra, within_s = condition.params, FILTER_S
        low, high = prefix_range(query.prefix)
        params = (
            query.after, query.upto, query.limit, query.max_bytes, low, high, query.kind,
            query.run_id, query.from_ts_ms, *extra,
        )  # fmt: skip

        async def fetch(connection: asyncpg.Connection) -> list[Any] | None:
            try:
                return await connection.fetch(statement, *params, timeout=within_s)
            except TimeoutError:
                if within_s is None:
                    raise
                return None

        rows = await self._reads.use(fetch, again=True)
        if rows is None:
            return None
        found = [Entry(*row) for row in rows if row[_PAYLOAD] is not None]
        if len(rows) < query.limit and len(found) == len(rows):
            return EntryRange(found, query.upto)
        return EntryRange(found, found[-1].global_seq)

    async def read_run(
        self, run_id: str, after_seq: int, limit: int, max_bytes: int = PAGE_BYTES
    ) -> list[Entry]:
        return await self._rows(Entry, "read_run", run_id, after_seq, limit, max_bytes)

    async def read_value_history(
        self, subjects: Sequence[str], after: int, limit: int, max_bytes: int = PAGE_BYTES
    ) -> list[Entry]:
        params = (list(subjects), after, limit, max_bytes)
        return await self._rows(Entry, "read_value_history", *params)

    async def get_value(self, namespace: str, key: str) -> Value | None:
        found = await self._rows(Value, "get_value", namespace, key)
        return found[0] if found else None

    async def list_values(self, namespace: str, after_key: str, limit: int) -> list[Value]:
        return await self._rows(Value, "list_values", namespace, after_key, limit)

    async def get_session(self, key: SessionKey, max_events: int) -> SessionWithEvents | None:
        async def read(connection: asyncpg.Connection) -> SessionWithEvents | None:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                row = await connection.fetchrow(SQL["get_session"], *key)
                if row is None:
                    return None
                newest = await connection.fetch(SQL["read_session_events"], *key, max_events)
            events = [StoredEvent(*event).event for event in reversed(newest)]
            return SessionWithEvents(Session(*row), events)

        return await self._reads.use(read, again=True)

    async def list_sessions(self, app_name: str, user_id: str) -> list[SessionWithEvents]:
        found = await self._rows(Session, "list_sessions", app_name, user_id, LIST_LIMIT)
        return [SessionWithEvents(session, []) for session in found]

    async def get_run(self, run_id: str) -> Run | None:
        return await self._runs.get_run(run_id)

    async def list_runs(self, query: RunQuery) -> list[Run]:
        return await self._runs.list_runs(query)

    async def list_runs_to_recover(self, query: RecoverQuery) -> list[Run]:
        return await self._runs.list_runs_to_recover(query)

    async def list_waiting_runs(self, older_than_ms: int) -> list[WaitingRuns]:
        return await self._runs.list_waiting_runs(older_than_ms)

    async def get_decision(self, run_id: str, decision_index: int) -> Entry | None:
        return await self._runs.get_decision(run_id, decision_index)

    async def get_effect(self, run_id: str, idempotency_key: str) -> Effect | None:
        return await self._runs.get_effect(run_id, idempotency_key)

    async def list_pending_effects(self, query: PendingQuery) -> list[Effect]:
        return await self._runs.list_pending_effects(query)

    async def list_effects_to_dispatch(self, connectors: Sequence[str], limit: int) -> list[Effect]:
        return await self._runs.list_effects_to_dispatch(connectors, limit)

    async def list_obligations(self, run_id: str) -> list[Obligation]:
        return await self._runs.list_obligations(run_id)

    async def list_unresolved_obligations(
        self, limit: int, *, include_stuck: bool = False
    ) -> list[Obligation]:
        return await self._runs.list_unresolved_obligations(limit, include_stuck=include_stuck)

    async def get_budget(self, run_id: str) -> Budget | None:
        return await self._runs.get_budget(run_id)

    async def list_timers(self, run_id: str) -> list[Timer]:
        return await self._runs.list_timers(run_id)

    async def list_due_timers(self, limit: int) -> list[Timer]:
        return await self._runs.list_due_timers(limit)

    async def next_timer_in_ms(self) -> int | None:
        return await self._runs.next_timer_in_ms()

    async def claim_tasks(self, claim: Claim) -> list[Task]:
        return await self._tasks.claim(claim)

    async def extend_tasks(
        self, owner: str, lease_ms: int, keys: Sequence[TaskKey]
    ) -> list[TaskKey]:
        return await self._tasks.extend(owner, lease_ms, keys)

    async def complete_tasks(self, owner: str, keys: Sequence[TaskKey]) -> Settlement:
        return await self._tasks.complete(owner, keys)

    async def read_expired(self, limit: int) -> list[TaskKey]:
        return await self._tasks.read_expired(limit)

    async def read_known_reactions(self, reaction_ids: Sequence[str]) -> list[str]:
        return await self._tasks.read_known_reactions(reaction_ids)

    async def read_next_due_ms(self, reaction_ids: Sequence[str]) -> int | None:
        return await self._tasks.read_next_due_ms(reaction_ids)

    async def get_task(self, key: TaskKey) -> Task | None:
        return await self._tasks.get(key)

    async def list_tasks(
        self, reaction_id: str, status: TaskStatus | None, after: TaskKey | None, limit: int
    ) -> list[Task]:
        return await self._tasks.list_tasks(reaction_id, status, after, limit)

    @property
    def task_bell(self) -> int:
        return self._bell.count

    async def await_tasks(self, heard: int, timeout_s: float) -> int:
        return await self._bell.wait(heard, timeout_s)

    async def get_write(self, write_id: str) -> Write | None:
        return await self._writes.get_write(write_id)

    async def get_write_list(self, write_id: str, epoch: int) -> WriteList | None:
        return await self._writes.get_list(write_id, epoch)

    async def get_chunk(self, write_id: str, epoch: int, part: str, number: int) -> bytes | None:
        return await self._writes.get_chunk(write_id, epoch, part, number)

    async def discard_parts(self, write_id: str, epoch: int, parts: Sequence[str]) -> None:
        await self._writes.discard_parts(write_id, epoch, parts)

    async def discard_staged(self, write_id: str, upto_epoch: int, older_than_ms: int) -> int:
        return await self._writes.discard_staged(write_id, upto_epoch, older_than_ms)

    async def forget_write(self, write_id: str, upto_epoch: int, *, wholly: bool) -> None:
        await self._writes.forget(write_id, upto_epoch, wholly=wholly)

    async def acquire_matcher(self, owner: str, ttl_ms: int) -> MatcherLease | None:
        return await self._matching.acquire(owner, ttl_ms)

    async def release_matcher(self, lease: MatcherLease) -> None:
        await self._matching.release(lease)

    async def read_reactions(self) -> Reactions:
        return await self._matching.read_reactions()

    async def make_step(self, step: Step) -> StepResult:
        result = await self._matching.make_step(step)
        if step.tasks:
            self._bell.ring()
        return result

    async def queue_tasks(self, step: QueueTasks) -> Queued:
        return await self._matching.queue_tasks(step)

    async def list_reactions(self) -> list[ReactionState]:
        return await self._matching.list_reactions()

    async def read_pruned_through(self) -> int:
        return await self._retention.read_pruned_through()

    async def read_retention(self) -> Retention:
        return await self._retention.read_retention()

    async def prune(self, step: PruneStep) -> StepDone:
        done = await self._retention.prune(step)
        self._recent.forget(done.through)
        return done

    async def measure(self, after: int, upto: int) -> Extent:
        return await self._retention.measure(after, upto)

    async def list_event_subscriptions(self, drainer_id: str = "") -> list[EventSubscription]:
        return await self._ledger.list_event_subscriptions(drainer_id)

    async def get_drainer(self, drainer_id: str) -> Drainer | None:
        return await self._ledger.get_drainer(drainer_id)

    async def list_drainers(self) -> list[Drainer]:
        return await self._ledger.list_drainers()

    async def read_clock(self) -> int:
        return await self._ledger.read_clock()

    async def read_recent(self, query: RecentQuery) -> RecentEntries:
        return await self._ledger.read_recent(query)

    async def lead_outbox(self, lead: Lead) -> OutboxLeader | None:
        return await self._outbox.lead(lead, self.commit)

    async def has_unpromoted(self) -> bool:
        return (await self._rows(bool, "has_unpromoted"))[0]

    async def read_outbox_status(self, limit: int) -> OutboxStatus:
        return await self._outbox.read_status(limit)

    async def info(self) -> JournalInfo:
        async def read(connection: asyncpg.Connection) -> JournalInfo:
            applied = await applied_migrations(connection)
            tail = await connection.fetchval(SQL["read_tail"])
            head = await connection.fetchval(SQL["read_head"])
            return JournalInfo("postgres", tail, head, max((m.number for m in applied), default=0))

        return await self._reads.use(read, again=True)

    async def close(self) -> None:
        self._head.close()
        self._bell.close()
        if self._listen is not None:
            self._listen.cancel()
            await asyncio.gather(self._listen, return_exceptions=True)
        with contextlib.suppress(OSError, asyncpg.InterfaceError, TimeoutError):
            await self._turns.close()
        for pool in self._pools:
            pool.close()

    async def _rows(self, make: Callable[..., T], name: str, *params: object) -> list[T]:
        return [make(*row) for row in await self._fetch(SQL[name], *params)]

    async def _fetch(self, statement: str, *params: object) -> list[Any]:
        return await self._reads.use(
            lambda connection: connection.fetch(statement, *params), again=True
        )

    async def _first_contact(self, *, migrating: bool, creating: bool) -> None:
        where = f"postgres://{address(self._url)}"
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._settings.connect_s
        while True:
            try:
                with translated(self._url):
                    connection = await connect_reader(self._url, self._settings)
                    try:
                        if not creating and not await applied_migrations(connection):
                            raise no_store(where)
                        if migrating:
                            log_created(await migrate(connection), where)
                        else:
                            await check_current(connection)
                        steps = await applied_migrations(connection)
                        self.has_draw_subjects = has_draw_subjects(steps)
                        self._head.advance(await connection.fetchval(SQL["read_head"]))
                    finally:
                        await connection.close()
            except StoreUnavailable:
                if loop.time() > give_up:
                    raise
                await asyncio.sleep(0.2)
            else:
                return

    async def _keep_listening(self) -> None:
        while True:
            try:
                async with self._listening() as connection:
                    while True:
                        self._woken.clear()
                        self._head.advance(await connection.fetchval(SQL["read_head"]))
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(self._settings.poll_s):
                                await self._woken.wait()
            except TapeError as error:
                log.warning("not listening for notifications for now: %s", error)
                await asyncio.sleep(self._settings.poll_s)

    @contextlib.asynccontextmanager
    async def _listening(self) -> AsyncIterator[asyncpg.Connection]:
        with translated(self._url):
            connection = await connect_reader(self._url, self._settings)
            try:
                number = await connection.fetchval("SELECT 'tape_journal'::regclass::oid::text")
                await connection.add_listener(f"tape_journal_{number}", self._heard)
                await connection.add_listener(f"tape_tasks_{number}", self._heard_of_tasks)
                yield connection
            finally:
                connection.terminate()

    def _heard(self, _connection: object, pid: int, _channel: str, _payload: object) -> None:
        if pid != self._turns.pid:  # of our own commits we know
            self._woken.set()

    def _heard_of_tasks(
        self, _connection: object, pid: int, _channel: str, _payload: object
    ) -> None:
        if pid not in self._steps.pids:  # of our own steps, too
            self._bell.ring()
