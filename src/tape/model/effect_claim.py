"""Dispatching and reconciling effects: under a claim, whose token every write of it carries.

One claim serves both. On a pending effect that is not inline it is the right to act; on an unknown
one the right to look what happened. An effect that is not idempotent, whose claim ran out without
word, may have happened: it becomes unknown, never dispatched again unseen.

Of a run that is gone nothing more is done. What was never tried has failed; what may have happened,
under a claim or under its last driver, is unknown, so that it can be looked for. A stuck run may go
on, and the effects that it left to be dispatched are done meanwhile.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from tape.errors import InvalidArgument
from tape.model.effect import (
    EFFECTS,
    SETTLED,
    DispatchMode,
    Effect,
    EffectStatus,
    Semantics,
    check_claim,
    effect_line,
    find_effect,
    outcome_line,
    with_compensation,
)
from tape.model.json_text import check_json
from tape.model.move import Need, Reading, save
from tape.model.names import check_name
from tape.model.obligation import RegisterCompensation
from tape.model.run import Run, RunStatus
from tape.model.run_end import ended, ending_needs
from tape.model.run_write import RunWriteResult, check_claim_ttl, check_time, clipped, woken
from tape.model.traceback_text import raised_at, traceback_within
from tape.settings import Limits

STUCK_PAUSE_MS = 10 * 60_000
"""How long a stuck effect is left alone before it may be looked at again."""
_RUN_GONE_JSON = '{"error":"its run has ended"}'
RAN_OUT_JSON = '{"error":"a claim ran out: it may have happened"}'
"""The error of a pending effect that is being tried again after a claim without word."""


class Resolution(IntEnum):
    """What an observation of the counterparty has shown."""

    CONFIRMED = 1
    FAILED = 2
    ABSENT = 3
    DUPLICATE = 4
    STUCK = 5


_STATUS = {
    Resolution.CONFIRMED: EffectStatus.CONFIRMED,
    Resolution.FAILED: EffectStatus.FAILED,
    Resolution.ABSENT: EffectStatus.PENDING,
    Resolution.DUPLICATE: EffectStatus.CONFIRMED,
}


class ClaimEffect(NamedTuple):
    """The reply is the effect with the claim's token, None where it cannot be had."""

    idempotency_key: str
    claimer: str
    lease_ttl_ms: int

    def checked(self, limits: Limits) -> "ClaimEffect":
        check_name(self.idempotency_key, limits, field="idempotency_key", required=True)
        check_name(self.claimer, limits, field="claimer", required=True)
        check_claim_ttl(self.lease_ttl_ms)
        return self

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(EFFECTS, (run_id, self.idempotency_key))

    @property
    def size(self) -> int:
        return 64

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        row = find_effect(state, run, self.idempotency_key)
        now = state.now_ms
        living = bool(row.dispatch_claimed_by) and row.dispatch_claim_expires_at_ms > now
        if row.is_settled or living or row.next_dispatch_at_ms > now:
            return RunWriteResult(run, None)
        if row.status == EffectStatus.PENDING:
            return self._dispatching(run, row, now)
        return self._claimed(run, row, now)

    def _dispatching(self, run: Run, row: Effect, now_ms: int) -> RunWriteResult:
        inline, ran_out = row.dispatch_mode == DispatchMode.INLINE, bool(row.dispatch_claimed_by)
        if not run.may_go_on:
            begun = inline or ran_out or row.error_json == RAN_OUT_JSON
            in_doubt = begun and row.semantics != Semantics.OBSERVE_ONLY
            return _lost(run, row) if in_doubt else _never(run, row)
        if inline:
            return RunWriteResult(run, None)
        if ran_out and row.semantics == Semantics.NON_IDEMPOTENT:
            return _lost(run, row)
        if ran_out:
            row = row._replace(error_json=RAN_OUT_JSON)
        return self._claimed(run, row._replace(dispatch_attempts=row.dispatch_attempts + 1), now_ms)

    def _claimed(self, run: Run, row: Effect, now_ms: int) -> RunWriteResult:
        after = row._replace(
            dispatch_claimed_by=self.claimer,
            dispatch_claim_expires_at_ms=now_ms + self.lease_ttl_ms,
            claim_token=row.claim_token + 1,
        )
        line = effect_line("claimed", after, claimer=self.claimer, attempt=after.dispatch_attempts)
        return RunWriteResult(run, after, [line], [save(EFFECTS, after)])


class RenewClaim(NamedTuple):
    """Keep a claim that nobody has taken over, while the work under it goes on.

    Like a heartbeat it makes no entry: who has claimed what for how long is nothing that a run's
    driver decides by.
    """

    idempotency_key: str
    claim_token: int
    lease_ttl_ms: int

    def checked(self, limits: Limits) -> "RenewClaim":
        check_name(self.idempotency_key, limits, field="idempotency_key", required=True)
        check_claim_ttl(self.lease_ttl_ms)
        return self

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(EFFECTS, (run_id, self.idempotency_key))

    @property
    def size(self) -> int:
        return 64

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        row = find_effect(state, run, self.idempotency_key)
        check_claim(row, self.claim_token)
        after = row._replace(dispatch_claim_expires_at_ms=state.now_ms + self.lease_ttl_ms)
        return RunWriteResult(run, after, (), [save(EFFECTS, after)])


class RecordDispatchAttempt(NamedTuple):
    """It failed before anything could have happened: try again then, or (0) it is unknown."""

    idempotency_key: str
    claim_token: int
    error: str
    next_dispatch_at_ms: int = 0
    traceback: str = ""

    def checked(self, limits: Limits) -> "RecordDispatchAttempt":
        check_name(self.idempotency_key, limits, field="idempotency_key", required=True)
        check_time(self.next_dispatch_at_ms, field="next_dispatch_at_ms")
        return self._replace(
            error=clipped(self.error, limits),
            traceback=traceback_within(self.traceback, limits.payload_bytes // 2),
        )

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(EFFECTS, (run_id, self.idempotency_key))

    @property
    def size(self) -> int:
        return len(self.error) + len(self.traceback)

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        row = find_effect(state, run, self.idempotency_key)
        recorded = (row.last_dispatch_error, row.next_dispatch_at_ms) == self[2:4]
        if recorded and _was_released_by(row, self.claim_token):
            return RunWriteResult(run, row)
        check_claim(row, self.claim_token)
        after = _without_claim(row)._replace(
            last_dispatch_error=self.error, next_dispatch_at_ms=self.next_dispatch_at_ms
        )
        if self.next_dispatch_at_ms:
            line = effect_line("attempted", after, error=self.error, **raised_at(self.traceback))
        else:
            after = after._replace(status=EffectStatus.UNKNOWN.value)
            line = outcome_line(after, **raised_at(self.traceback))
        return RunWriteResult(run, after, [line], [save(EFFECTS, after)])


class RecordExternalObservation(NamedTuple):
    """What the counterparty says of an effect, by whoever has claimed it.

    A duplicate is confirmed, and what happened once too often becomes an obligation of its own
    (`on_duplicate`), in the same transaction. Of an absent one it is certain that it did not
    happen: it is pending again, or has failed if its run is gone.
    """

    idempotency_key: str
    claim_token: int
    resolution: int
    external_ref: str = ""
    response_json: str = "null"
    error_json: str = "null"
    compensation: RegisterCompensation | None = None
    on_duplicate: RegisterCompensation | None = None
    parent_run_id: str | None = None

    def checked(self, limits: Limits) -> "RecordExternalObservation":
        if self.resolution not in set(Resolution):
            known = ", ".join(resolution.name for resolution in Resolution)
            raise InvalidArgument(f"must be one of {known}", field="resolution")
        check_name(self.idempotency_key, limits, field="idempotency_key", required=True)
        check_name(self.external_ref, limits, field="external_ref")
        own, second = self.compensation, self.on_duplicate
        if own and second and own[:2] == second[:2]:
            raise InvalidArgument(
                "must be of another kind than the compensation of the effect itself",
                field="compensate_on_duplicate_kind",
            )
        return self._replace(
            response_json=check_json(self.response_json, limits, field="response_json"),
            error_json=check_json(self.error_json, limits, field="error_json"),
            compensation=self.compensation and self.compensation.checked(limits),
            on_duplicate=self.on_duplicate
            and self.on_duplicate.checked(limits)._replace(alone=True),
        )

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(EFFECTS, (run_id, self.idempotency_key))
        for compensation in (self.compensation, self.on_duplicate):
            if compensation is not None:
                yield from compensation.needs(run_id)
        yield from ending_needs(run_id, self.parent_run_id)

    @property
    def size(self) -> int:
        return len(self.response_json) + len(self.error_json)

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        row = find_effect(state, run, self.idempotency_key)
        if self._is_repeat(row):
            return RunWriteResult(run, row)
        check_claim(row, self.claim_token)
        observed = _without_claim(row)._replace(external_ref=self.external_ref or row.external_ref)
        resolution = Resolution(self.resolution)
        if resolution is Resolution.STUCK:
            return self._stuck(state, run, observed)
        status, error_json = _STATUS[resolution], self.error_json
        # The journal says once that an effect is begun, whatever it becomes again.
        reconciled = row.status == EffectStatus.UNKNOWN or status is EffectStatus.PENDING
        verb = "reconciled" if reconciled else ""
        if status is EffectStatus.PENDING and not run.may_go_on:
            status, error_json = EffectStatus.FAILED, _RUN_GONE_JSON
        after = observed._replace(
            status=status.value, response_json=self.response_json, error_json=error_json
        )
        run, awake = woken(run, f"effect {row.idempotency_key}")
        written = RunWriteResult(
            run, after, [outcome_line(after, verb), *awake], [save(EFFECTS, after)]
        )
        if status is EffectStatus.CONFIRMED:
            written = with_compensation(state, written, self.compensation)
        if resolution is Resolution.DUPLICATE:
            written = with_compensation(state, written, self.on_duplicate)
        return written

    def _is_repeat(self, row: Effect) -> bool:
        if not _was_released_by(row, self.claim_token):
            return False
        if row.is_settled:
            return True
        if self.resolution == Resolution.ABSENT:
            return row.status == EffectStatus.PENDING
        stuck = row.next_dispatch_at_ms > 0 and row.error_json == self.error_json
        return self.resolution == Resolution.STUCK and stuck

    def _stuck(self, state: Reading, run: Run, row: Effect) -> RunWriteResult:
        # Its run waits for an operator, but other effects must not wait behind it.
        after = row._replace(
            status=EffectStatus.UNKNOWN.value,
            error_json=self.error_json,
            next_dispatch_at_ms=state.now_ms + STUCK_PAUSE_MS,
        )
        line, change = outcome_line(after, "stuck"), save(EFFECTS, after)
        if not run.is_open:
            return RunWriteResult(run, after, [line], [change])
        end = ended(state, run, RunStatus.STUCK, self.error_json)
        return end._replace(reply=after, lines=[line, *end.lines], changes=[change, *end.changes])


class ReconcileEffect(NamedTuple):
    """The short form of an observation: an unknown effect is confirmed or failed."""

    idempotency_key: str
    claim_token: int
    resolved_status: int
    response_json: str = "null"
    error_json: str = "null"

    def checked(self, limits: Limits) -> "ReconcileEffect":
        if self.resolved_status not in SETTLED:
            raise InvalidArgument("must be CONFIRMED or FAILED", field="resolved_status")
        checked = self._observation().checked(limits)
        return self._replace(response_json=checked.response_json, error_json=checked.error_json)

    def needs(self, run_id: str) -> Iterable[Need]:
        return self._observation().needs(run_id)

    @property
    def size(self) -> int:
        return self._observation().size

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        return self._observation().write(state, run)

    def _observation(self) -> RecordExternalObservation:
        confirmed = self.resolved_status == EffectStatus.CONFIRMED
        return RecordExternalObservation(
            self.idempotency_key,
            self.claim_token,
            Resolution.CONFIRMED if confirmed else Resolution.FAILED,
            "",
            self.response_json,
            self.error_json,
        )


def _never(run: Run, row: Effect) -> RunWriteResult:
    after = row._replace(status=EffectStatus.FAILED.value, error_json=_RUN_GONE_JSON)
    return RunWriteResult(run, None, [outcome_line(after)], [save(EFFECTS, after)])


def _lost(run: Run, row: Effect) -> RunWriteResult:
    words = "the claim ran out" if row.dispatch_claimed_by else "its run ended meanwhile"
    after = _without_claim(row)._replace(
        status=EffectStatus.UNKNOWN.value, last_dispatch_error=words
    )
    return RunWriteResult(run, None, [outcome_line(after)], [save(EFFECTS, after)])


def _was_released_by(row: Effect, token: int) -> bool:
    """Whether the claim with that token was the last: then what it said may come again."""
    return row.claim_token == token > 0 and not row.dispatch_claimed_by


def _without_claim(row: Effect) -> Effect:
    return row._replace(
        dispatch_claimed_by="", dispatch_claim_expires_at_ms=0, next_dispatch_at_ms=0
    )
