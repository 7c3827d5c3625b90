"""What a client says about runs."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypedDict, TypeVar, Unpack, overload

import orjson

from tape.bus import Operations
from tape.client.build import as_json
from tape.errors import EffectFailed, InvalidArgument, RunCancelled
from tape.journal.ids import UlidFactory
from tape.model.begin_once import MOST_WINDOW_MS
from tape.model.entry import Entry
from tape.model.error_record import traceback_in
from tape.model.gate import SendSignal, Signalled
from tape.model.lease import NewRun
from tape.model.run import SHOWN_WORDS, Run, RunStatus, status_named
from tape.model.run_end import CancelRun
from tape.model.subscription import MESSAGE_USER
from tape.model.trace_context import TraceTexts
from tape.ports.polling import OpenPolledSource
from tape.ports.runs import RunQuery, WaitingRuns
from tape.ports.user_traceback import recorded_cause
from tape.reactions.threads import HandlerThreads
from tape.runs.declare import DECLARED_APPS, App
from tape.runs.driving.run_here import RunsHere, new_run
from tape.runs.operations import WAITING_MS
from tape.telemetry.tracing import recording

READ_PAGE = 1_000
R = TypeVar("R")


class RunOptions(TypedDict, total=False):
    """The options of `run`, for type checkers."""

    pool: str
    user_id: str
    session_id: str
    invocation_id: str
    trace: Mapping[str, str] | None


class RunMethods:
    _operations: Operations
    _here: RunsHere | None = None
    _polled: OpenPolledSource | None = None

    async def start_run(
        self,
        app: App[Any] | str,
        payload: Any = None,
        *,
        pool: str = "",
        user_id: str = "",
        session_id: str = "",
        invocation_id: str = "",
        dedup: tuple[str, float] | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> Run:
        """Start a run for a worker to drive, and return it.

        The same `invocation_id` returns the same run. `dedup` is a key and a window in seconds:
        within it the app is run once for each key, and that run is returned, whatever else is
        asked. `trace` is W3C trace context (`traceparent`, and `tracestate` and `baggage`), which
        the run joins; by default it joins the current span.
        """
        new = new_run(
            app,
            payload,
            pool=pool,
            user_id=user_id,
            session_id=session_id,
            invocation_id=invocation_id,
        )
        with _joined(new, trace) as joined:
            if dedup is None:
                return (await self._operations.runs.begin_run(joined)).run
            key, window_ms = _window(*dedup)
            return (await self._operations.runs.begin_run_once(joined, key, window_ms)).run

    @overload
    async def run(self, app: App[R], payload: Any = None, **options: Unpack[RunOptions]) -> R: ...

    @overload
    async def run(self, app: str, payload: Any = None, **options: Unpack[RunOptions]) -> Any: ...

    async def run(
        self,
        app: App[Any] | str,
        payload: Any = None,
        *,
        pool: str = "",
        user_id: str = "",
        session_id: str = "",
        invocation_id: str = "",
        trace: Mapping[str, str] | None = None,
    ) -> Any:
        """Run an app durably in this process and return its result.

        If this process dies in the middle, a worker of the app's pool continues the run. `trace` is
        as in `start_run`.
        """
        declared = app if isinstance(app, App) else DECLARED_APPS.apps.get(app)
        if declared is None:
            raise InvalidArgument(f"no app {app!r} is declared in this process", field="app")
        new = new_run(
            declared,
            payload,
            pool=pool,
            user_id=user_id,
            session_id=session_id,
            invocation_id=invocation_id,
        )
        with _joined(new, trace) as joined:
            is_new = not invocation_id
            return outcome_of(await self._running_here().run(joined, declared, is_new=is_new))

    async def run_result(self, run_id: str) -> Any:
        """Wait for the end of a run that a worker drives, and return its result."""
        return outcome_of(await self._running_here().ended(run_id))

    async def get_run(self, run_id: str) -> Run | None:
        """Return a run; None if it does not exist."""
        return await self._operations.runs.get_run(run_id)

    async def list_runs(
        self,
        *,
        status: RunStatus | str = "",
        app_name: str = "",
        pool: str = "",
        subscription: str = "",
        limit: int = 0,
        after: str = "",
    ) -> list[Run]:
        """Return runs, the newest first. `after` is the id of the last run of the previous page.

        Those of a `subscription` are the ones that its messages became.
        """
        number = _status_number(status)
        session = (MESSAGE_USER, subscription) if subscription else None
        query = RunQuery(number, app_name, pool, limit, after, session=session)
        return await self._operations.runs.list_runs(query)

    async def waiting_runs(self, older_than_s: float = WAITING_MS / 1000) -> list[WaitingRuns]:
        """Return runs that no worker has taken for `older_than_s`, by app and pool, the longest
        wait first.
        """
        return await self._operations.runs.list_waiting_runs(int(older_than_s * 1000))

    async def read_run(self, run_id: str) -> list[Entry]:
        """Return the whole journal of a run, in its own order."""
        entries: list[Entry] = []
        after = 0
        while page := await self._operations.runs.read_run(run_id, after, READ_PAGE):
            entries += page
            after = page[-1].seq
        return entries

    async def send_signal(self, run_id: str, gate_name: str, resolution: Any = None) -> bool:
        """Open a gate of a run. Returns False if it was already open or the run has ended."""
        text = as_json(resolution, field="resolution")
        sent: Signalled = await self._operations.runs.change_run(
            run_id, SendSignal(gate_name, text)
        )
        return sent.accepted

    async def cancel_run(self, run_id: str, reason: str = "") -> Run:
        """Request the cancellation of a run. Its effects are compensated first."""
        run: Run = await self._operations.runs.change_run(run_id, CancelRun(reason))
        return run

    async def resume_run(self, run_id: str) -> Run:
        """Make a run that is stuck or waits available to workers again."""
        return await self._operations.runs.resume_run(run_id)

    def _running_here(self) -> RunsHere:
        if self._here is None:
            settings = self._operations.settings.reactors
            self._here = RunsHere(
                self._operations,
                settings,
                lease_owner(),
                HandlerThreads(settings.threads),
                self._polled,
            )
        return self._here

    async def _stop_running_here(self) -> None:
        if self._here is not None:
            await self._here.close()


def lease_owner() -> str:
    """Nobody else's, so that two programs on one machine never share a lease."""
    name = os.environ.get("TAPE_LEASE_OWNER") or f"{socket.gethostname()}-{os.getpid()}"
    return f"{name}-{next(UlidFactory())}"


def outcome_of(run: Run) -> Any:
    """What a run returned; the error of one that did not succeed, raised."""
    outcome = orjson.loads(run.outcome_json or "null")
    if run.status == RunStatus.TERMINAL:
        return outcome
    words = outcome.get("message", outcome) if isinstance(outcome, dict) else outcome
    if run.status == RunStatus.CANCELLED:
        raise RunCancelled(f"run {run.run_id} was cancelled: {words}")
    failed = EffectFailed(f"run {run.run_id} is {SHOWN_WORDS[run.status]}: {words}")
    raise failed from recorded_cause(traceback_in(outcome))


def _status_number(status: RunStatus | str) -> int:
    if isinstance(status, str):
        return status_named(status).value if status else 0
    return status


@contextmanager
def _joined(new: NewRun, trace: Mapping[str, str] | None) -> Iterator[NewRun]:
    """The run in the trace that somebody states, else in that of the current span."""
    if trace is not None:
        for name in trace:
            if name not in TraceTexts._fields:
                known = ", ".join(TraceTexts._fields)
                raise InvalidArgument(f"is not known; known are {known}", field=f"trace.{name}")
        yield new._replace(context=TraceTexts(**trace))
        return
    with recording(f"start_run {new.name.app_name}") as own:
        yield new._replace(trace=own)


def _window(key: str, window_secs: float) -> tuple[str, int]:
    if not key:
        raise InvalidArgument("needs a key", field="dedup")
    if not 0.001 <= window_secs <= MOST_WINDOW_MS / 1000:
        most = MOST_WINDOW_MS // 1000
        raise InvalidArgument(f"{window_secs:g} s is not in 0.001..{most}", field="dedup")
    return key, round(window_secs * 1000)
