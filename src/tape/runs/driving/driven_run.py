"""A run while it is driven here: its parts, its lease and the task of its app."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from typing import Any

from tape.errors import StaleLease
from tape.model.entry import NO_TRACE
from tape.model.lease import Begun
from tape.model.run import Run
from tape.model.run_write import Extended, RunWrite
from tape.ports.polling import OpenPolledSource
from tape.runs.driving.context import Context
from tape.runs.driving.decisions import Decisions
from tape.runs.driving.effect_loop import EffectLoop
from tape.runs.driving.journal_writes import JournalOperations, JournalWrites
from tape.runs.driving.lease_keeper import KeptLease, LeaseKeeper
from tape.runs.driving.pen import Pen
from tape.runs.driving.polled_sources import PolledSources
from tape.runs.driving.polls import Polls
from tape.runs.driving.replay import ReplayLog
from tape.runs.driving.steps import RunSteps
from tape.telemetry.loop_watch import WHAT_TO_DO, last_block

log = logging.getLogger("tape.runs")

Begin = Callable[[Sequence[RunWrite]], Awaitable[Begun]]


class DrivenRun:
    """Once its lease is lost, the pen refuses, the steps unwind the app, and its task ends."""

    def __init__(
        self,
        run: Run,
        journal: ReplayLog,
        operations: JournalOperations,
        keeper: LeaseKeeper,
        executor: Executor,
        *,
        begin: Begin | None,
        open_source: OpenPolledSource | None,
    ) -> None:
        self.run = run
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
        self.steps = RunSteps(run, journal, self.pen, executor, self._runs.limits)
        decisions = Decisions(self.steps)
        self.effects = EffectLoop(self.steps, decisions, self._runs)
        self.sources = PolledSources(open_source, self._runs.limits, run.run_id)
        writes = JournalWrites(operations, run, self.pen, keeper.ttl_ms)
        self.context = Context(self.effects, writes, Polls(self.steps, decisions, self.sources))

    def hold(self, asked_at: float | None) -> None:
        """Have its lease renewed, unless it began when nobody waited for that any more."""
        if not self._is_let_be:
            self._held = self._keeper.hold(self.run, self.pen.lose, self._renewed, asked_at)

    def let_be(self) -> None:
        """Renew its lease no more."""
        self._is_let_be = True
        if self._held is not None:
            self._keeper.let_go(self._held)

    async def until_lost(self, running: Coroutine[Any, Any, Run | None]) -> Run | None:
        """Return what the app comes to; None if its lease was lost before it came to anything."""
        name = f"app {self.run.app_name} of run {self.run.run_id}"
        self._task = task = asyncio.create_task(running, name=name)
        task.add_done_callback(self._end)
        await self._over
        if not task.done():
            await self.stopped()
        return None if task.cancelled() else task.result()

    def stop(self, cause: BaseException) -> None:
        """Cut off what is under way, and unwind the app at its next step."""
        self.steps.stop(cause)
        self.sources.stop()

    async def stopped(self) -> None:
        """Wait until nothing of it is under way here. What is in a thread ends when it does."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.steps.stopped()

    async def _extend(self, writes: Sequence[RunWrite]) -> Extended:
        run_id, token = self.run.run_id, self.run.fencing_token
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
        self.steps.cancel_reason = run.cancel_reason

    def _stop(self, cause: BaseException) -> None:
        self._log_lost(cause)
        self.stop(cause)
        self._end()

    def _log_lost(self, cause: BaseException) -> None:
        if not isinstance(cause, Exception):  # this process ends, or a test has it end
            return
        block = last_block(within_s=self._keeper.ttl_ms / 1000)
        if block is None:
            log.warning("run %s is left to another driver: %s", self.run.run_id, cause)
            return
        log.warning(
            "run %s is left to another driver: %s. Its lease of %g s was not renewed while %s "
            "blocked the event loop for %.1f s, at %s: %s, or raise the lease_ttl_s of "
            "tape.reactors",
            self.run.run_id, cause, self._keeper.ttl_ms / 1000, block.what, block.seconds,
            block.where, WHAT_TO_DO,
        )  # fmt: skip

    def _end(self, _task: object = None) -> None:
        if not self._over.done():
            self._over.set_result(None)
