"""A run's beginning and the lease on it: the right, for a while, to extend its journal.

A lease is `(owner, reactor, expires_at, fencing_token)` on the run's row. It is granted by
compare-and-set: only if nobody else's is alive and the row is still as the taker read it, and then
with the next token. Expiry is by the store's clock. Each grant is an entry on the run's journal;
renewals are not.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tape.errors import InvalidArgument, LeaseHeld, RunCancelled, RunEnded
from tape.model.entry import NO_TRACE, EntryDraft, Trace
from tape.model.event import check_trace
from tape.model.json_text import check_json
from tape.model.move import Decision, Need, State, save
from tape.model.names import check_name, check_names
from tape.model.run import (
    DEFAULT_POOL,
    RUNS,
    SHOWN_WORDS,
    Run,
    RunName,
    RunStatus,
    fenced_run,
    find_run,
)
from tape.model.run_write import Extended, raw, run_line
from tape.model.subject import check_length
from tape.model.subjects import run_status
from tape.model.trace_context import NO_TEXTS, TraceTexts
from tape.settings import Limits

DEFAULT_TTL_MS = 30_000
MOST_TTL_MS = 24 * 3600 * 1000
FIRST_TOKEN = 1
WHOEVER = -1
"""As the expected token: whatever the row has."""


class Taker(NamedTuple):
    """Who wants a lease, as which reactor and for how long.

    With a `pool` it resumes runs of that pool alone.
    """

    owner: str = ""
    reactor: str = "recovery"
    ttl_ms: int = DEFAULT_TTL_MS
    pool: str = ""

    def checked(self, limits: Limits) -> "Taker":
        check_name(self.owner, limits, field="lease_owner")
        check_name(self.reactor, limits, field="reactor_name")
        check_name(self.pool, limits, field="pool")
        ttl = self.ttl_ms if self.ttl_ms > 0 else DEFAULT_TTL_MS
        if ttl > MOST_TTL_MS:
            raise InvalidArgument("a lease may last a day at most", field="lease_ttl_ms")
        return self._replace(ttl_ms=ttl)


_NAMES = (*RunName._fields, "pool", "app_version", "parent_run_id")


class NewRun(NamedTuple):
    """A run to begin. The parent's token is looked at where there is a parent.

    `context` is kept in its first entry; without a `trace` the run joins that of the context.
    """

    name: RunName
    input_json: str = "null"
    pool: str = DEFAULT_POOL
    app_version: str = ""
    parent_run_id: str = ""
    parent_fencing_token: int = 0
    trace: Trace = NO_TRACE
    context: TraceTexts = NO_TEXTS

    def checked(self, limits: Limits) -> "NewRun":
        name = self.name
        check_name(name.app_name, limits, field="app_name", required=True)
        names = (*name, self.pool, self.app_version, self.parent_run_id)
        check_names(names, limits, fields=_NAMES)
        check_trace(*self.trace)
        longest = run_status("cancel_requested", *name[:3], name.run_id)
        check_length(longest, limits)
        new = self._replace(
            input_json=check_json(self.input_json, limits, field="input_json"),
            pool=self.pool or DEFAULT_POOL,
        )
        if not any(self.context):
            return new
        return new._replace(trace=self.joined_trace, context=self.context.checked().texts)

    @property
    def joined_trace(self) -> Trace:
        """Its own trace, else the one that its context is of."""
        if any(self.trace) or not any(self.context):
            return self.trace
        context = self.context.checked()
        return Trace(context.trace_id, "", context.span_id)


class Begun(NamedTuple):
    """The run, whether it was there before, and the token if the lease was granted (else 0).

    `extended` is what became of writes that came with its beginning; None if it was there before.
    """

    run: Run
    resumed: bool
    fencing_token: int
    extended: Extended | None = None


class BeginRun:
    """Make a run, or find the one by that name, and take its lease if one is wanted and free."""

    __slots__ = ("_event_id", "_new", "_taker", "weight")

    def __init__(self, new: NewRun, taker: Taker, event_id: str, limits: Limits | None) -> None:
        """Without limits both were checked before."""
        self._new = new if limits is None else new.checked(limits)
        self._taker = taker if limits is None else taker.checked(limits)
        self._event_id = event_id
        self.weight = 1024 + len(new.input_json)

    def needs(self) -> Iterable[Need]:
        yield Need(RUNS, self._new.name.run_id, is_new=True)
        if self._new.parent_run_id:
            yield Need(RUNS, self._new.parent_run_id)

    def decide(self, state: State) -> Decision[Begun]:
        known = state.get(RUNS, self._new.name.run_id)
        if known is not None:
            return self._found(state, known)
        self._check_parent(state)
        run = _fresh(self._new, state.now_ms)
        details: dict[str, Any] = {
            "input": raw(self._new.input_json),
            "app_version": run.app_version,
            "parent_run_id": run.parent_run_id,
        }
        if any(self._new.context):
            details["trace"] = self._new.context._asdict()
        if self._taker.owner:
            run, lease = _granted(run, self._taker, state.now_ms)
            details |= lease
        return self._written(run, details, resumed=False)

    def _found(self, state: State, run: Run) -> Decision[Begun]:
        parent = self._new.parent_run_id
        if parent and parent != run.parent_run_id:
            # It would wait for the end of a run that tells somebody else.
            raise InvalidArgument(
                f"the run's parent is {run.parent_run_id!r}: start a run with another name",
                field="parent_run_id",
            )
        held = run.is_leased(state.now_ms) and run.lease_owner != self._taker.owner
        if not self._taker.owner or held or not run.is_open:
            as_it_is = Begun(run, True, 0)
            return Decision(lambda _place: as_it_is)
        self._check_parent(state)
        return self._written(*_granted(run, self._taker, state.now_ms), resumed=True)

    def _check_parent(self, state: State) -> None:
        if not self._new.parent_run_id:
            return
        parent = fenced_run(state, self._new.parent_run_id, self._new.parent_fencing_token)
        if parent.cancel_reason:
            raise RunCancelled(f"run {parent.run_id!r} is being cancelled: {parent.cancel_reason}")

    def _written(self, run: Run, details: dict[str, Any], *, resumed: bool) -> Decision[Begun]:
        run = run._replace(seq_cursor=run.seq_cursor + 1)
        begun = Begun(run, resumed, run.fencing_token if self._taker.owner else 0)
        draft = _draft(self._event_id, run, details, self._new.trace)
        return Decision(lambda _place: begun, [draft], [save(RUNS, run)])


class ResumeRun:
    """Take the lease of a run, if it is free and its token still the expected one.

    Without an owner the run is put back for whoever comes: the way to go on with a stuck one.
    """

    __slots__ = ("_event_id", "_expected", "_run_id", "_taker", "_trace", "weight")

    def __init__(
        self,
        run_id: str,
        taker: Taker,
        event_id: str,
        limits: Limits,
        *,
        expected_token: int = WHOEVER,
        trace: Trace = NO_TRACE,
    ) -> None:
        self._run_id = check_name(run_id, limits, field="run_id", required=True)
        self._taker = taker.checked(limits)
        self._expected = expected_token
        self._event_id = event_id
        check_trace(*trace)
        self._trace = trace
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(RUNS, self._run_id)

    def decide(self, state: State) -> Decision[Run]:
        run = find_run(state, self._run_id)
        if self._taker.pool not in ("", run.pool):
            raise InvalidArgument(
                f"run {run.run_id!r} is in the pool {run.pool!r}, not in {self._taker.pool!r}",
                field="pool",
            )
        if not self._taker.owner:
            return self._put_back(run, state.now_ms)
        if not run.is_open:
            raise RunEnded(f"run {run.run_id!r} is {SHOWN_WORDS[run.status]}")
        if run.is_leased(state.now_ms) and run.lease_owner != self._taker.owner:
            raise LeaseHeld(
                f"run {run.run_id!r} is held by {run.lease_owner!r} for another "
                f"{run.lease_expires_at_ms - state.now_ms} ms"
            )
        if self._expected not in (WHOEVER, run.fencing_token):
            raise LeaseHeld(f"run {run.run_id!r} was taken over by another driver in the meantime")
        return self._written(*_granted(run, self._taker, state.now_ms))

    def _put_back(self, run: Run, now_ms: int) -> Decision[Run]:
        if run.status == RunStatus.STUCK and run.ending:
            run = run._replace(status=RunStatus.COMPENSATING.value, ended_at_ms=0)
        elif run.status in (RunStatus.STUCK, RunStatus.WAITING):
            run = run._replace(
                status=RunStatus.RUNNABLE.value, ended_at_ms=0, outcome_json="", waiting_on=""
            )
        elif not run.is_open and run.status != RunStatus.COMPENSATING:
            raise RunEnded(f"run {run.run_id!r} is {SHOWN_WORDS[run.status]}")
        elif run.is_leased(now_ms):
            raise LeaseHeld(f"run {run.run_id!r} is being driven by {run.lease_owner!r}")
        else:
            as_it_is = run
            return Decision(lambda _place: as_it_is)
        return self._written(run.unleased(), {"because": "resumed by an operator"})

    def _written(self, run: Run, details: dict[str, Any]) -> Decision[Run]:
        run = run._replace(seq_cursor=run.seq_cursor + 1)
        draft = _draft(self._event_id, run, details, self._trace)
        return Decision(lambda _place: run, [draft], [save(RUNS, run)])


class HeartbeatRun:
    """Renew a lease that nobody has taken over. The run tells, among others, of a cancellation."""

    __slots__ = ("_fencing_token", "_run_id", "_ttl_ms", "weight")

    def __init__(self, run_id: str, fencing_token: int, ttl_ms: int, limits: Limits) -> None:
        self._run_id = check_name(run_id, limits, field="run_id", required=True)
        self._fencing_token = fencing_token
        self._ttl_ms = Taker(ttl_ms=ttl_ms).checked(limits).ttl_ms
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(RUNS, self._run_id)

    def decide(self, state: State) -> Decision[Run]:
        run = fenced_run(state, self._run_id, self._fencing_token)
        run = run._replace(lease_expires_at_ms=state.now_ms + self._ttl_ms)
        return Decision(lambda _place: run, (), [save(RUNS, run)])


class ReleaseRun:
    """Let go of the lease. The run is runnable at once, or waits for something from outside.

    It waits only if nothing has been written for it since `seen_seq`: what it waits for may have
    come while its driver was about to let go. One that is to be cancelled does not wait.
    """

    __slots__ = (
        "_event_id",
        "_fencing_token",
        "_run_id",
        "_seen_seq",
        "_trace",
        "_waiting_on",
        "weight",
    )

    def __init__(
        self,
        run_id: str,
        fencing_token: int,
        event_id: str,
        limits: Limits,
        *,
        waiting_on: str = "",
        seen_seq: int = 0,
        trace: Trace = NO_TRACE,
    ) -> None:
        self._trace = trace
        self._run_id = check_name(run_id, limits, field="run_id", required=True)
        self._waiting_on = check_name(waiting_on, limits, field="waiting_on")
        self._fencing_token = fencing_token
        self._seen_seq = seen_seq
        self._event_id = event_id
        self.weight = 512

    def needs(self) -> Iterable[Need]:
        yield Need(RUNS, self._run_id)

    def decide(self, state: State) -> Decision[Run]:
        before = find_run(state, self._run_id)
        if before.fencing_token == self._fencing_token > 0 and not before.lease_owner:
            return Decision(lambda _place: before)  # a repeat, or it has ended
        run = fenced_run(state, self._run_id, self._fencing_token)
        seen_all = run.seq_cursor == self._seen_seq
        waits = bool(self._waiting_on) and seen_all and not run.cancel_reason
        status = RunStatus.WAITING if waits else RunStatus.RUNNABLE
        run = run.unleased()._replace(
            status=status.value,
            waiting_on=self._waiting_on if waits else "",
            seq_cursor=run.seq_cursor + 1,
        )
        details = {"waiting_on": self._waiting_on, "fencing_token": self._fencing_token}
        draft = _draft(self._event_id, run, details, self._trace)
        return Decision(lambda _place: run, [draft], [save(RUNS, run)])


def _fresh(new: NewRun, now_ms: int) -> Run:
    return Run(
        new.name.run_id,
        *new.name,
        new.pool,
        RunStatus.RUNNABLE.value,
        0,
        "",
        "",
        0,
        0,
        now_ms,
        0,
        new.app_version,
        new.parent_run_id,
    )


def _granted(run: Run, taker: Taker, now_ms: int) -> tuple[Run, dict[str, Any]]:
    """The run with its lease, and what its entry says of that."""
    run = run._replace(
        status=RunStatus.RUNNING.value,
        lease_owner=taker.owner,
        reactor_name=taker.reactor,
        lease_expires_at_ms=now_ms + taker.ttl_ms,
        fencing_token=run.fencing_token + 1,
        waiting_on="",
    )
    lease = {
        "owner": run.lease_owner,
        "reactor": run.reactor_name,
        "fencing_token": run.fencing_token,
        "lease_expires_at_ms": run.lease_expires_at_ms,
    }
    return run, lease


def _draft(event_id: str, run: Run, details: dict[str, Any], trace: Trace) -> EntryDraft:
    """For a run whose cursor has been advanced already."""
    return EntryDraft(
        event_id,
        *run_line(run, **details),
        run_id=run.run_id,
        seq=run.seq_cursor,
        trace_id=trace.trace_id,
        span_id=trace.span_id,
        parent_span_id=trace.parent_span_id,
    )
