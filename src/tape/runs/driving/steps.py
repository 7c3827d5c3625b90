"""The steps of a run: each is taken from its journal or is new, and new ones come in line.

What unwinds the app is remembered here. An app may hold on to it, in a `finally`, a bare `except`
or by gathering errors; then its next step unwinds it again, and how it ends does not count.
"""

import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

import orjson

from tape.config import Limits
from tape.errors import (
    EffectFailed,
    InvalidArgument,
    RunCancelled,
    RunEnded,
    TapeError,
    VersionMismatch,
)
from tape.model import decision as model_decision
from tape.model.decision import DRAWN, RecordDecision
from tape.model.error_record import traceback_in
from tape.model.json_text import to_json
from tape.model.names import check_name
from tape.model.run import Run
from tape.ports.user_traceback import recorded_cause
from tape.runs.ambient import refuse_within, within
from tape.runs.driving.pen import REFUSALS, Pen
from tape.runs.driving.replay import DECISION, RecordedStep, ReplayLog
from tape.runs.driving.step_order import StepOrder, StepPlace
from tape.runs.driving.under_way import EffectTasks, RunThreads
from tape.runs.driving.unwinding import Abandoned, HasDiverged, Parked, Unwind
from tape.runs.failures import failure, log_raised, raised_json

log = logging.getLogger("tape.runs")

R = TypeVar("R")

FAILED = "failed/"
"""Before the model of a decision that could not be had."""


class RunSteps:
    """What all steps of a run share; `Context` has the steps themselves."""

    def __init__(
        self, run: Run, log: ReplayLog, pen: Pen, executor: Executor, limits: Limits
    ) -> None:
        self._limits = limits
        self._run = run
        self._log = log
        self._pen = pen
        self._order = StepOrder()
        self._tasks = EffectTasks()
        self.threads = RunThreads(executor)
        self._decisions = 0
        self._calls = 0
        self._unwinding: Unwind | None = None
        self._had_others = False
        self._has_ended = False
        self.cancel_reason = run.cancel_reason

    async def wind_down(self) -> bool:
        """Begin nothing new, and wait for what branches of the app have begun. Whether anything of
        that has come to its end since the app was unwound, which may be news to the app.
        """
        self._has_ended = True
        await self._tasks.settled()
        return self._had_others

    def stop(self, cause: BaseException) -> None:
        """Cut off what is under way, and unwind the app at its next step."""
        self.note(Abandoned(cause))
        self._tasks.stop()
        self.threads.stop()

    async def stopped(self) -> None:
        """Wait until nothing of it is under way here."""
        await self._tasks.settled()
        await self.threads.ended()

    def note(self, unwind: Unwind) -> None:
        """Remember what unwinds the app; that it differs from its journal counts most."""
        if self._unwinding is None:
            self._had_others = self._tasks.has_others
        if self._unwinding is None or isinstance(unwind, HasDiverged):
            self._unwinding = unwind

    def check(self) -> None:
        """Unwind an app that is not to go on."""
        self._pen.check()
        if self._unwinding is not None:
            raise self._unwinding

    def check_end(self, error: BaseException | None) -> None:
        """Unwind an app that has ended although it was not to go on. Of branches in a group, one
        that fails counts more than one that waits.
        """
        self._pen.check()
        waits = isinstance(self._unwinding, Parked)
        if self._unwinding is not None and not (waits and isinstance(error, BaseExceptionGroup)):
            raise self._unwinding

    def _enter(self, what: str, name: str = "") -> None:
        refuse_within(f"{what} {name}".rstrip())
        self.check()
        self._check_ended()

    def _check_ended(self) -> None:
        """Unwind a branch that outlives its app: nothing comes after the end of a run."""
        if self._has_ended:
            raise Abandoned(RunEnded("the app has returned, but this step was still running"))

    def _step(self, kind: str, name: str) -> RecordedStep | None:
        """The recorded step that this one repeats, None if it is a new one."""
        self._enter(kind, name)
        try:
            return self._log.take(kind, name)
        except Unwind as unwind:
            self.note(unwind)
            raise

    def _check_cancelled(self) -> None:
        self.check()
        if self.cancel_reason:
            raise RunCancelled(f"run {self._run.run_id!r} is being cancelled: {self.cancel_reason}")

    async def _journalled(self, asked: Awaitable[R]) -> R:
        """What the journal says. If it cannot be had, or the run is another's, the app unwinds."""
        try:
            return await asked
        except (*REFUSALS, VersionMismatch):
            raise
        except TapeError as error:
            self._pen.lose(error)
            self._pen.check()
            raise

    async def _ask(
        self, place: StepPlace, model: str, request: Any, ask: Callable[[], Awaitable[Any]]
    ) -> Any:
        """A question to the journal, answered once: a decision of our own."""
        record = self.decision(model, request)._replace(verb=DRAWN)
        step = self._decided(record)
        if step is not None:
            return step.payload["response"]
        self._check_cancelled()
        response = await self._journalled(ask())
        await place.come_up()
        return self._record(record, to_json(response, self._limits, field=model))

    def decision(
        self, model: str, request: Any, *, rationale: str = "", policy_version: str = ""
    ) -> RecordDecision:
        """A decision to be made, refused before anybody is asked if it could not be written."""
        check_name(FAILED + model, self._limits, field="model")
        request_json = to_json(request, self._limits, field="request")
        record = RecordDecision(0, model, request_json, "null", rationale, policy_version)
        return record.checked(self._limits)

    def _decided(self, record: RecordDecision) -> RecordedStep | None:
        """The recorded decision that this one repeats, even if it could not be had."""
        step = self._log.peek()
        failed = FAILED + record.model
        is_failed = step is not None and (step.kind, step.name) == (DECISION, failed)
        step = self._step(DECISION, failed if is_failed else record.model)
        if step is not None:
            self._check_request(step, record.request_json)
            self._count_decision()
        return step

    def _check_request(self, step: RecordedStep, request_json: str) -> None:
        try:
            self._log.check_request(step, orjson.loads(request_json))
        except Unwind as unwind:
            self.note(unwind)
            raise

    def _record(self, record: RecordDecision, response_json: str) -> Any:
        """Write down a new decision; its answer as a replay will give it."""
        self._check_ended()
        self._pen.post(record._replace(decision_index=self._decisions, response_json=response_json))
        self._count_decision()
        return orjson.loads(response_json)

    def _count_decision(self) -> None:
        self._decisions += 1
        self._calls = 0


class Decisions(RunSteps):
    """Decisions of the app, in two halves: what is asked in between is the app's own, and is asked
    where the app is.
    """

    def begin_draw(self, model: str) -> tuple[bool, Any]:
        """Whether it is on the journal, and then what was drawn."""
        check_name(model, self._limits, field="name")
        step = self._step(DECISION, model)
        if step is None:
            return False, None
        self._count_decision()
        return True, step.payload["response"]

    def end_draw(self, model: str, drawn: Any) -> Any:
        draw = RecordDecision(0, model, verb=DRAWN)
        return self._record(draw, to_json(drawn, self._limits, field=model))

    def _drawn(self, model: str, draw: Callable[[], Any]) -> Any:
        is_drawn, before = self.begin_draw(model)
        if is_drawn:
            return before
        with within(f"the draw {model!r}"):
            drawn = draw()
        return self.end_draw(model, drawn)

    def begin_decision(self, record: RecordDecision) -> tuple[bool, Any]:
        """Whether it is on the journal, and then its answer; one that failed raises again."""
        step = self._decided(record)
        if step is None:
            self._check_cancelled()
            return False, None
        if step.name != record.model:
            recorded = step.payload["response"]
            raised = EffectFailed(failure(record.model, recorded))
            raise raised from recorded_cause(traceback_in(recorded))
        return True, step.payload["response"]

    def end_decision(self, record: RecordDecision, response: Any) -> Any:
        try:
            response_json = to_json(response, self._limits, field=f"answer of {record.model}")
        except InvalidArgument as error:
            return self.fail_decision(record, error)
        return self._record(record, response_json)

    def fail_decision(self, record: RecordDecision, error: Exception) -> Any:
        """Write down that it could not be had, for an app that goes another way then."""
        failed = record._replace(model=FAILED + record.model, verb=model_decision.FAILED)
        error_json = raised_json(error, self._limits)
        what = f"decision {record.model} of run {self._run.run_id} failed"
        log_raised(log, logging.WARNING, what, error_json)
        recorded = self._record(failed, error_json)
        raise EffectFailed(failure(record.model, recorded)) from error
