"""Compensation: undoes what a run that did not succeed has done, newest first.

The store gives out only the newest obligation of each run, so the order holds however many of these
reactors there are. One that keeps failing makes its run stuck, for somebody to look.
"""

import inspect
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

import orjson

from tape.errors import GiveUp, InvalidArgument
from tape.model.json_text import to_json
from tape.model.obligation import (
    ClaimObligation,
    Obligation,
    ObligationKey,
    ObligationStatus,
    RecordObligationAttempt,
    RenewObligationClaim,
    ResolveObligation,
)
from tape.model.run_write import RunWrite
from tape.ports.user_traceback import traceback_of
from tape.runs.declare import Apps, RetryPolicy, effect_name
from tape.runs.failures import described, traceback_if_new
from tape.runs.operations import RunOperations
from tape.runs.reactors.call_declared import call_declared, check_arguments, in_words, plain
from tape.runs.reactors.claimed_work import ClaimReactor
from tape.runs.reactors.claims import ClaimKeeper, ClaimLost, ClaimRules, WorkClaim
from tape.settings import Limits, ReactorSettings

log = logging.getLogger("tape.reactors")

PAUSES = RetryPolicy(first_s=1.0, most_s=300.0)
DUPLICATE = "duplicate:"


class Compensation(ClaimReactor[Obligation]):
    """A reactor, for the obligations of effects that are declared here."""

    name = "compensation"
    patterns: Sequence[str] = ("/tape/run/compensating/**", "/tape/obligation/**")

    def __init__(
        self,
        runs: RunOperations,
        apps: Apps,
        executor: Executor,
        settings: ReactorSettings,
        owner: str,
        *,
        pauses: RetryPolicy = PAUSES,
    ) -> None:
        rules = ClaimRules[Obligation](
            take=lambda row, ttl_ms: ClaimObligation(_key(row), owner, ttl_ms),
            renew=lambda row, ttl_ms: RenewObligationClaim(_key(row), row.claim_token, ttl_ms),
            expires_at_ms=lambda row: row.claim_expires_at_ms,
            describe=lambda row: f"obligation {row.seq} of run {row.run_id}",
        )
        super().__init__(ClaimKeeper(self.name, runs, rules, settings))
        self._runs = runs
        self._effects = apps.effects
        self._executor = executor
        self._pauses = pauses
        self._foreign: set[str] = set()

    async def once(self) -> int:
        """Claim what can be undone now and begin; how many that were."""
        return await self._work.take(
            self._look, lambda row: self._undo(row) is not None, self._compensate
        )

    async def _look(self, limit: int) -> list[Obligation]:
        found = await self._runs.list_unresolved_obligations(limit)
        self._log_foreign({row.compensator_ref for row in found if self._undo(row) is None})
        for row in found:
            used_up = row.attempts >= row.max_attempts and row.claimed_by
            if used_up and self._undo(row) is not None:
                _log_stuck(row._replace(last_error="its claim ran out"))
        return found

    def _undo(self, row: Obligation) -> Callable[..., Any] | None:
        spec = self._effects.get(row.compensator_ref)
        if spec is None:
            return None
        if row.kind.startswith(DUPLICATE):
            return spec.undo_duplicate or spec.compensate
        return spec.compensate

    def _log_foreign(self, refs: set[str]) -> None:
        for ref in refs - self._foreign:
            log.warning(
                "effect %r has obligations, but this process has no compensator for it", ref
            )
        self._foreign = refs

    async def _compensate(self, claim: WorkClaim[Obligation]) -> None:
        undo = self._undo(claim.row)
        assert undo is not None  # noqa: S101 - only such are taken
        outcome = await self._undone(claim, undo)
        # If it is refused, it is undone all the same: better without its result than once more.
        after = await self._claims.write_or(
            claim, outcome, lambda error: _compensated(claim.row, described(error))
        )
        if after.status == ObligationStatus.STUCK:
            _log_stuck(after)

    async def _undone(self, claim: WorkClaim[Obligation], undo: Callable[..., Any]) -> RunWrite:
        row, name = claim.row, effect_name(undo)
        kwargs, key = _taken_by(undo, _given(row)), f"{row.effect_key}/{name}"
        try:
            check_arguments(undo, (), kwargs)
        except GiveUp as error:
            return self._failed(claim, error)
        undoing = partial(call_declared, self._executor, undo, (), kwargs, key=key)
        try:
            result = await self._claims.act(claim, name, undoing)
        except ClaimLost:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it raises is this attempt's failure
            return self._failed(claim, error)
        return _compensated(row, _result_json(result, self._runs.limits))

    def _failed(self, claim: WorkClaim[Obligation], error: Exception) -> RunWrite:
        """Again later, unless that is of no use; the store knows which attempt is the last."""
        row, words, traceback = claim.row, in_words(error), traceback_of(error)
        block = traceback_if_new(traceback, words, row.last_error, self._runs.limits)
        log.warning(
            "obligation %d (%s) of run %s: %s%s", row.seq, row.kind, row.run_id, words, block
        )
        next_at_ms = 0
        if not isinstance(error, GiveUp):
            pause_s = self._pauses.pause_s(row.attempts)
            self._work.expect(pause_s)
            next_at_ms = claim.in_ms(pause_s)
        return RecordObligationAttempt(
            _key(row), row.claim_token, words, next_at_ms, traceback=traceback
        )


def _key(row: Obligation) -> ObligationKey:
    return ObligationKey(row.effect_key, row.kind)


def _compensated(row: Obligation, result_json: str) -> RunWrite:
    done = ObligationStatus.COMPENSATED
    return ResolveObligation(_key(row), row.claim_token, done, result_json)


def _log_stuck(row: Obligation) -> None:
    log.error(
        "obligation %d (%s) of run %s is stuck after %d attempts: %s",
        row.seq,
        row.kind,
        row.run_id,
        row.attempts,
        row.last_error,
    )


def _given(row: Obligation) -> dict[str, Any]:
    """What a compensator can be told. Somebody else may have registered it with any payload."""
    payload = orjson.loads(row.payload_json)
    if isinstance(payload, dict) and payload.keys() >= {"request", "response"}:
        return {
            "request": payload["request"],
            "response": payload["response"],
            "key": payload.get("key", row.effect_key),
        }
    return {"request": None, "response": payload, "key": row.effect_key}


def _taken_by(undo: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(plain(undo)).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return given
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in given.items() if name in names}


def _result_json(result: Any, limits: Limits) -> str:
    """It is undone whatever it returned; what cannot be written down must not undo that."""
    try:
        return to_json(result, limits, field="result")
    except InvalidArgument as error:
        return described(error)
