"""Dispatch the effects that runs do not do inline (`dispatch="outbox"` in their declaration).

An effect that is not idempotent is done once at most. Whatever leaves in doubt whether it was done
makes it unknown, and it is for the reconciler to look; only an act that says so itself, by
`tape.GiveUp`, has certainly not been done. One that is idempotent is tried again under the same
key, as its retry policy says.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

import orjson

from tape.errors import AckLost, GiveUp, InvalidArgument
from tape.model.effect import Effect, EffectStatus, Semantics
from tape.model.effect_claim import (
    RAN_OUT_JSON,
    RecordDispatchAttempt,
    RecordExternalObservation,
    Resolution,
)
from tape.model.json_text import to_json
from tape.model.run_write import RunWrite
from tape.ports.user_traceback import TracebackBlock, traceback_of
from tape.runs.declare import Apps, EffectSpec
from tape.runs.driving.journalled_effect import compensation_of
from tape.runs.failures import log_raised, raised_json, traceback_if_new
from tape.runs.operations import RunOperations
from tape.runs.reactors.call_declared import call_declared, check_arguments, in_words
from tape.runs.reactors.claimed_work import ClaimReactor
from tape.runs.reactors.claims import ClaimLost, WorkClaim
from tape.runs.reactors.effect_claims import connectors, effect_claims, is_still
from tape.settings import ReactorSettings

log = logging.getLogger("tape.reactors")


class EffectDispatch(ClaimReactor[Effect]):
    """A reactor, for the effects that are declared here."""

    name = "outbox"
    # One that was certainly not done waits here again once it is reconciled.
    patterns: Sequence[str] = ("/tape/effect/pending/**", "/tape/effect/reconciled/**")

    def __init__(
        self,
        runs: RunOperations,
        apps: Apps,
        executor: Executor,
        settings: ReactorSettings,
        owner: str,
    ) -> None:
        self._runs = runs
        self._effects = apps.effects
        self._executor = executor
        super().__init__(effect_claims(self.name, runs, settings, owner))

    async def once(self) -> int:
        """Claim what is due and begin to do it; how many that were."""
        if not self._effects:
            return 0
        asked = connectors(self._effects.values())
        return await self._work.take(
            lambda limit: self._runs.list_effects_to_dispatch(asked, limit),
            lambda row: row.tool_name in self._effects,
            self._dispatch,
        )

    async def _dispatch(self, claim: WorkClaim[Effect]) -> None:
        if not await is_still(EffectStatus.PENDING, claim, self._claims):
            return
        outcome = await self._act(claim, self._effects[claim.row.tool_name])
        # If it is refused, the effect was done, and what came of it is more than the store takes.
        await self._claims.write_or(claim, outcome, lambda error: _unknown(claim.row, error))

    async def _act(self, claim: WorkClaim[Effect], spec: EffectSpec) -> RunWrite:
        key = claim.row.idempotency_key
        try:
            args, kwargs = _arguments(claim.row.request_json)
            check_arguments(spec.body, args, kwargs)
        except GiveUp as error:
            return self._failed(claim, spec, error)
        body = partial(call_declared, self._executor, spec.body, args, kwargs, key=key)
        try:
            result = await self._claims.act(claim, spec.name, body)
        except ClaimLost:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it raises is the act's failure
            return self._failed(claim, spec, error)
        return self._confirmed(claim, spec, result)

    def _confirmed(self, claim: WorkClaim[Effect], spec: EffectSpec, result: Any) -> RunWrite:
        row = claim.row
        try:
            response_json = to_json(result, self._runs.limits, field=f"result of {spec.name}")
            compensation = compensation_of(
                spec,
                row.idempotency_key,
                orjson.loads(row.request_json),
                orjson.loads(response_json),
                self._runs.limits,
            )
        except InvalidArgument as error:
            return _unknown(row, error)
        return RecordExternalObservation(
            row.idempotency_key,
            row.claim_token,
            Resolution.CONFIRMED,
            response_json=response_json,
            compensation=compensation,
        )

    def _failed(self, claim: WorkClaim[Effect], spec: EffectSpec, error: Exception) -> RunWrite:
        row = claim.row
        certain = isinstance(error, GiveUp)
        once_only = Semantics.NON_IDEMPOTENT in (row.semantics, spec.semantics)
        if not certain and (once_only or isinstance(error, AckLost)):
            return _unknown(row, error)
        if not certain and row.dispatch_attempts < spec.retry.attempts:
            pause_s = spec.retry.pause_s(row.dispatch_attempts)
            self._work.expect(pause_s)
            words, traceback = in_words(error), traceback_of(error)
            block = traceback_if_new(traceback, words, row.last_dispatch_error, self._runs.limits)
            log.warning("effect %s is tried again: %s%s", row.idempotency_key, words, block)
            return RecordDispatchAttempt(
                row.idempotency_key, row.claim_token, words, claim.in_ms(pause_s), traceback
            )
        if not certain and row.error_json == RAN_OUT_JSON:
            return _unknown(row, error)  # it may have been done the time that it was cut off
        recorded = raised_json(error, self._runs.limits)
        log_raised(log, logging.WARNING, f"effect {row.idempotency_key} has failed", recorded)
        return RecordExternalObservation(
            row.idempotency_key, row.claim_token, Resolution.FAILED, error_json=recorded
        )


def _unknown(row: Effect, error: Exception) -> RunWrite:
    words, traceback = in_words(error), traceback_of(error)
    block = TracebackBlock(traceback)
    log.warning("effect %s may or may not have happened: %s%s", row.idempotency_key, words, block)
    return RecordDispatchAttempt(row.idempotency_key, row.claim_token, words, traceback=traceback)


def _arguments(request_json: str) -> tuple[Sequence[Any], dict[str, Any]]:
    """What an effect was begun with. Somebody else may have begun it with anything."""
    match orjson.loads(request_json):
        case {"args": list(args), "kwargs": dict(kwargs)}:
            return args, kwargs
    raise GiveUp('it was not started with {"args": […], "kwargs": {…}}')
