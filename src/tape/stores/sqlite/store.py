"""The journal in a SQLite file.

One thread owns the connection that writes. It takes the file's write lock before it looks, so a
turn is alone across all processes, and numbers entries from SQLite's own AUTOINCREMENT record.
Readers have threads and connections of their own and are never blocked by a writer.
"""

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tape.config import SqliteSettings
from tape.errors import Closed, TapeError
from tape.model.budget import Budget
from tape.model.bulk_write import Write, WriteList
from tape.model.drainer import Drainer
from tape.model.effect import Effect
from tape.model.entry import Entry
from tape.model.event_subscription import EventSubscription
from tape.model.move import Need, Place
from tape.model.obligation import Obligation
from tape.model.reaction import ReactionState
from tape.model.relay import Candidate
from tape.model.run import Run
from tape.model.session import Session, SessionKey, SessionWithEvents, StoredEvent
from tape.model.task import Task, TaskKey, TaskStatus
from tape.model.timer import Timer
from tape.model.value import Value
from tape.ports.clock import Clock, system_clock
from tape.ports.ledger import RecentEntries, RecentQuery
from tape.ports.matching import MatcherLease, Queued, QueueTasks, Reactions, Step, StepResult
from tape.ports.outbox import Lead, OutboxLeader, OutboxStatus
from tape.ports.predicate import SqlCondition
from tape.ports.retention import Extent, PruneStep, Retention, StepDone
from tape.ports.runs import PendingQuery, RecoverQuery, RunQuery, WaitingRuns
from tape.ports.store import PAGE_BYTES, Decide, EntryRange, JournalInfo, NamesOf, ReadEntries
from tape.ports.tasks import Claim, Settlement
from tape.stores.bell import Bell
from tape.stores.elections import elect
from tape.stores.filtered import FilteredReads
from tape.stores.head import Head
from tape.stores.migrations import has_draw_subjects, log_created
from tape.stores.recent import Recent
from tape.stores.retained import may_have_holes, refuse_pruned
from tape.stores.sqlite import ledger, matching, outbox, retention, runs, tasks, writes
from tape.stores.sqlite.connection import connect, is_read_only, translated
from tape.stores.sqlite.entries import read_entries, read_page
from tape.stores.sqlite.inspect import refuse_absent
from tape.stores.sqlite.migrate import applied_migrations, check_current, migrate
from tape.stores.sqlite.turn import SQL, Turns, as_json, maker
from tape.telemetry.retrying import Retrying

T = TypeVar("T")

log = logging.getLogger("tape.sqlite")
LIST_LIMIT = 10_000


class SqliteStore:
    def __init__(self, path: Path, settings: SqliteSettings, clock: Clock = system_clock) -> None:
        self._path = path
        self._settings = settings
        self._clock = clock
        self._head = Head()
        self._turns = Turns(clock)
        self._recent = Recent()
        self._bell = Bell()
        self._writing = ThreadPoolExecutor(1, "tape-sqlite-write")
        self._reading = ThreadPoolExecutor(settings.readers, "tape-sqlite-read")
        self._filtered = FilteredReads("sqlite", settings.readers)
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._poll: asyncio.Task[None] | None = None
        self.has_draw_subjects = False

    @classmethod
    async def open(
        cls,
        path: Path,
        settings: SqliteSettings,
        *,
        migrating: bool = True,
        creating: bool = True,
        clock: Clock = system_clock,
    ) -> "SqliteStore":
        """All stores on one file must go by the same clock."""
        if not creating:
            await asyncio.to_thread(refuse_absent, path)
        store = cls(path, settings, clock)
        try:
            brings_up = migrating and not is_read_only(path)
            applied = await store._in(store._writing, migrate if brings_up else check_current)
            log_created(applied, f"sqlite:{path}")
            steps = await store._in(store._reading, applied_migrations)
            store.has_draw_subjects = has_draw_subjects(steps)
            store._head.advance(await store._in(store._reading, _read_head))
        except BaseException:
            await store.close()
            raise
        store._poll = asyncio.create_task(store._keep_polling(), name="tape-sqlite-poll")
        return store

    @property
    def head(self) -> int:
        return self._head.global_seq

    async def await_beyond(self, global_seq: int) -> int:
        return await self._head.beyond(global_seq)

    async def commit(self, needs: Iterable[Need], decide: Decide) -> Place:
        wanted = tuple(needs)
        turn = await self._in(self._writing, lambda db: self._turns.take(db, wanted, decide))
        self._recent.note(turn.place, turn.entries)
        self._head.advance(turn.place.global_seq + len(turn.entries) - 1)
        if turn.queued:
            self._bell.ring()
        return turn.place

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
        return await self._in(self._reading, lambda db: read_entries(db, query, condition))

    async def read_run(
        self, run_id: str, after_seq: int, limit: int, max_bytes: int = PAGE_BYTES
    ) -> list[Entry]:
        params = (run_id, after_seq, limit)
        return await self._in(
            self._reading, lambda db: read_page(db, SQL["read_run"], params, max_bytes)
        )

    async def read_value_history(
        self, subjects: Sequence[str], after: int, limit: int, max_bytes: int = PAGE_BYTES
    ) -> list[Entry]:
        params = (as_json(subjects), after, limit)
        return await self._in(
            self._reading, lambda db: read_page(db, SQL["read_value_history"], params, max_bytes)
        )

    async def get_value(self, namespace: str, key: str) -> Value | None:
        found = await self._rows(maker(Value), "get_value", namespace, key)
        return found[0] if found else None

    async def list_values(self, namespace: str, after_key: str, limit: int) -> list[Value]:
        return await self._rows(maker(Value), "list_values", namespace, after_key, limit)

    async def list_names(self, of: NamesOf, after: str, limit: int) -> list[str]:
        return await self._rows(str, f"list_{of}", after, limit)

    async def get_session(self, key: SessionKey, max_events: int) -> SessionWithEvents | None:
        def read(db: sqlite3.Connection) -> SessionWithEvents | None:
            row = db.execute(SQL["get_session"], key).fetchone()
            if row is None:
                return None
            newest = db.execute(SQL["read_session_events"], (*key, max_events)).fetchall()
            events = [StoredEvent(*event).event for event in reversed(newest)]
            return SessionWithEvents(Session(*row), events)

        return await self._at_once(read)

    async def list_sessions(self, app_name: str, user_id: str) -> list[SessionWithEvents]:
        found = await self._rows(Session, "list_sessions", app_name, user_id, LIST_LIMIT)
        return [SessionWithEvents(session, []) for session in found]

    async def get_run(self, run_id: str) -> Run | None:
        return await self._in(self._reading, lambda db: runs.get_run(db, run_id))

    async def list_runs(self, query: RunQuery) -> list[Run]:
        return await self._in(self._reading, lambda db: runs.list_runs(db, query))

    async def list_runs_to_recover(self, query: RecoverQuery) -> list[Run]:
        return await self._at_once(lambda db: runs.list_runs_to_recover(db, query, self._clock))

    async def list_waiting_runs(self, older_than_ms: int) -> list[WaitingRuns]:
        return await self._at_once(
            lambda db: runs.list_waiting_runs(db, older_than_ms, self._clock)
        )

    async def get_decision(self, run_id: str, decision_index: int) -> Entry | None:
        found = await self._rows(Entry, "get_decision", run_id, decision_index)
        return found[0] if found else None

    async def get_effect(self, run_id: str, idempotency_key: str) -> Effect | None:
        found = await self._rows(Effect, "get_effect", run_id, idempotency_key)
        return found[0] if found else None

    async def list_pending_effects(self, query: PendingQuery) -> list[Effect]:
        return await self._at_once(lambda db: runs.list_pending_effects(db, query, self._clock))

    async def list_effects_to_dispatch(self, connectors: Sequence[str], limit: int) -> list[Effect]:
        return await self._at_once(
            lambda db: runs.list_effects_to_dispatch(db, connectors, limit, self._clock)
        )

    async def list_obligations(self, run_id: str) -> list[Obligation]:
        return await self._rows(Obligation, "list_obligations", run_id)

    async def list_unresolved_obligations(
        self, limit: int, *, include_stuck: bool = False
    ) -> list[Obligation]:
        def read(db: sqlite3.Connection) -> list[Obligation]:
            return runs.list_unresolved_obligations(
                db, limit, self._clock, include_stuck=include_stuck
            )

        return await self._at_once(read)

    async def get_budget(self, run_id: str) -> Budget | None:
        found = await self._rows(Budget, "get_budget", run_id)
        return found[0] if found else None

    async def list_timers(self, run_id: str) -> list[Timer]:
        return await self._rows(maker(Timer), "list_timers", run_id)

    async def list_due_timers(self, limit: int) -> list[Timer]:
        return await self._in(
            self._reading, lambda db: runs.list_due_timers(db, limit, self._clock)
        )

    async def next_timer_in_ms(self) -> int | None:
        return await self._in(self._reading, lambda db: runs.next_timer_in_ms(db, self._clock))

    async def get_write(self, write_id: str) -> Write | None:
        return await self._in(self._reading, lambda db: writes.get_write(db, write_id))

    async def get_write_list(self, write_id: str, epoch: int) -> WriteList | None:
        return await self._in(self._reading, lambda db: writes.get_write_list(db, write_id, epoch))

    async def get_chunk(self, write_id: str, epoch: int, part: str, number: int) -> bytes | None:
        return await self._in(
            self._reading, lambda db: writes.get_chunk(db, write_id, epoch, part, number)
        )

    async def discard_parts(self, write_id: str, epoch: int, parts: Sequence[str]) -> None:
        await self._in(self._writing, lambda db: writes.discard_parts(db, write_id, epoch, parts))

    async def discard_staged(self, write_id: str, upto_epoch: int, older_than_ms: int) -> int:
        return await self._in(
            self._writing,
            lambda db: writes.discard_staged(db, write_id, upto_epoch, older_than_ms),
        )

    async def forget_write(self, write_id: str, upto_epoch: int, *, wholly: bool) -> None:
        await self._in(
            self._writing, lambda db: writes.forget_write(db, write_id, upto_epoch, wholly=wholly)
        )

    async def acquire_matcher(self, owner: str, ttl_ms: int) -> MatcherLease | None:
        return await self._in(
            self._writing, lambda db: matching.acquire_matcher(db, owner, ttl_ms, self._clock)
        )

    async def release_matcher(self, lease: MatcherLease) -> None:
        await self._in(self._writing, lambda db: matching.release_matcher(db, lease))

    async def read_reactions(self) -> Reactions:
        return await self._at_once(matching.read_reactions)

    async def make_step(self, step: Step) -> StepResult:
        made = await self._in(self._writing, lambda db: matching.make_step(db, step, self._clock))
        if made.tasks:
            self._bell.ring()
        return made.result

    async def queue_tasks(self, step: QueueTasks) -> Queued:
        queued = await self._in(
            self._writing, lambda db: matching.queue_tasks(db, step, self._clock)
        )
        if queued.made:
            self._bell.ring()
        return queued

    async def list_reactions(self) -> list[ReactionState]:
        return await self._in(self._reading, matching.list_reactions)

    async def claim_tasks(self, claim: Claim) -> list[Task]:
        return await self._in(self._writing, lambda db: tasks.claim_tasks(db, claim, self._clock))

    async def extend_tasks(
        self, owner: str, lease_ms: int, keys: Sequence[TaskKey]
    ) -> list[TaskKey]:
        return await self._in(
            self._writing, lambda db: tasks.extend_tasks(db, owner, lease_ms, keys, self._clock)
        )

    async def complete_tasks(self, owner: str, keys: Sequence[TaskKey]) -> Settlement:
        return await self._in(
            self._writing, lambda db: tasks.complete_tasks(db, owner, keys, self._clock)
        )

    async def read_expired(self, limit: int) -> list[TaskKey]:
        return await self._in(self._reading, lambda db: tasks.read_expired(db, limit, self._clock))

    async def read_known_reactions(self, reaction_ids: Sequence[str]) -> list[str]:
        return await self._in(
            self._reading, lambda db: tasks.read_known_reactions(db, reaction_ids)
        )

    async def read_next_due_ms(self, reaction_ids: Sequence[str]) -> int | None:
        return await self._in(
            self._reading, lambda db: tasks.read_next_due_ms(db, reaction_ids, self._clock)
        )

    async def get_task(self, key: TaskKey) -> Task | None:
        return await self._in(self._reading, lambda db: tasks.get_task(db, key))

    async def list_tasks(
        self, reaction_id: str, status: TaskStatus | None, after: TaskKey | None, limit: int
    ) -> list[Task]:
        def read(db: sqlite3.Connection) -> list[Task]:
            return tasks.list_tasks(db, reaction_id, status, after, limit)

        return await self._at_once(read)

    @property
    def task_bell(self) -> int:
        return self._bell.count

    async def await_tasks(self, heard: int, timeout_s: float) -> int:
        return await self._bell.wait(heard, timeout_s)

    async def read_pruned_through(self) -> int:
        return await self._in(self._reading, retention.read_pruned_through)

    async def read_retention(self) -> Retention:
        return await self._at_once(retention.read_retention)

    async def prune(self, step: PruneStep) -> StepDone:
        done = await self._in(self._writing, lambda db: retention.prune(db, step))
        self._recent.forget(done.through)
        return done

    async def measure(self, after: int, upto: int) -> Extent:
        return await self._in(self._reading, lambda db: retention.measure(db, after, upto))

    async def list_event_subscriptions(self, drainer_id: str = "") -> list[EventSubscription]:
        return await self._in(
            self._reading, lambda db: ledger.list_event_subscriptions(db, drainer_id)
        )

    async def get_drainer(self, drainer_id: str) -> Drainer | None:
        return await self._in(self._reading, lambda db: ledger.get_drainer(db, drainer_id))

    async def list_drainers(self) -> list[Drainer]:
        return await self._in(self._reading, ledger.list_drainers)

    async def read_clock(self) -> int:
        return self._clock()

    async def read_recent(self, query: RecentQuery) -> RecentEntries:
        return await self._at_once(lambda db: ledger.read_recent(db, query))

    async def lead_outbox(self, lead: Lead) -> OutboxLeader | None:
        candidate = Candidate(lead.relay, lead.owner, lease_ms=int(lead.hung_s * 1000))
        term = await elect(self.commit, candidate, lead.event_id)
        if term is None:
            return None
        return outbox.SqliteLeader(
            lead,
            term,
            partial(self._in, self._writing),
            path=self._path,
            settings=self._settings,
            clock=self._clock,
        )

    async def has_unpromoted(self) -> bool:
        return (await self._rows(bool, "has_unpromoted"))[0]

    async def read_outbox_status(self, limit: int) -> OutboxStatus:
        return await self._at_once(lambda db: outbox.read_status(db, limit, self._clock))

    async def info(self) -> JournalInfo:
        def read(db: sqlite3.Connection) -> JournalInfo:
            (tail,) = db.execute(SQL["read_tail"]).fetchone()
            number = max((m.number for m in applied_migrations(db)), default=0)
            return JournalInfo("sqlite", tail, _read_head(db), number)

        return await self._at_once(read)

    async def close(self) -> None:
        self._head.close()
        self._bell.close()
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)
        for pool in (self._reading, self._writing):
            await asyncio.to_thread(pool.shutdown)
        for connection in self._opened:
            connection.close()

    async def _rows(self, make: Callable[..., T], name: str, *params: object) -> list[T]:
        def read(db: sqlite3.Connection) -> list[T]:
            return [make(*row) for row in db.execute(SQL[name], params)]

        return await self._in(self._reading, read)

    async def _at_once(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Several statements on one snapshot."""
        return await self._in(self._reading, _as_one_read(read))

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[sqlite3.Connection], T]) -> T:
        self._head.check_open()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        try:
            pool.submit(self._work, work, done, loop)
        except RuntimeError:  # the store closes, or the interpreter ends and takes every pool along
            raise Closed from None
        return await done

    def _work(
        self,
        work: Callable[[sqlite3.Connection], T],
        done: "asyncio.Future[T]",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """What `run_in_executor` does, for two thirds of what that costs."""
        if done.cancelled():
            return
        try:
            settle = partial(_give, done, self._with_connection(work))
        except BaseException as error:  # noqa: BLE001 - it belongs to who waits
            settle = partial(_fail, done, error)
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it who waited
            loop.call_soon_threadsafe(settle)

    def _with_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with translated(self._path):
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = connect(self._path, self._settings.busy_s)
                self._local.connection = connection
                self._opened.append(connection)
            return work(connection)

    async def _keep_polling(self) -> None:
        """Hear of entries that other processes committed, and of tasks they may have queued."""
        retrying = Retrying(log, "reading the end of the journal")
        while True:
            await asyncio.sleep(self._settings.poll_s)
            try:
                self._head.advance(await self._in(self._reading, _read_head))
                self._bell.ring()
                retrying.succeeded()
            except Closed:
                return
            except TapeError as error:
                retrying.failed(error)


def _give(done: "asyncio.Future[T]", result: T) -> None:
    if not done.cancelled():
        done.set_result(result)


def _fail(done: "asyncio.Future[Any]", error: BaseException) -> None:
    if not done.cancelled():
        done.set_exception(error)


def _as_one_read(read: Callable[[sqlite3.Connection], T]) -> Callable[[sqlite3.Connection], T]:
    """Several statements on one snapshot."""

    def reading(db: sqlite3.Connection) -> T:
        db.execute("BEGIN")
        try:
            return read(db)
        finally:
            db.execute("ROLLBACK")

    return reading


def _read_head(db: sqlite3.Connection) -> int:
    (head,) = db.execute(SQL["read_head"]).fetchone()
    return int(head)
