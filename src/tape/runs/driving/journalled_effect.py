"""The record of one effect in its run's journal: begun, and confirmed, failed or unknown.

It calls nothing: `enter`, then `wait_begun`, then `fail` as often as the body raised and is tried
again, then `confirm`. `EffectLoop` does so, and calls the body.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from tape.errors import (
    AckLost,
    BusinessKeyTaken,
    EffectFailed,
    GiveUp,
    InvalidArgument,
    TapeError,
)
from tape.model.budget import ChargeBudget
from tape.model.effect import (
    STATUS_WORDS,
    BeginEffect,
    CompleteEffect,
    DispatchMode,
    Effect,
    EffectStatus,
    Semantics,
    effect_key,
)
from tape.model.error_record import traceback_in
from tape.model.json_text import to_json
from tape.model.obligation import RegisterCompensation
from tape.model.run_write import RunWrite
from tape.ports.user_traceback import recorded_cause
from tape.runs.boundary import boundary
from tape.runs.declare import EffectSpec, Spend, effect_name
from tape.runs.driving.replay import EffectState, RecordedStep
from tape.runs.driving.steps import RunSteps
from tape.runs.driving.unwinding import HasDiverged, Parked
from tape.runs.failures import described, failure, kind_of, log_raised, raised_json
from tape.settings import Limits

log = logging.getLogger("tape.runs")


class Settled(Exception):
    """There is nothing to do, this is the recorded result."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class JournalledEffect:
    def __init__(
        self, spec: EffectSpec, args: tuple[Any, ...], kwargs: dict[str, Any], steps: RunSteps
    ) -> None:
        self.spec = spec
        self._steps = steps
        self._limits = steps.limits
        self._args = args
        self._kwargs = kwargs
        decision_index, effect_index = steps.decision_index, steps.effect_index
        self.key = effect_key(steps.run.run_id, decision_index, spec.name, effect_index)
        self._request_json = to_json(
            {"args": args, "kwargs": kwargs}, self._limits, field=f"arguments of {spec.name}"
        )
        self._beginning = self._begin(decision_index, effect_index)
        self._entered: asyncio.Future[Any] | None = None
        self._attempt = 0

    def enter(self) -> None:
        """Take its place: among the next writes, or where the journal has it. Settled is raised
        for what was done before.
        """
        log, pen = self._steps.log, self._steps.pen
        if not self._is(log.peek()):  # what is recorded was not refused
            self._beginning.check_terms(self._limits)
        step = log.take("effect pending", self.spec.name)
        if step is None:
            if self.is_observation:
                pen.post(self._beginning)
            else:
                self._entered = pen.enter(self._beginning, self._refused)
            return
        log.check_request(step, self._request)
        recorded = step.payload["idempotency_key"]
        if recorded != self.key:
            raise HasDiverged(f"{step} (seq {step.seq}) has the key {recorded}, not {self.key}")
        state = log.effects[self.key]
        if state.status == "confirmed" and self.key not in log.charges:
            self._charge(state.response)
        self._raise_settled(state)

    @property
    def _request(self) -> Any:
        """What it is done with, as a replay will see it."""
        return orjson.loads(self._request_json)

    @property
    def is_observation(self) -> bool:
        """Whether it may be done before it is written down: it changes nothing in the world, there
        is nothing to find out, and nobody else can have a claim to it.
        """
        begin = self._beginning
        return (
            begin.semantics == Semantics.OBSERVE_ONLY
            and begin.dispatch_mode == DispatchMode.INLINE
            and not begin.business_key
            and self.spec.check is None
        )

    def _is(self, step: RecordedStep | None) -> bool:
        if step is None or step.kind != "effect pending":
            return False
        return bool(step.payload["idempotency_key"] == self.key)

    async def wait_begun(self) -> None:
        """Wait until it is written down, if it must be. Returns if it is to be done now."""
        if self._entered is not None:
            self._raise_settled(_state_of(await self._entered))

    def _begin(self, decision_index: int, effect_index: int) -> BeginEffect:
        spec = self.spec
        business_key = (
            "" if spec.business_key is None else spec.business_key(*self._args, **self._kwargs)
        )
        if not isinstance(business_key, str):
            raise InvalidArgument(f"{business_key!r} is not text", field="business_key")
        return BeginEffect(
            decision_index,
            spec.name,
            effect_index,
            self._request_json,
            semantics=spec.semantics,
            dispatch_mode=spec.dispatch,
            business_key=business_key,
            connector=spec.connector,
        )

    def _refused(self, error: TapeError) -> Sequence[RunWrite]:
        """A key that is taken is so in every replay: it is begun without it, and has failed."""
        if not isinstance(error, BusinessKeyTaken):
            return ()
        begin = self._beginning._replace(business_key="")
        return (begin, CompleteEffect(self.key, EffectStatus.FAILED, error_json=described(error)))

    def _raise_settled(self, state: EffectState) -> None:
        if state.status == "confirmed":
            raise Settled(state.response)
        if state.status == "failed":
            if kind_of(state.error) == BusinessKeyTaken.__name__:
                raise BusinessKeyTaken(state.error["message"])
            raised = EffectFailed(failure(self.spec.name, state.error))
            raise raised from recorded_cause(traceback_in(state.error))
        if state.status == "unknown" or self.spec.dispatch is DispatchMode.OUTBOX:
            raise Parked(f"effect {self.key}"[:256])

    async def fail(self, error: Exception) -> float:
        """The body raised: how long to wait before it is tried again, or the failure raised."""
        boundary(f"after act {self.spec.name}")
        self._attempt += 1
        if isinstance(error, AckLost) and not self.is_observation:
            recorded = raised_json(error, self._limits)
            await self._settle(EffectStatus.UNKNOWN, error_json=recorded)
            what = f"effect {self.key} may or may not have happened"
            log_raised(log, logging.WARNING, what, recorded)
            raise Parked(f"effect {self.key}"[:256]) from error
        if self._attempt < self.spec.retry.attempts and not isinstance(error, GiveUp):
            return self.spec.retry.pause_s(self._attempt)
        recorded = raised_json(error, self._limits)
        await self._settle(EffectStatus.FAILED, error_json=recorded)
        log_raised(log, logging.WARNING, f"effect {self.key} has failed", recorded)
        raise EffectFailed(failure(self.spec.name, orjson.loads(recorded))) from error

    async def confirm(self, result: Any) -> Any:
        """The body returned. The app gets what a replay will give it: what JSON makes of it."""
        boundary(f"after act {self.spec.name}")
        try:
            response_json = to_json(result, self._limits, field=f"result of {self.spec.name}")
            response = orjson.loads(response_json)
            compensation = None
            if self.spec.compensate is not None:
                compensation = compensation_of(
                    self.spec, self.key, self._request, response, self._limits
                )
        except InvalidArgument as error:
            if self.is_observation:
                return await self.fail(GiveUp(str(error)))
            # It has happened, and what came of it cannot be written down: that is for a check.
            return await self.fail(AckLost(str(error)))
        done = CompleteEffect(
            self.key, EffectStatus.CONFIRMED, response_json, compensation=compensation
        )
        if self.is_observation:
            self._steps.pen.post(done)
        else:
            self._steps.pen.post_or(done, self._unrecorded)
        self._charge(response)
        return response

    def _unrecorded(self, error: TapeError) -> Sequence[RunWrite]:
        """The journal does not take what came of it."""
        return (CompleteEffect(self.key, EffectStatus.UNKNOWN, error_json=described(error)),)

    async def _settle(self, status: EffectStatus, *, error_json: str) -> None:
        await self._steps.pen.write(CompleteEffect(self.key, status, error_json=error_json))

    def _charge(self, response: Any) -> None:
        spend: Spend | None = None
        if self.spec.spent is not None:
            spend = checked_spend(self.spec.spent(response), "spent")
        elif self.spec.estimate is not None:
            estimated = self.spec.estimate(*self._args, **self._kwargs)
            spend = checked_spend(estimated, "estimate")
        if spend is not None:
            self._steps.pen.post_happened(ChargeBudget(spend.usd, spend.tokens, self.key))


def compensation_of(
    spec: EffectSpec,
    key: str,
    request: Any,
    response: Any,
    limits: Limits,
    *,
    duplicate: bool = False,
) -> RegisterCompensation | None:
    """The obligation that a confirmed effect leaves behind, if it has one."""
    undo: Callable[..., Any] | None = spec.compensate
    if duplicate:
        undo = spec.undo_duplicate or spec.compensate
    if undo is None:
        return None
    kind = effect_name(undo)
    return RegisterCompensation(
        key,
        f"duplicate:{kind}" if duplicate else kind,
        to_json({"request": request, "response": response, "key": key}, limits, field="payload"),
        spec.name,
        spec.compensate_attempts,
    )


def checked_spend(spend: Any, field: str) -> Spend:
    """What an effect's own functions say of its costs."""
    if not isinstance(spend, Spend):
        raise InvalidArgument(f"returned {spend!r}, not tape.Spend", field=field)
    return spend


def _state_of(row: Effect) -> EffectState:
    return EffectState(
        STATUS_WORDS[row.status], orjson.loads(row.response_json), orjson.loads(row.error_json)
    )
