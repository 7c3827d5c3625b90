"""Driving a run: replay what its journal holds, go on from there, and write down how it ended.

    RunDriver ── drives a DrivenRun: its lease, and the task of its app
      └─ call_app ── calls the app with its Context, or with a SyncContext that waits for that one
           └─ Context ── the steps that an app can take
                ├─ EffectLoop ── executes an effect, and JournalledEffect writes it down
                ├─ Decisions ── what was decided, drawn or asked once
                ├─ JournalWrites ── values and events, which are not the run's own
                ├─ Polls ── what sources had, and PolledSources have it in hand
                └─ RunSteps ── is it recorded, is it its turn, may the app go on?
                     ├─ ReplayLog, StepOrder ── what is recorded; what was begun before
                     ├─ EffectTasks, RunThreads ── what is under way here
                     └─ Pen ── writes, and the one transaction for several of them

Each holds those below it, and none of those above.
"""

import asyncio
import logging
from concurrent.futures import Executor
from typing import Any

import orjson

from tape.errors import Closed, Diverged, InvalidArgument, TapeError
from tape.model.error_record import error_words
from tape.model.run import Run, RunStatus
from tape.model.run_end import EndRun
from tape.ports.polling import OpenPolledSource
from tape.runs.boundary import boundary
from tape.runs.declare import App
from tape.runs.driving.call_app import call_app
from tape.runs.driving.driven_run import Begin, DrivenRun
from tape.runs.driving.journal_writes import JournalOperations
from tape.runs.driving.lease_keeper import LeaseKeeper
from tape.runs.driving.pen import Pen
from tape.runs.driving.replay import ReplayLog
from tape.runs.driving.unwinding import Abandoned, HasDiverged, Parked, Unrecorded
from tape.runs.failures import described
from tape.telemetry.tracing import driving, mark_failed

log = logging.getLogger("tape.runs")

PAGE = 1_000
LET_GO_S = 5.0


class RunDriver:
    """Drives runs whose lease it is given, one call for each."""

    def __init__(
        self,
        operations: JournalOperations,
        keeper: LeaseKeeper,
        executor: Executor,
        open_source: OpenPolledSource | None = None,
    ) -> None:
        self._operations = operations
        self._keeper = keeper
        self._executor = executor
        self._open_source = open_source

    async def drive(
        self,
        run: Run,
        app: App[Any],
        journal: ReplayLog | None = None,
        begin: Begin | None = None,
        *,
        asked_at: float | None = None,
    ) -> Run | None:
        """Drive the run as far as it goes now. Return it, ended or waiting, or None if it was lost
        to another.

        With `begin` the run is not there yet: it begins with its first write. `asked_at` is when
        its lease was asked for, by the loop's clock, if not just now.
        """
        recorded = ReplayLog() if journal is None else journal
        driven = DrivenRun(
            run, recorded, self._operations, self._keeper, self._executor,
            begin=begin, open_source=self._open_source,
        )  # fmt: skip
        after: Run | None = None
        try:
            if begin is None:
                driven.hold(asked_at)
            if journal is None:
                await self._read(run, recorded)
            driven.pen.seen_seq = max(driven.pen.seen_seq, recorded.last_seq)
            after = await driven.until_lost(self._run_traced(driven, app))
        except asyncio.CancelledError:
            await self._let_go(driven)
            raise
        except Abandoned as abandoned:
            log.info("run %s is left to another driver: %s", run.run_id, abandoned)
            await driven.stopped()
        except TapeError as error:
            log.warning("run %s is left to another driver: %s", run.run_id, error)
        finally:
            driven.let_be()
            has_succeeded = after is not None and after.status == RunStatus.TERMINAL
            await driven.sources.close(succeeded=has_succeeded)
        return after

    async def _run_traced(self, driven: DrivenRun, app: App[Any]) -> Run | None:
        """Run the app in a span below what began the run, wherever and however often."""
        run = driven.run
        facts = {"tape.run_id": run.run_id, "tape.fencing_token": str(run.fencing_token)}
        with driving(f"run {run.app_name}", driven.steps.log.trace, facts) as driven.trace:
            after = await self._run_app(driven, app)
            if after.status in (RunStatus.FAILED, RunStatus.STUCK):
                mark_failed(error_words(orjson.loads(after.outcome_json or "null")))
            return after

    async def _run_app(self, driven: DrivenRun, app: App[Any]) -> Run:
        try:
            return await self._concluded(driven, app)
        except Unrecorded as unrecorded:
            await driven.steps.wind_down()
            detail = described(unrecorded.error)
            end = EndRun(RunStatus.FAILED, detail, driven.run.parent_run_id)
            failed: Run = await driven.pen.write_end(end)
            return failed

    async def _concluded(self, driven: DrivenRun, app: App[Any]) -> Run:
        run, pen = driven.run, driven.pen
        try:
            status, detail = await call_app(app, driven.context, driven.effects)
        except Parked as parked:
            if await driven.steps.wind_down():
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
        await driven.steps.wind_down()
        try:
            ended: Run = await pen.write(EndRun(status, detail, run.parent_run_id))
        except InvalidArgument as error:  # a result that the journal does not take
            failed = EndRun(RunStatus.FAILED, described(error), run.parent_run_id)
            ended = await pen.write(failed)
        return ended

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

    async def _let_go(self, driven: DrivenRun) -> None:
        """This process ends: another may go on at once instead of after the lease, unless
        something that cannot be cut off is still under way here.
        """
        run = driven.run
        driven.stop(Closed("this process releases its runs"))
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
