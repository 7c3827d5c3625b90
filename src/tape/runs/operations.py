"""The operations on runs, the same in process and over gRPC.

`Runs` does them on a store; `tape.client` does them at a server.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from tape.errors import InvalidArgument, NotFound, StoreFailed
from tape.journal.follow import check_position, follow_run, read_run, refuse_beyond_the_run
from tape.journal.ids import UlidFactory
from tape.journal.writer import Writer
from tape.model.begin_once import BeginRunOnce, BegunOnce
from tape.model.budget import BudgetRow, check_amounts
from tape.model.decision import DRAWN, FAILED, RECORDED, RecordDecision
from tape.model.effect import Effect
from tape.model.entry import NO_TRACE, Entry, Trace
from tape.model.lease import (
    WHOEVER,
    BeginRun,
    Begun,
    HeartbeatRun,
    NewRun,
    ReleaseRun,
    ResumeRun,
    Taker,
)
from tape.model.names import check_name
from tape.model.obligation import Obligation
from tape.model.run import Run
from tape.model.run_change import IDS_PER_WRITE, BeginAndExtend, ChangeRun, ExtendRun
from tape.model.run_write import Extended, RunWrite
from tape.model.timer import FireTimer, Timer
from tape.ports.runs import PendingQuery, RecoverQuery, RunQuery, WaitingRuns
from tape.ports.store import Store
from tape.settings import Limits

NOBODY = Taker()
PAGE = 1_000
MOST_WRITES = 1_000
WAITING_MS = 10_000
"""A run that nobody has taken for so long waits: a worker that has its app takes it within a second
or two."""
MOST_TRACES = 4_000


class Admission(NamedTuple):
    admitted: bool
    reason: str
    budget: BudgetRow


class RunOperations(Protocol):
    @property
    def limits(self) -> Limits:
        """Those of who keeps the journal."""

    async def begin_run(
        self, new: NewRun, taker: Taker = NOBODY, writes: Sequence[RunWrite] = ()
    ) -> Begun:
        """Make a run or find it; with a taker also take its lease, if that is free.

        The writes are made with it, if it is new and the taker's.
        """

    async def begin_run_once(self, new: NewRun, key: str, window_ms: int) -> BegunOnce:
        """Make a run, unless one of the app was begun with that key within the window: then that
        one is the answer. A run that is there by its name is found, whatever its key."""

    async def resume_run(
        self, run_id: str, taker: Taker = NOBODY, *, expected_token: int = WHOEVER
    ) -> Run:
        """Take a run's lease; without a taker put the run back for whoever comes."""

    async def heartbeat_run(self, run_id: str, fencing_token: int, ttl_ms: int) -> Run: ...

    async def release_run(
        self, run_id: str, fencing_token: int, *, waiting_on: str = "", seen_seq: int = 0
    ) -> Run: ...

    async def extend_run(
        self,
        run_id: str,
        fencing_token: int,
        writes: Sequence[RunWrite],
        trace: Trace = NO_TRACE,
    ) -> Extended:
        """Writes by the run's driver: all or none."""

    async def change_run(self, run_id: str, write: RunWrite) -> Any:
        """One write from outside (a signal, a cancellation) or under a claim; its reply."""

    async def get_run(self, run_id: str) -> Run | None: ...

    async def list_runs(self, query: RunQuery) -> list[Run]: ...

    async def list_runs_to_recover(self, query: RecoverQuery) -> list[Run]: ...

    async def list_waiting_runs(self, older_than_ms: int = WAITING_MS) -> list[WaitingRuns]:
        """Runs that nobody drives though somebody should, by app and pool; who has waited longest
        first."""

    async def read_run(self, run_id: str, after_seq: int, limit: int = 0) -> list[Entry]:
        """Entries of a run's journal in its own order, as many as a page holds."""

    def follow_run(
        self, run_id: str, after_seq: int, max_bytes: int = 0
    ) -> AsyncGenerator[list[Entry], None]:
        """The entries of one run in its own order, until closed. Pages as in `FollowQuery`."""

    async def get_decision(self, run_id: str, decision_index: int) -> Entry | None: ...

    async def get_effect(self, run_id: str, idempotency_key: str) -> Effect | None: ...

    async def list_pending_effects(self, query: PendingQuery) -> list[Effect]: ...

    async def list_effects_to_dispatch(
        self, connectors: Sequence[str] = (), limit: int = 0
    ) -> list[Effect]: ...

    async def list_obligations(self, run_id: str) -> list[Obligation]: ...

    async def list_unresolved_obligations(
        self, limit: int = 0, *, include_stuck: bool = False
    ) -> list[Obligation]: ...

    async def admit_budget(self, run_id: str, usd: float, tokens: int) -> Admission:
        """Whether so much more would be within the budget. A question: it changes nothing."""

    async def list_timers(self, run_id: str) -> list[Timer]: ...

    async def list_due_timers(self, limit: int = 0) -> list[Timer]: ...

    async def fire_due_timers(self, limit: int = 0) -> list[Timer]:
        """Fire what is due; those that this call has fired."""

    async def next_timer_in_ms(self) -> int | None: ...


class Runs:
    """The operations on a store in this process."""

    def __init__(self, store: Store, writer: Writer, ids: UlidFactory, limits: Limits) -> None:
        self._store = store
        self._writer = writer
        self._ids = ids
        self._limits = limits
        self._traces: OrderedDict[str, Trace] = OrderedDict()

    @property
    def limits(self) -> Limits:
        return self._limits

    async def begin_run(
        self, new: NewRun, taker: Taker = NOBODY, writes: Sequence[RunWrite] = ()
    ) -> Begun:
        if not writes:
            begun = await self._writer.submit(BeginRun(new, taker, next(self._ids), self._limits))
            self._note_trace(new, begun)
            return begun
        if not taker.owner:
            raise InvalidArgument(
                "a request that writes for a run must take its lease", field="lease_owner"
            )
        if len(writes) > MOST_WRITES:
            raise InvalidArgument(f"must hold 0..{MOST_WRITES} writes", field="writes")
        ids = self._ids.take(1 + IDS_PER_WRITE * len(writes))
        readable = [self._readable(write) for write in writes]
        move = BeginAndExtend(new, taker, readable, ids=ids, limits=self._limits)
        begun = await self._writer.submit(move)
        self._note_trace(new, begun)
        return begun

    async def begin_run_once(self, new: NewRun, key: str, window_ms: int) -> BegunOnce:
        ids = (next(self._ids), next(self._ids))
        answer = await self._writer.submit(BeginRunOnce(new, key, window_ms, ids, self._limits))
        if answer.run is not None:
            return BegunOnce(answer.run, answer.resumed, duplicate=False)
        run = await self._store.runs.get_run(answer.run_id)
        if run is None:
            raise StoreFailed(f"run {answer.run_id!r}, which has this key, is not in the store")
        return BegunOnce(run, resumed=True, duplicate=True)

    async def resume_run(
        self, run_id: str, taker: Taker = NOBODY, *, expected_token: int = WHOEVER
    ) -> Run:
        move = ResumeRun(
            run_id,
            taker,
            next(self._ids),
            self._limits,
            expected_token=expected_token,
            trace=await self._trace_of(run_id),
        )
        return await self._writer.submit(move)

    async def heartbeat_run(self, run_id: str, fencing_token: int, ttl_ms: int) -> Run:
        move = HeartbeatRun(run_id, fencing_token, ttl_ms, self._limits)
        return await self._writer.submit(move)

    async def release_run(
        self, run_id: str, fencing_token: int, *, waiting_on: str = "", seen_seq: int = 0
    ) -> Run:
        move = ReleaseRun(
            run_id,
            fencing_token,
            next(self._ids),
            self._limits,
            waiting_on=waiting_on,
            seen_seq=seen_seq,
            trace=await self._trace_of(run_id),
        )
        return await self._writer.submit(move)

    async def extend_run(
        self,
        run_id: str,
        fencing_token: int,
        writes: Sequence[RunWrite],
        trace: Trace = NO_TRACE,
    ) -> Extended:
        if not 0 < len(writes) <= MOST_WRITES:
            raise InvalidArgument(f"must hold 1..{MOST_WRITES} writes", field="writes")
        known = [await self._with_parent(run_id, self._readable(write)) for write in writes]
        move = ExtendRun(
            run_id,
            fencing_token,
            known,
            ids=self._ids.take(IDS_PER_WRITE * len(known)),
            limits=self._limits,
            trace=trace if trace.trace_id else await self._trace_of(run_id),
        )
        return await self._writer.submit(move)

    async def change_run(self, run_id: str, write: RunWrite) -> Any:
        known = await self._with_parent(run_id, self._readable(write))
        ids = self._ids.take(IDS_PER_WRITE)
        trace = await self._trace_of(run_id)
        move = ChangeRun(run_id, [known], ids=ids, limits=self._limits, trace=trace)
        return (await self._writer.submit(move)).replies[0]

    async def get_run(self, run_id: str) -> Run | None:
        return await self._store.runs.get_run(self._name(run_id, "run_id"))

    async def list_runs(self, query: RunQuery) -> list[Run]:
        check_name(query.app_name, self._limits, field="app_name")
        check_name(query.pool, self._limits, field="pool")
        check_name(query.after, self._limits, field="after")
        return await self._store.runs.list_runs(query._replace(limit=_page(query.limit)))

    async def list_runs_to_recover(self, query: RecoverQuery) -> list[Run]:
        return await self._store.runs.list_runs_to_recover(query._replace(limit=_page(query.limit)))

    async def list_waiting_runs(self, older_than_ms: int = WAITING_MS) -> list[WaitingRuns]:
        if not 0 <= older_than_ms < 2**53:
            raise InvalidArgument(f"{older_than_ms} is not in 0..2^53-1", field="older_than_ms")
        return await self._store.runs.list_waiting_runs(older_than_ms)

    async def read_run(self, run_id: str, after_seq: int, limit: int = 0) -> list[Entry]:
        name = self._name(run_id, "run_id")
        found = await read_run(self._store, name, after_seq, _page(limit))
        if not found:
            run = await self._found(name)
            refuse_beyond_the_run(name, run.seq_cursor, after_seq, field="after_seq")
        return found

    def follow_run(
        self, run_id: str, after_seq: int, max_bytes: int = 0
    ) -> AsyncGenerator[list[Entry], None]:
        name = self._name(run_id, "run_id")
        check_position(after_seq, "from_seq")
        most = min(max_bytes or self._limits.page_bytes, self._limits.page_bytes)
        return follow_run(self._store, name, after_seq, PAGE, most)

    async def get_decision(self, run_id: str, decision_index: int) -> Entry | None:
        return await self._store.runs.get_decision(self._name(run_id, "run_id"), decision_index)

    async def get_effect(self, run_id: str, idempotency_key: str) -> Effect | None:
        self._name(idempotency_key, "idempotency_key")
        return await self._store.runs.get_effect(self._name(run_id, "run_id"), idempotency_key)

    async def list_pending_effects(self, query: PendingQuery) -> list[Effect]:
        return await self._store.runs.list_pending_effects(query._replace(limit=_page(query.limit)))

    async def list_effects_to_dispatch(
        self, connectors: Sequence[str] = (), limit: int = 0
    ) -> list[Effect]:
        return await self._store.runs.list_effects_to_dispatch(connectors, _page(limit))

    async def list_obligations(self, run_id: str) -> list[Obligation]:
        name = self._name(run_id, "run_id")
        return await self._store.runs.list_obligations(name) or await self._nothing_of(name)

    async def list_unresolved_obligations(
        self, limit: int = 0, *, include_stuck: bool = False
    ) -> list[Obligation]:
        return await self._store.runs.list_unresolved_obligations(
            _page(limit), include_stuck=include_stuck
        )

    async def admit_budget(self, run_id: str, usd: float, tokens: int) -> Admission:
        check_amounts(usd, tokens)
        budget = await self._store.runs.get_budget(self._name(run_id, "run_id"))
        if budget is None:
            await self._nothing_of(run_id)
            budget = BudgetRow(run_id)
        reason = budget.refusal(usd, tokens)
        return Admission(not reason, reason, budget)

    async def list_timers(self, run_id: str) -> list[Timer]:
        name = self._name(run_id, "run_id")
        return await self._store.runs.list_timers(name) or await self._nothing_of(name)

    async def list_due_timers(self, limit: int = 0) -> list[Timer]:
        return await self._store.runs.list_due_timers(_page(limit))

    async def fire_due_timers(self, limit: int = 0) -> list[Timer]:
        fired = []
        for timer in await self.list_due_timers(limit):
            done: Timer | None = await self.change_run(timer.run_id, FireTimer(timer))
            if done is not None:
                fired.append(done)
        return fired

    async def next_timer_in_ms(self) -> int | None:
        return await self._store.runs.next_timer_in_ms()

    async def _nothing_of(self, run_id: str) -> list[Any]:
        """An empty list for a run that has none of what was asked for; NotFound without a run."""
        await self._found(run_id)
        return []

    async def _found(self, run_id: str) -> Run:
        run = await self._store.runs.get_run(run_id)
        if run is None:
            raise NotFound(f"no run has the id {run_id!r}")
        return run

    async def joined(self, run_id: str, trace: Trace) -> Trace:
        """The trace of an entry that is written as a run: its own, else the run's."""
        if not run_id or trace != NO_TRACE:
            return trace
        with suppress(InvalidArgument):  # the write says it more exactly
            return await self._trace_of(run_id)
        return trace

    async def _trace_of(self, run_id: str) -> Trace:
        """The trace of a run for an entry that somebody writes who has no span of his own: below
        what its first entry carries. That never changes, so it is read once.
        """
        known = self._traces.get(run_id)
        if known is None:
            first = await self._store.read_run(self._name(run_id, "run_id"), 0, 1)
            known = NO_TRACE
            if first and first[0].seq == 1:
                known = _below(Trace(first[0].trace_id, first[0].span_id, first[0].parent_span_id))
            if first:
                self._remember(run_id, known)
        return known

    def _note_trace(self, new: NewRun, begun: Begun) -> None:
        if not begun.resumed:
            self._remember(begun.run.run_id, _below(new.joined_trace))

    def _remember(self, run_id: str, trace: Trace) -> None:
        self._traces[run_id] = trace
        if len(self._traces) > MOST_TRACES:
            self._traces.popitem(last=False)

    async def _with_parent(self, run_id: str, write: RunWrite) -> RunWrite:
        """A write that may end the run must know whom to tell."""
        if getattr(write, "parent_run_id", "") is not None:
            return write
        run = await self._store.runs.get_run(self._name(run_id, "run_id"))
        parent = "" if run is None else run.parent_run_id
        return write._replace(parent_run_id=parent)  # type: ignore[attr-defined,no-any-return]

    def _readable(self, write: RunWrite) -> RunWrite:
        """A draw as every version reads it that may be left: one that did not see it would draw
        again, and act on that.
        """
        if self._store.runs.has_draw_subjects or not isinstance(write, RecordDecision):
            return write
        return write._replace(verb=RECORDED) if write.verb in (DRAWN, FAILED) else write

    def _name(self, text: str, field: str) -> str:
        return check_name(text, self._limits, field=field, required=True)


def _below(begun: Trace) -> Trace:
    if not begun.trace_id:
        return NO_TRACE
    return Trace(begun.trace_id, "", begun.span_id or begun.parent_span_id)


def _page(limit: int) -> int:
    return min(limit, PAGE) if limit > 0 else PAGE
