"""The decisions of a run: what its app decided, drew by chance or asked its journal, answered once.

An app's own question is asked between two halves: `begin` looks whether the journal has the answer,
`end` or `fail` writes it down.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from tape.errors import EffectFailed, InvalidArgument
from tape.model import decision as model_decision
from tape.model.decision import DRAWN, RecordDecision
from tape.model.error_record import traceback_in
from tape.model.json_text import to_json
from tape.model.names import check_name
from tape.ports.user_code import as_failure
from tape.ports.user_traceback import recorded_cause
from tape.runs.ambient import within
from tape.runs.driving.replay import DECISION, RecordedStep
from tape.runs.driving.step_order import StepPlace
from tape.runs.driving.steps import RunSteps
from tape.runs.driving.unwinding import Unwind
from tape.runs.failures import failure, log_raised, raised_json

log = logging.getLogger("tape.runs")

FAILED = "failed/"
"""Before the model of a decision that could not be had."""


class Decisions:
    def __init__(self, steps: RunSteps) -> None:
        self._steps = steps
        self._limits = steps.limits

    def new(
        self, model: str, request: Any, *, rationale: str = "", policy_version: str = ""
    ) -> RecordDecision:
        """Prepare a decision. It is refused before anybody is asked if it could not be written."""
        check_name(FAILED + model, self._limits, field="model")
        request_json = to_json(request, self._limits, field="request")
        record = RecordDecision(0, model, request_json, "null", rationale, policy_version)
        return record.checked(self._limits)

    async def decide(self, record: RecordDecision, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Return the recorded answer, or ask and record it."""
        is_answered, answer = self.begin(record)
        if is_answered:
            return answer
        with self._steps.place() as place:
            try:
                with within(f"decision {record.model!r}"):
                    response = await ask()
            except Unwind:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever it raises, there is no decision
                failed = as_failure(error)
                await place.come_up()
                return self.fail(record, failed)
            await place.come_up()
            answer = self.end(record, response)
        await self._steps.pen.catch_up()
        return answer

    def begin(self, record: RecordDecision) -> tuple[bool, Any]:
        """Return whether it is recorded, and then its answer; one that failed raises again."""
        step = self._recorded(record)
        if step is None:
            self._steps.check_cancelled()
            return False, None
        if step.name != record.model:
            recorded = step.payload["response"]
            raised = EffectFailed(failure(record.model, recorded))
            raise raised from recorded_cause(traceback_in(recorded))
        return True, step.payload["response"]

    def end(self, record: RecordDecision, response: Any) -> Any:
        """Write down its answer; return that as a replay will give it."""
        try:
            response_json = to_json(response, self._limits, field=f"answer of {record.model}")
        except InvalidArgument as error:
            return self.fail(record, error)
        return self._write(record, response_json)

    def fail(self, record: RecordDecision, error: Exception) -> Any:
        """Write down that it could not be had, for an app that goes another way then."""
        failed = record._replace(model=FAILED + record.model, verb=model_decision.FAILED)
        error_json = raised_json(error, self._limits)
        what = f"decision {record.model} of run {self._steps.run.run_id} failed"
        log_raised(log, logging.WARNING, what, error_json)
        recorded = self._write(failed, error_json)
        raise EffectFailed(failure(record.model, recorded)) from error

    def draw(self, model: str, function: Callable[[], Any]) -> Any:
        """Return what was drawn before, or draw it and record it."""
        is_drawn, drawn = self.begin_draw(model)
        if is_drawn:
            return drawn
        with within(f"the draw {model!r}"):
            drawn = function()
        return self.end_draw(model, drawn)

    def begin_draw(self, model: str) -> tuple[bool, Any]:
        """Return whether it is recorded, and then what was drawn."""
        check_name(model, self._limits, field="name")
        step = self._steps.take(DECISION, model)
        if step is None:
            return False, None
        self._steps.count_decision()
        return True, step.payload["response"]

    def end_draw(self, model: str, drawn: Any) -> Any:
        """Write down what was drawn; return that as a replay will give it."""
        draw = RecordDecision(0, model, verb=DRAWN)
        return self._write(draw, to_json(drawn, self._limits, field=model))

    async def ask_journal(
        self, place: StepPlace, model: str, request: Any, ask: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Return what the journal answered before, or ask it and record the answer."""
        record = self.new(model, request)._replace(verb=DRAWN)
        step = self._recorded(record)
        if step is not None:
            return step.payload["response"]
        self._steps.check_cancelled()
        response = await self._steps.journalled(ask())
        await place.come_up()
        return self._write(record, to_json(response, self._limits, field=model))

    def is_next(self, model: str) -> bool:
        """Return whether this decision is the next recorded step."""
        step = self._steps.log.peek()
        return step is not None and (step.kind, step.name) == (DECISION, model)

    def _recorded(self, record: RecordDecision) -> RecordedStep | None:
        """Return the recorded decision that this one repeats, even if it could not be had."""
        failed = FAILED + record.model
        step = self._steps.take(DECISION, failed if self.is_next(failed) else record.model)
        if step is not None:
            with self._steps.noting_unwind():
                self._steps.log.check_request(step, orjson.loads(record.request_json))
            self._steps.count_decision()
        return step

    def _write(self, record: RecordDecision, response_json: str) -> Any:
        """Write down a new decision; return its answer as a replay will give it."""
        steps = self._steps
        steps.check_ended()
        index = steps.decision_index
        steps.pen.post(record._replace(decision_index=index, response_json=response_json))
        steps.count_decision()
        return orjson.loads(response_json)
