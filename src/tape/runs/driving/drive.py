"""Driving a run: replay what its journal holds, go on from there, and write down how it ended."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import Any

import orjson

from tape.errors import Closed, Diverged, InvalidArgument, RunCancelled, StaleLease, TapeError
from tape.model.entry import NO_TRACE
from tape.model.error_record import error_words
from tape.model.json_text import to_json
from tape.model.lease import Begun
from tape.model.run import Run, RunStatus
from tape.model.run_end import EndRun
from tape.model.run_write import Extended, RunWrite
from tape.ports.user_code import as_failure
from tape.runs.ambient import running
from tape.runs.boundary import boundary
from tape.runs.declare import App
from tape.runs.driving.context import Context
from tape.runs.driving.journal_writes import JournalOperations, JournalWrites
from tape.runs.driving.lease_keeper import KeptLease, LeaseKeeper
from tape.runs.driving.pen import Pen
from tape.runs.driving.replay import ReplayLog
from tape.runs.driving.sync_context import SyncContext
from tape.runs.driving.unwinding import Abandoned, HasDiverged, Parked, Unrecorded, Unwind, error_in
from tape.runs.failures import described, raised_json
from tape.telemetry.loop_watch import WHAT_TO_DO, last_block
from tape.telemetry.tracing import driving, mark_failed

log = logging.getLogger("tape.runs")

Begin = Callable[[Sequence[RunWrite]], Awaitable[Begun]]

PAGE = 1_000
LET_GO_S = 5.0


class RunDriver:
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
        app: App[Any],
        journal: ReplayLog | None = None,
        begin: Begin | None = None,
        *,
        asked_at: float | None = None,
    ) -> Run | None:
        """As far as it goes now: ended, waiting, or None if it was lost to another.

        With `begin` the run is not there yet: it begins with its first write. `asked_at` is when
        its lease was asked for, by the loop's clock, if not just now.
        """
        recorded = ReplayLog() if journal is None else journal
        driven = _Driven(run, recorded, self._operations, self._keeper, self._executor, begin=begin)
        try:
            if begin is None:
                driven.hold(asked_at)
            if journal is None:
                await self._read(run, recorded)
            driven.pen.seen_seq = max(driven.pen.seen_seq, recorded.last_seq)
            return await driven.until_lost(self._run_traced(driven, run, app, recorded))
        except asyncio.CancelledError:
            await self._let_go(run, driven)
            raise
        except Abandoned as abandoned:
            log.info("run %s is left to another driver: %s", run.run_id, abandoned)
            await driven.stopped()
        except TapeError as error:
            log.warning("run %s is left to another driver: %s", run.run_id, error)
        finally:
            driven.let_be()
        return None

    async def _run_traced(
        self, driven: "_Driven", run: Run, app: App[Any], journal: ReplayLog
    ) -> Run | None:
        """Run the app in a span below what began the run, wherever and however often."""
        facts = {"tape.run_id": run.run_id, "tape.fencing_token": str(run.fencing_token)}
        with driving(f"run {run.app_name}", journal.trace, facts) as driven.trace:
            after = await self._run_app(driven.context, run, app, journal, driven.pen)
            if after is not None and after.status in (RunStatus.FAILED, RunStatus.STUCK):
                mark_failed(error_words(orjson.loads(after.outcome_json or "null")))
            return after

    async def _run_app(
        self, context: Context, run: Run, app: App[Any], journal: ReplayLog, pen: Pen
    ) -> Run | None:
        try:
            return await self._concluded(context, run, app, journal, pen)
        except Unrecorded as unrecorded:
            await context.wind_down()
            detail = described(unrecorded.error)
            failed: Run = await pen.write_end(EndRun(RunStatus.FAILED, detail, run.parent_run_id))
            return failed

    async def _concluded(
        self, context: Context, run: Run, app: App[Any], journal: ReplayLog, pen: Pen
    ) -> Run:
        try:
            status, detail = await self._outcome(context, app, journal)
        except Parked as parked:
            if await context.wind_down():
                pen.missed = True
            return await self._park(run, pen, parked.waiting_on)
        except HasDiverged as diverged:
            changed = run.app_version != app.version
            note = f" (started by version {run.app_version!r}, this is {app.version!r})"
            log.error(  # noqa: TRY400 - where in the app it was says nothing more
                "run %s of %s is stuck: %s", run.run_id, run.app_name, diverged.error
            )
            text = described(Diverged(f"{diverged.error}{note if changed else ''}"))
            status, detail = RunStatus.STUCK, text
        await context.wind_down()
        try:
            ended: Run = await pen.write(EndRun(status, detail, run.parent_run_id))
        except InvalidArgument as error:  # a result that the journal does not take
            failed = EndRun(RunStatus.FAILED, described(error), run.parent_run_id)
            ended = await pen.write(failed)
        return ended

    async def _outcome(
        self, context: Context, app: App[Any], journal: ReplayLog
    ) -> tuple[RunStatus, str]:
        """How the app ended, and its result or error. What unwinds it is raised, even if the app
        did not let it by.
        """
        try:
            result = await self._called(context, app)
            detail = to_json(result, self._operations.runs.limits, field="result")
        except BaseException as raised:  # noqa: BLE001 - what is no error of the app is raised again
            context.check_end(raised)
            error = _own_error(raised)
            if isinstance(error, RunCancelled):
                return RunStatus.CANCELLED, _cancelled(context.cancel_reason or str(error))
            journal.check_finished(f"raises {type(error).__name__} ({error})")
            limits = self._operations.runs.limits
            group = raised if isinstance(raised, BaseExceptionGroup) else None
            return RunStatus.FAILED, raised_json(error, limits, within=group)
        context.check_end(None)
        journal.check_finished()
        return RunStatus.TERMINAL, detail

    async def _called(self, context: Context, app: App[Any]) -> Any:
        if context.is_cancelled:
            raise RunCancelled(context.cancel_reason)
        given = context if app.is_async else SyncContext(context, asyncio.get_running_loop())
        args = (given, context.input) if app.takes_input else (given,)
        with running(given):
            if app.is_async:
                return await app.function(*args)
            call = partial(copy_context().run, app.function, *args)
            return await context.threads.call(call)

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

    async def _let_go(self, run: Run, driven: "_Driven") -> None:
        """This process ends: another may go on at once instead of after the lease, unless
        something that cannot be cut off is still under way here.
        """
        driven.context.stop(Closed("this process releases its runs"))
        try:
            async with asyncio.timeout(LET_GO_S):
                await driven.stopped()
                await driven.pen.settle()
                if driven.pen.has_begun:
                    boundary("before ReleaseRun")
                    await self._operations.runs.release_run(run.run_id, run.fencing_token)
                    boundary("after ReleaseRun")
        except (TapeError, TimeoutError) as error:
            log.warning(
                "run %s could not be released and waits until its lease expires: %r",
                run.run_id,
                error,
            )

    async def _read(self, run: Run, journal: ReplayLog) -> None:
        while True:
            entries = await self._operations.runs.read_run(run.run_id, journal.last_seq, PAGE)
            journal.add(entries)
            if not entries or journal.last_seq >= run.seq_cursor:
                return


class _Driven:
    """A run while it is driven here, until it is lost."""

    def __init__(
        self,
        run: Run,
        journal: ReplayLog,
        operations: JournalOperations,
        keeper: LeaseKeeper,
        executor: Executor,
        *,
        begin: Begin | None,
    ) -> None:
        self._run = run
        self._runs = operations.runs
        self._keeper = keeper
        self._begin = begin
        self._held: KeptLease | None = None
        self._is_let_be = False
        self._over = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[Run | None] | None = None
        self.trace = NO_TRACE
        self.pen = Pen(self._extend, run.seq_cursor, has_begun=begin is None)
        self.pen.on_lost = self._stop
        self.pen.on_written = self._renewed
        writes = JournalWrites(operations, run, keeper.ttl_ms)
        self.context = Context(run, journal, self.pen, journal=writes, executor=executor)

    def hold(self, asked_at: float | None) -> None:
        """Have its lease renewed, unless it began when nobody waited for that any more."""
        if not self._is_let_be:
            self._held = self._keeper.hold(self._run, self.pen.lose, self._renewed, asked_at)

    def let_be(self) -> None:
        self._is_let_be = True
        if self._held is not None:
            self._keeper.let_go(self._held)

    async def _extend(self, writes: Sequence[RunWrite]) -> Extended:
        run_id, token = self._run.run_id, self._run.fencing_token
        if self._begin is None:
            return await self._runs.extend_run(run_id, token, writes, self.trace)
        asked_at = asyncio.get_running_loop().time()
        begun = await self._begin(writes)
        if begun.resumed or begun.fencing_token != token:
            raise StaleLease(f"run {run_id!r} was started by another process")
        self._begin = None
        self.hold(asked_at)
        return begun.extended or Extended(begun.run, 0, [])

    def _renewed(self, run: Run) -> None:
        self.context.cancel_reason = run.cancel_reason

    async def until_lost(self, running: Coroutine[Any, Any, Run | None]) -> Run | None:
        """What the app comes to; None if its lease was lost before it came to anything."""
        name = f"app {self._run.app_name} of run {self._run.run_id}"
        self._task = task = asyncio.create_task(running, name=name)
        task.add_done_callback(self._end)
        await self._over
        if not task.done():
            await self.stopped()
        return None if task.cancelled() else task.result()

    async def stopped(self) -> None:
        """Wait until nothing of it is under way here. What is in a thread ends when it does."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.context.stopped()

    def _stop(self, cause: BaseException) -> None:
        self._tell_lost(cause)
        self.context.stop(cause)
        self._end()

    def _tell_lost(self, cause: BaseException) -> None:
        if not isinstance(cause, Exception):  # this process ends, or a test has it end
            return
        block = last_block(within_s=self._keeper.ttl_ms / 1000)
        if block is None:
            log.warning("run %s is left to another driver: %s", self._run.run_id, cause)
            return
        log.warning(
            "run %s is left to another driver: %s. Its lease of %g s was not renewed while %s "
            "blocked the event loop for %.1f s, at %s: %s, or raise the lease_ttl_s of "
            "tape.reactors",
            self._run.run_id, cause, self._keeper.ttl_ms / 1000, block.what, block.seconds,
            block.where, WHAT_TO_DO,
        )  # fmt: skip

    def _end(self, _task: object = None) -> None:
        if not self._over.done():
            self._over.set_result(None)


def _own_error(raised: BaseException) -> Exception:
    """The app's own error. What unwinds the app, or ends this task or process, is raised again."""
    error = error_in(raised)
    if isinstance(error, Unwind):
        raise error
    return as_failure(error)


def _cancelled(reason: str) -> str:
    return orjson.dumps({"cancelled": reason}).decode()
