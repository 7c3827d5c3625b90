"""The steps of a run: each is taken from its journal or is new, and new ones come in line.

What unwinds the app is remembered here. An app may hold on to it, in a `finally`, a bare `except`
or by gathering errors; then its next step unwinds it again, and how it ends does not count.
"""

from collections.abc import Awaitable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from tape.errors import RunCancelled, RunEnded, TapeError, VersionMismatch
from tape.model.run import Run
from tape.runs.ambient import refuse_within
from tape.runs.driving.pen import REFUSALS, Pen
from tape.runs.driving.replay import RecordedStep, ReplayLog
from tape.runs.driving.step_order import StepOrder, StepPlace
from tape.runs.driving.under_way import EffectTasks, RunThreads
from tape.runs.driving.unwinding import Abandoned, HasDiverged, Parked, Unwind
from tape.settings import Limits

R = TypeVar("R")


class RunSteps:
    """What all steps of a run share: what is recorded, where new ones are written, and in which
    order; what they have under way; and whether the app may go on.

    An effect is numbered by the decisions made before it, `decision_index`, and by the effects
    since the last of them, `effect_index`.
    """

    def __init__(
        self, run: Run, log: ReplayLog, pen: Pen, executor: Executor, limits: Limits
    ) -> None:
        self.run = run
        self.log = log
        self.pen = pen
        self.limits = limits
        self.tasks = EffectTasks()
        self.threads = RunThreads(executor)
        self.cancel_reason = run.cancel_reason
        self.decision_index = 0
        self.effect_index = 0
        self._order = StepOrder()
        self._unwinding: Unwind | None = None
        self._had_others = False
        self._has_ended = False

    @property
    def is_cancelled(self) -> bool:
        return bool(self.cancel_reason)

    def place(self) -> StepPlace:
        """Take a place behind all steps that are in line now; it is left at the end of `with`."""
        return self._order.place()

    def take(self, kind: str, name: str) -> RecordedStep | None:
        """Return the recorded step that this one repeats, None if it is a new one."""
        self.enter(kind, name)
        with self.noting_unwind():
            return self.log.take(kind, name)

    def enter(self, what: str, name: str = "") -> None:
        """Refuse a step where a replay would not come to it, or unwind an app that takes it too
        late.
        """
        refuse_within(f"{what} {name}".rstrip())
        self.check()
        self.check_ended()

    def count_decision(self) -> None:
        self.decision_index += 1
        self.effect_index = 0

    async def journalled(self, asked: Awaitable[R]) -> R:
        """Return what the journal says. If it cannot be had, or the run is another's, the app
        unwinds.
        """
        try:
            return await asked
        except (*REFUSALS, VersionMismatch):
            raise
        except TapeError as error:
            self.pen.lose(error)
            self.pen.check()
            raise

    def check(self) -> None:
        """Unwind an app that is not to go on."""
        self.pen.check()
        if self._unwinding is not None:
            raise self._unwinding

    def check_cancelled(self) -> None:
        self.check()
        if self.cancel_reason:
            raise RunCancelled(f"run {self.run.run_id!r} is being cancelled: {self.cancel_reason}")

    def check_ended(self) -> None:
        """Unwind a branch that outlives its app: nothing comes after the end of a run."""
        if self._has_ended:
            raise Abandoned(RunEnded("the app has returned, but this step was still running"))

    def check_end(self, error: BaseException | None) -> None:
        """Unwind an app that has ended although it was not to go on. Of branches in a group, one
        that fails counts more than one that waits.
        """
        self.pen.check()
        waits = isinstance(self._unwinding, Parked)
        if self._unwinding is not None and not (waits and isinstance(error, BaseExceptionGroup)):
            raise self._unwinding

    def park(self, waiting_on: str) -> NoReturn:
        """Unwind the app until something comes from outside."""
        with self.noting_unwind():
            raise Parked(waiting_on[:256])

    @contextmanager
    def noting_unwind(self) -> Iterator[None]:
        """Remember what unwinds the app in here."""
        try:
            yield
        except Unwind as unwind:
            self._note(unwind)
            raise

    def _note(self, unwind: Unwind) -> None:
        """That the app differs from its journal counts most."""
        if self._unwinding is None:
            self._had_others = self.tasks.has_others
        if self._unwinding is None or isinstance(unwind, HasDiverged):
            self._unwinding = unwind

    async def wind_down(self) -> bool:
        """Begin nothing new, and wait for what branches of the app have begun. Return whether
        anything of that has come to its end since the app was unwound, which may be news to the
        app.
        """
        self._has_ended = True
        await self.tasks.settled()
        return self._had_others

    def stop(self, cause: BaseException) -> None:
        """Cut off what is under way, and unwind the app at its next step."""
        self._note(Abandoned(cause))
        self.tasks.stop()
        self.threads.stop()

    async def stopped(self) -> None:
        """Wait until nothing of it is under way here."""
        await self.tasks.settled()
        await self.threads.ended()
