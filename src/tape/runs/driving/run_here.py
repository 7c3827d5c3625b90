"""Beginning a run and driving it right here, for programs that want its result.

The run is as durable as any other: if this process ends, a worker goes on with it.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, aclosing, suppress
from typing import Any

import orjson

from tape.errors import Closed, InvalidArgument, LeaseHeld, NotFound, RunEnded, TapeError
from tape.journal.ids import UlidFactory
from tape.model.json_text import UNLIMITED, to_json
from tape.model.lease import FIRST_TOKEN, Begun, NewRun, Taker
from tape.model.run import Run, RunName, RunStatus
from tape.model.run_write import RunWrite
from tape.ports.polling import OpenPolledSource
from tape.runs.declare import App, refuse_while_importing
from tape.runs.driving.drive import RunDriver
from tape.runs.driving.journal_writes import JournalOperations
from tape.runs.driving.lease_keeper import LeaseKeeper
from tape.runs.driving.replay import ReplayLog
from tape.settings import ReactorsSettings
from tape.telemetry.loop_watch import watched_loop

_IDS = UlidFactory()
LOOK_S = 1.0


def new_run(
    app: App[Any] | str,
    payload: Any = None,
    *,
    pool: str = "",
    user_id: str = "",
    session_id: str = "",
    invocation_id: str = "",
) -> NewRun:
    """A run to begin. One by the same four names is the same run; by default it is a new one.

    Who begins it judges its size, and knows the limits.
    """
    refuse_while_importing()
    declared = app if isinstance(app, App) else None
    name = declared.name if declared else str(app)
    if not name:
        raise InvalidArgument("must not be empty", field="app")
    return NewRun(
        RunName(name, user_id, session_id, invocation_id or next(_IDS)),
        to_json(payload, UNLIMITED, field="input"),
        pool or (declared.pool if declared else ""),
        declared.version if declared else "",
    ).checked(UNLIMITED)


class RunsHere:
    """Drives runs in this process on behalf of their callers."""

    def __init__(
        self,
        operations: JournalOperations,
        settings: ReactorsSettings,
        owner: str,
        executor: Executor,
        open_source: OpenPolledSource | None = None,
    ) -> None:
        self._operations = operations
        self._runs = operations.runs
        self._executor = executor
        self._keeper = LeaseKeeper(operations.runs, settings.agent)
        self._driver = RunDriver(operations, self._keeper, executor, open_source)
        self._taker = Taker(owner, "agent", self._keeper.ttl_ms)
        self._calls = 0
        self._watching = ExitStack()
        self._driving: set[asyncio.Task[Run | None]] = set()
        self._is_closed = False

    async def run(self, new: NewRun, app: App[Any], *, is_new: bool) -> Run:
        """The run at its end. While it waits for something, so does this.

        `is_new` if nobody else can have begun a run by that name.
        """
        new = new.checked(self._runs.limits)
        if not self._calls:
            self._watching.enter_context(watched_loop(self._keeper.ttl_ms / 1000))
        taker = self._next_taker()
        if is_new:
            run = await self._run_new(new, app, taker)
        else:
            asked_at = asyncio.get_running_loop().time()
            begun = await self._runs.begin_run(new, taker)
            run = begun.run
            if begun.fencing_token:
                driving = self._driver.drive(run, app, asked_at=asked_at)
                run = await self._drive(driving) or run
        while not run.ended_at_ms:
            await self._change_of(run)
            run = await self._go_on(run, app, taker)
        return run

    def _next_taker(self) -> Taker:
        """An owner for each call: two for one run in this process must not take it in turns."""
        self._calls += 1
        return self._taker._replace(owner=f"{self._taker.owner}-{self._calls}")

    async def _run_new(self, new: NewRun, app: App[Any], taker: Taker) -> Run:
        """It begins with its first write, in one transaction: a commit less for each run."""
        refused: TapeError | None = None

        async def begin(writes: Sequence[RunWrite]) -> Begun:
            nonlocal refused
            try:
                return await self._runs.begin_run(new, taker, writes)
            except TapeError as error:
                refused = error
                raise

        expected = _expected(new, taker)
        run = await self._drive(self._driver.drive(expected, app, _beginning(new), begin))
        run = run or await self._runs.get_run(expected.run_id)
        if run is None:
            raise refused or NotFound(f"run {expected.run_id!r} was not started")
        return run

    async def _drive(self, driving: Coroutine[Any, Any, Run | None]) -> Run | None:
        task = asyncio.create_task(driving)
        self._driving.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_closed:
                raise Closed from None
            raise
        finally:
            self._driving.discard(task)

    async def ended(self, run_id: str) -> Run:
        """Wait for the end of a run that others drive."""
        while not (run := await self._found(run_id)).ended_at_ms:
            await self._change_of(run)
        return run

    async def close(self) -> None:
        """Let go of what is still being driven."""
        self._is_closed = True
        self._watching.close()
        driving = list(self._driving)
        for task in driving:
            task.cancel()
        await asyncio.gather(*driving, return_exceptions=True)
        await self._keeper.close()
        self._executor.shutdown(wait=False)

    async def _go_on(self, run: Run, app: App[Any], taker: Taker) -> Run:
        """Drive a run that is runnable again, unless a worker does."""
        await self._runs.fire_due_timers()
        found = await self._found(run.run_id)
        if found.status not in (RunStatus.RUNNABLE, RunStatus.RUNNING):
            return found
        asked_at = asyncio.get_running_loop().time()
        try:
            taken = await self._runs.resume_run(
                run.run_id, taker, expected_token=found.fencing_token
            )
        except (LeaseHeld, RunEnded):
            return found
        return await self._drive(self._driver.drive(taken, app, asked_at=asked_at)) or taken

    async def _found(self, run_id: str) -> Run:
        found = await self._runs.get_run(run_id)
        if found is None:
            raise NotFound(f"no run has the id {run_id!r}")
        return found

    async def _change_of(self, run: Run) -> None:
        """Wait until something is written for it, at most until a timer is due or a moment."""
        due_ms = await self._runs.next_timer_in_ms()
        wait_s = LOOK_S if due_ms is None else min(LOOK_S, due_ms / 1000)
        pages = self._operations.runs.follow_run(run.run_id, run.seq_cursor)
        async with aclosing(pages):
            with suppress(TimeoutError, StopAsyncIteration):
                async with asyncio.timeout(wait_s):
                    await anext(pages)


def _expected(new: NewRun, taker: Taker) -> Run:
    """The run as it will be once it has begun, so that its app need not wait for that."""
    return Run(
        new.name.run_id,
        *new.name,
        new.pool,
        RunStatus.RUNNING.value,
        1,
        taker.owner,
        taker.reactor,
        0,
        FIRST_TOKEN,
        0,
        0,
        new.app_version,
        new.parent_run_id,
    )


def _beginning(new: NewRun) -> ReplayLog:
    """The journal of a run that has just begun: there is nothing to read."""
    journal = ReplayLog()
    journal.input = orjson.loads(new.input_json)
    journal.trace = new.trace
    return journal
