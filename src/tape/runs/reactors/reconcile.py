"""The reconciler: looks what became of effects that nobody knows about, and never does them.

An effect's own check asks the counterparty. While it cannot tell it is asked again, later and
later; at last the run is stuck, for somebody to look. An effect without a check stays unknown.
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

import orjson

from tape.errors import AckLost, GiveUp, InvalidArgument
from tape.model.effect import DispatchMode, Effect, EffectStatus
from tape.model.effect_claim import (
    RecordDispatchAttempt,
    RecordExternalObservation,
    Resolution,
)
from tape.model.json_text import to_json
from tape.model.run_write import RunWrite
from tape.ports.runs import PendingQuery
from tape.ports.user_traceback import traceback_of
from tape.runs.boundary import boundary
from tape.runs.declare import Apps, EffectSpec, Observed, RetryPolicy
from tape.runs.driving.journalled_effect import compensation_of
from tape.runs.failures import described, log_raised, raised_json, traceback_if_new
from tape.runs.operations import RunOperations
from tape.runs.reactors.call_declared import call_declared, in_words
from tape.runs.reactors.claimed_work import ClaimReactor
from tape.runs.reactors.claims import ClaimLost, WorkClaim
from tape.runs.reactors.effect_claims import connectors, effect_claims, is_still
from tape.settings import Limits, ReactorSettings
from tape.telemetry import metrics

log = logging.getLogger("tape.reactors")

CHECKS = RetryPolicy(attempts=20, first_s=1.0, most_s=300.0)
"""About an hour, so that a counterparty that is away for a while costs no operator a walk."""

SWEEP = 1_000


class Reconciler(ClaimReactor[Effect]):
    """A reactor, for the effects that are declared here with a check."""

    name = "reconciler"
    patterns: Sequence[str] = ("/tape/effect/unknown/**",)

    def __init__(
        self,
        runs: RunOperations,
        apps: Apps,
        executor: Executor,
        settings: ReactorSettings,
        owner: str,
        *,
        checks: RetryPolicy = CHECKS,
        sweep_every_s: float = 30.0,
    ) -> None:
        super().__init__(effect_claims(self.name, runs, settings, owner))
        self._runs = runs
        self._effects = apps.effects
        self._executor = executor
        self._checks = checks
        self._unchecked: set[tuple[str, str]] = set()
        self._orphaned_ms = round(1000 * settings.lease_ttl_s)
        self._sweep_every_s = sweep_every_s
        self._sweep_at = 0.0

    async def once(self) -> int:
        """Claim what is due and begin to look; how many that were."""
        await self._sweep()
        checked = {name: spec for name, spec in self._effects.items() if spec.check is not None}
        if not checked:
            return 0
        asked = connectors(checked.values())
        return await self._work.take(
            lambda limit: self._runs.list_pending_effects(
                PendingQuery(limit=limit, connectors=asked)
            ),
            lambda row: row.tool_name in checked,
            self._reconcile,
        )

    async def _sweep(self) -> None:
        """Now and then look for what nobody else comes by."""
        now = asyncio.get_running_loop().time()
        if now >= self._sweep_at and self._effects:
            self._sweep_at = now + self._sweep_every_s
            await self._doubt_orphans()
            await self._log_unchecked()

    async def _doubt_orphans(self) -> None:
        """What was in the hands of a driver when its run was ended from outside may have happened:
        whoever tries to claim it makes it unknown.
        """
        query = PendingQuery(
            self._orphaned_ms,
            SWEEP,
            include_pending=True,
            include_unknown=False,
            connectors=connectors(self._effects.values()),
        )
        inline = [
            row
            for row in await self._runs.list_pending_effects(query)
            if row.dispatch_mode == DispatchMode.INLINE and row.tool_name in self._effects
        ]
        orphans = [row for row in inline if await self._is_orphan(row)]
        await self._work.take_these(orphans, self._reconcile)

    async def _is_orphan(self, row: Effect) -> bool:
        run = await self._runs.get_run(row.run_id)
        return run is not None and not run.may_go_on

    async def _log_unchecked(self) -> None:
        """Nothing here can tell what became of these: say so, once for each."""
        blind = {name: spec for name, spec in self._effects.items() if spec.check is None}
        found: list[Effect] = []
        if blind:
            query = PendingQuery(limit=SWEEP, connectors=connectors(blind.values()))
            found = await self._runs.list_pending_effects(query)
        rows = {(row.run_id, row.idempotency_key): row for row in found if row.tool_name in blind}
        for key in rows.keys() - self._unchecked:
            log.error(
                "effect %s of run %s may or may not have happened, and stays unknown: %s has no "
                "check",
                rows[key].idempotency_key,
                rows[key].run_id,
                rows[key].tool_name,
            )
        self._unchecked = set(rows)
        metrics.EFFECTS_UNCHECKED.set(len(rows))

    async def _reconcile(self, claim: WorkClaim[Effect]) -> None:
        if not await is_still(EffectStatus.UNKNOWN, claim, self._claims):
            return
        outcome = await self._look(claim, self._effects[claim.row.tool_name])
        # If it is refused, what the check has said cannot be written down.
        await self._claims.write_or(claim, outcome, lambda error: self._again(claim, error))

    async def _look(self, claim: WorkClaim[Effect], spec: EffectSpec) -> RunWrite:
        row, check = claim.row, spec.check
        if check is None:
            return RecordDispatchAttempt(row.idempotency_key, row.claim_token, "it has no check")
        request = orjson.loads(row.request_json)
        boundary(f"before check {spec.name}")
        asking = call_declared(self._executor, check, (row.idempotency_key, request), {})
        try:
            observed = await self._claims.hold(claim, asking)
            boundary(f"after check {spec.name}")
            return _observation(row, spec, request, observed, self._runs.limits)
        except ClaimLost:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it raises, it could not tell
            return self._again(claim, error)

    def _again(self, claim: WorkClaim[Effect], error: Exception) -> RunWrite:
        """Look again later, unless that was the last time. Every claim that was no dispatch was a
        check, so they are counted across workers and restarts.
        """
        row = claim.row
        checks = row.claim_token - row.dispatch_attempts
        if isinstance(error, GiveUp) or checks % self._checks.attempts == 0:
            recorded = raised_json(error, self._runs.limits)
            which = f"effect {row.idempotency_key} of run {row.run_id}"
            what = f"{which} may or may not have happened, and its check cannot tell"
            log_raised(log, logging.ERROR, what, recorded)
            return RecordExternalObservation(
                row.idempotency_key, row.claim_token, Resolution.STUCK, error_json=recorded
            )
        words, traceback = in_words(error), traceback_of(error)
        block = traceback_if_new(traceback, words, row.last_dispatch_error, self._runs.limits)
        log.warning("the check of effect %s: %s%s", row.idempotency_key, words, block)
        pause_s = self._checks.pause_s(checks % self._checks.attempts)
        self._work.expect(pause_s)
        return RecordDispatchAttempt(
            row.idempotency_key, row.claim_token, words, claim.in_ms(pause_s), traceback
        )


def _observation(
    row: Effect, spec: EffectSpec, request: Any, observed: Any, limits: Limits
) -> RunWrite:
    if not isinstance(observed, Observed):
        raise InvalidArgument(f"returned {observed!r}, not tape.Observed", field="check")
    resolution, key = observed.number, row.idempotency_key
    response_json = to_json(observed.response, limits, field="response")
    response = orjson.loads(response_json)
    happened = resolution in (Resolution.CONFIRMED, Resolution.DUPLICATE)
    compensation = on_duplicate = None
    if happened:
        compensation = compensation_of(spec, key, request, response, limits)
    if resolution is Resolution.DUPLICATE:
        on_duplicate = compensation_of(spec, key, request, response, limits, duplicate=True)
        if on_duplicate is None:
            log.error(
                "effect %s happened more than once, and no compensator undoes the duplicate", key
            )
    elif resolution is Resolution.STUCK:
        log.error("effect %s of run %s is stuck, according to its check", key, row.run_id)
    error_json = "null"
    if not happened and resolution is not Resolution.ABSENT:
        error_json = _error_json(observed, limits)
    return RecordExternalObservation(
        key,
        row.claim_token,
        resolution,
        observed.external_ref,
        response_json,
        error_json,
        compensation,
        on_duplicate,
    )


def _error_json(observed: Observed, limits: Limits) -> str:
    if observed.error is None:
        return described(AckLost(f"its check says that it is {observed.resolution}"))
    return to_json(observed.error, limits, field="error")
