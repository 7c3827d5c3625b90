"""Driving a run: replay what its journal holds, go on from there, and write down how it ended."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import Any

import orjson

from tape.errors import Diverged, RunCancelled, StaleLease, TapeError
from tape.model.json_text import to_json
from tape.model.lease import Begun
from tape.model.run import Run, RunStatus
from tape.model.run_end import EndRun
from tape.model.run_write import Extended, RunWrite
from tape.runs.ambient import CURRENT
from tape.runs.boundary import boundary
from tape.runs.context import Context
from tape.runs.declare import App
from tape.runs.effect_call import LIMITS, described
from tape.runs.journal_writes import JournalOperations, JournalWrites
from tape.runs.keep import LeaseKeeper
from tape.runs.pen import Extend, Pen
from tape.runs.replay import ReplayLog
from tape.runs.signals import Abandoned, HasDiverged, Parked, Unwind, unwind_in
from tape.runs.sync_context import SyncContext

log = logging.getLogger("tape.runs")

Begin = Callable[[Sequence[RunWrite]], Awaitable[Begun]]

PAGE = 1_000
LET_GO_S = 5.0


class Driver:
    """Drives runs whose lease it is given, one call for each."""

    def __init__(
        self, operations: JournalOperations, keeper: LeaseKeeper, executor: Executor
    ) -> None:
        self._operations = operations
        self._keeper = keeper
        self._executor = executor

    async def drive(
        self,
        run: Run,
        app: App,
        journal: ReplayLog | None = None,
        begin: Begin | None = None,
    ) -> Run | None:
        """As far as it goes now: ended, waiting, or None if it was lost to another.

        With `begin` the run is not there yet: it begins with its first write.
        """
        pen = Pen(self._extending(run, begin), run.seq_cursor)
        lost = asyncio.get_running_loop().create_future()

        def on_lost(error: BaseException) -> None:
            pen.lose(error)
            if not lost.done():
                lost.set_result(None)

        try:
            if journal is None:
                journal = await self._read(run)
            pen.seen_seq = max(pen.seen_seq, journal.last_seq)
            context = self._context(run, journal, pen)

            def on_renewed(renewed: Run) -> None:
                context.cancel_reason = renewed.cancel_reason

            with self._keeper.holding(run, on_lost, on_renewed):
                return await self._abandonable(self._run_app(context, run, app, journal, pen), lost)
        except asyncio.CancelledError:
            await self._let_go(run)
            raise
        except Abandoned as abandoned:
            log.info("run %s is left to another: %s", run.run_id, abandoned)
        except TapeError as error:
            log.warning("run %s is left to another: %s", run.run_id, error)
        return None

    async def _abandonable(self, running: Any, lost: "asyncio.Future[None]") -> Run | None:
        """What it returns, unless the lease is lost first."""
        task = asyncio.ensure_future(running)
        await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if task.cancelled():
            return None
        result: Run | None = task.result()
        return result

    async def _run_app(
        self, context: Context, run: Run, app: App, journal: ReplayLog, pen: Pen
    ) -> Run | None:
        try:
            status, detail = await self._outcome(context, app, journal)
        except Parked as parked:
            await context.wind_down(parked)
            return await self._park(run, pen, parked.waiting_on)
        except HasDiverged as diverged:
            changed = run.app_version != app.version
            note = f" (begun by version {run.app_version!r}, this is {app.version!r})"
            log.error(  # noqa: TRY400 - where in the app it was says nothing more
                "run %s of %s is stuck: %s", run.run_id, run.app_name, diverged.error
            )
            text = described(Diverged(f"{diverged.error}{note if changed else ''}"))
            status, detail = RunStatus.STUCK, text
        ended: Run = await pen.write(EndRun(status, detail, run.parent_run_id))
        return ended

    async def _outcome(
        self, context: Context, app: App, journal: ReplayLog
    ) -> tuple[RunStatus, str]:
        """How the app ended, and its result or error."""
        try:
            result = await self._called(context, app)
            detail = to_json(result, LIMITS, field="result")
        except BaseExceptionGroup as group:
            end = unwind_in(group)
            if isinstance(end, Unwind):
                raise end from None
            return RunStatus.FAILED, described(end)
        except RunCancelled as error:
            return RunStatus.CANCELLED, _cancelled(error)
        except Exception as error:  # noqa: BLE001 - whatever the app raises is how its run failed
            journal.check_finished(f"raises {type(error).__name__} ({error})")
            return RunStatus.FAILED, described(error)
        journal.check_finished()
        return RunStatus.TERMINAL, detail

    async def _called(self, context: Context, app: App) -> Any:
        if context.is_cancelled:
            raise RunCancelled(context.cancel_reason)
        loop = asyncio.get_running_loop()
        given = context if app.is_async else SyncContext(context, loop)
        args = (given, context.input) if app.takes_input else (given,)
        token = CURRENT.set(given)
        try:
            if app.is_async:
                return await app.function(*args)
            call = partial(copy_context().run, app.function, *args)
            return await loop.run_in_executor(self._executor, _caught(call))
        except Uncaught as unwind:
            raise unwind.unwind from None
        finally:
            CURRENT.reset(token)

    async def _park(self, run: Run, pen: Pen, waiting_on: str) -> Run:
        await pen.flush()
        boundary("before ReleaseRun")
        released = await self._operations.runs.release_run(
            run.run_id,
            run.fencing_token,
            waiting_on=waiting_on,
            seen_seq=-1 if pen.missed else pen.seen_seq,
        )
        boundary("after ReleaseRun")
        return released

    async def _let_go(self, run: Run) -> None:
        """This process ends: another may go on at once instead of after the lease."""
        try:
            async with asyncio.timeout(LET_GO_S):
                await self._operations.runs.release_run(run.run_id, run.fencing_token)
        except (TapeError, TimeoutError) as error:
            log.warning("run %s waits for the end of its lease: %s", run.run_id, error)

    def _extending(self, run: Run, begin: Begin | None) -> Extend:
        runs, run_id, token = self._operations.runs, run.run_id, run.fencing_token

        async def extend(writes: Sequence[RunWrite]) -> Extended:
            nonlocal begin
            if begin is None:
                return await runs.extend_run(run_id, token, writes)
            begun = await begin(writes)
            if begun.extended is None:
                raise StaleLease(f"run {run_id!r} was begun by another")
            begin = None
            return begun.extended

        return extend

    def _context(self, run: Run, journal: ReplayLog, pen: Pen) -> Context:
        loop = asyncio.get_running_loop()

        async def in_thread(function: Callable[[], Any]) -> Any:
            return await loop.run_in_executor(self._executor, function)

        writes = JournalWrites(self._operations, run, self._keeper.ttl_ms)
        return Context(run, journal, pen, journal=writes, in_thread=in_thread)

    async def _read(self, run: Run) -> ReplayLog:
        journal = ReplayLog()
        while True:
            entries = await self._operations.runs.read_run(run.run_id, journal.last_seq, PAGE)
            journal.add(entries)
            if not entries or journal.last_seq >= run.seq_cursor:
                return journal


class Uncaught(Exception):
    """Carries what unwinds an app out of its thread: a future does not like what is no error."""

    def __init__(self, unwind: Unwind) -> None:
        super().__init__()
        self.unwind = unwind


def _caught(call: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        try:
            return call()
        except Unwind as unwind:
            raise Uncaught(unwind) from None

    return run


def _cancelled(error: RunCancelled) -> str:
    return orjson.dumps({"cancelled": str(error)}).decode()
