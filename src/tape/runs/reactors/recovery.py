"""Recovery: takes runs that nobody drives, new ones and those of a driver that is gone.

Takeover compares and sets: read the lease, and take it only if it is still as it was read.
Whoever loses that race backs off from that run, a little longer each time.
"""

import asyncio
import logging
import random
from dataclasses import dataclass, field
from typing import Any

from tape.errors import LeaseHeld, NotFound, RunEnded
from tape.model.lease import Taker
from tape.model.run import Run, RunStatus
from tape.ports.backoffs import Backoffs
from tape.ports.runs import RecoverQuery
from tape.runs.boundary import boundary
from tape.runs.declare import App, Apps
from tape.runs.driving.drive import RunDriver
from tape.runs.failures import log_raised
from tape.runs.operations import RunOperations
from tape.runs.reactors.reactor import jittered
from tape.settings import ReactorsSettings

log = logging.getLogger("tape.runs")


@dataclass(slots=True)
class Recovery:
    """A reactor. It drives at most `settings.runs` at a time, those of its pool and apps alone."""

    runs: RunOperations
    driver: RunDriver
    apps: Apps
    settings: ReactorsSettings
    taker: Taker
    pool: str
    name: str = "recovery"
    patterns: tuple[str, ...] = ("/tape/run/runnable/**",)
    _driving: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _backoffs: Backoffs = field(init=False)

    def __post_init__(self) -> None:
        first_s, most_s = self.settings.backoff_first_s, self.settings.backoff_most_s
        self._backoffs = Backoffs(first_s, most_s, jittered)

    async def once(self) -> int:
        """Take what is there; how many were taken."""
        if len(self._driving) >= self.settings.runs:
            await asyncio.wait(
                self._driving.values(),
                timeout=self.settings.poll_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        room = self.settings.runs - len(self._driving)
        if room <= 0 or not self.apps.apps:
            return 0
        query = RecoverQuery(self.pool, tuple(self.apps.apps), 2 * room)
        found = await self.runs.list_runs_to_recover(query)
        self._backoffs.forget_others({run.run_id for run in found}, if_over=True)
        wanted = [run for run in found if self._is_free(run.run_id)]
        random.shuffle(wanted)  # so that many workers do not all reach for the same one
        asked_at = asyncio.get_running_loop().time()
        taken = await asyncio.gather(
            *(self._take(run) for run in wanted[:room]), return_exceptions=True
        )
        runs = [run for run in taken if isinstance(run, Run)]
        for run in runs:  # even if others could not be had: nobody else may drive it now
            self._drive(run, self.apps.apps[run.app_name], asked_at)
        for failed in taken:
            if isinstance(failed, BaseException):
                raise failed
        return len(runs)

    async def due_in_s(self) -> float | None:
        return None

    async def settled(self) -> None:
        """Wait until every run that was taken has come to rest."""
        while self._driving:
            await asyncio.wait(self._driving.values())

    async def drain(self, grace_s: float) -> None:
        """Let runs come to where they end or wait; then let go of the others."""
        if self._driving:
            await asyncio.wait(self._driving.values(), timeout=grace_s)
        tasks = list(self._driving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take(self, run: Run) -> Run | None:
        boundary("before ResumeRun")
        try:
            taken = await self.runs.resume_run(
                run.run_id, self.taker, expected_token=run.fencing_token
            )
        except LeaseHeld:
            self._backoffs.add(run.run_id)
            return None
        except (RunEnded, NotFound):
            return None
        boundary("after ResumeRun")
        self._backoffs.forget(run.run_id)
        return taken

    def _drive(self, run: Run, app: App[Any], asked_at: float) -> None:
        driven = self._driven(run, app, asked_at)
        task = asyncio.create_task(driven, name=f"tape-run-{run.run_id}")
        self._driving[run.run_id] = task

    async def _driven(self, run: Run, app: App[Any], asked_at: float) -> None:
        try:
            left = await self.driver.drive(run, app, asked_at=asked_at)
            if left is None:
                self._backoffs.add(run.run_id)
            elif RunStatus.FAILED in (left.status, left.ending):
                what = f"run {left.run_id} of {left.app_name} has failed"
                log_raised(log, logging.ERROR, what, left.outcome_json)
        except Exception:
            log.exception("run %s could not be driven", run.run_id)
            self._backoffs.add(run.run_id)
        finally:
            del self._driving[run.run_id]

    def _is_free(self, run_id: str) -> bool:
        return run_id not in self._driving and run_id not in self._backoffs
