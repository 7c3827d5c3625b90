"""Obligations: what must be undone if a run does not succeed, unwound newest first.

The unresolved ones of a run are a stack: the run's row names the top, each names the one below.
Only the top can be claimed, so the order holds whoever unwinds. One that stands alone, for an act
that happened once too often, is no part of that: it is due at once, however its run goes.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple

import orjson

from tape.errors import InvalidArgument, NotFound, StaleLease
from tape.model.entry import Kind
from tape.model.json_text import check_json
from tape.model.move import Need, Reading, Table, save
from tape.model.names import check_name
from tape.model.run import Run, RunStatus
from tape.model.run_end import check_parent, ended, ending_needs
from tape.model.run_write import (
    RunEntryDraft,
    RunWriteResult,
    check_claim_ttl,
    check_time,
    clipped,
    raw,
)
from tape.model.subjects import obligation
from tape.model.traceback_text import raised_at, traceback_within
from tape.settings import Limits

DEFAULT_ATTEMPTS = 5
ALONE = -1
"""As `below`: no part of the stack."""


class ObligationStatus(IntEnum):
    """COMMITTED: somebody has set out to compensate it."""

    PENDING = 1
    COMMITTED = 2
    COMPENSATED = 3
    STUCK = 4


class Obligation(NamedTuple):
    run_id: str
    effect_key: str
    kind: str
    seq: int
    payload_json: str
    status: int
    ts_ms: int
    compensator_ref: str
    attempts: int
    max_attempts: int
    next_attempt_at_ms: int
    last_error: str
    claimed_by: str
    claim_expires_at_ms: int
    claim_token: int
    result_json: str
    below: int


OBLIGATIONS = Table("obligations", Obligation, lambda row: (row.run_id, row.effect_key, row.kind))


class RegisterCompensation(NamedTuple):
    """One obligation for an effect and kind; a repeat is answered with it."""

    effect_key: str
    kind: str
    payload_json: str = "null"
    compensator_ref: str = ""
    max_attempts: int = 0
    alone: bool = False

    def checked(self, limits: Limits) -> "RegisterCompensation":
        ObligationKey(self.effect_key, self.kind).checked(limits)
        check_name(self.compensator_ref, limits, field="compensator_ref")
        if not 0 <= self.max_attempts <= 1000:
            raise InvalidArgument("must be in 0..1000", field="max_attempts")
        return self._replace(
            payload_json=check_json(self.payload_json, limits, field="payload_json")
        )

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(OBLIGATIONS, (run_id, self.effect_key, self.kind))

    @property
    def size(self) -> int:
        return len(self.payload_json)

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        known = state.get(OBLIGATIONS, (run.run_id, self.effect_key, self.kind))
        if known is not None:
            return RunWriteResult(run, known)
        row = Obligation(
            run.run_id,
            self.effect_key,
            self.kind,
            run.seq_cursor + 1,
            self.payload_json,
            ObligationStatus.PENDING.value,
            state.now_ms,
            self.compensator_ref or self.kind,
            0,
            self.max_attempts or DEFAULT_ATTEMPTS,
            0,
            "",
            "",
            0,
            0,
            "null",
            ALONE if self.alone else run.top_obligation,
        )
        if not self.alone:
            run = run._replace(top_obligation=row.seq)
        return RunWriteResult(run, row, [_line("registered", row)], [save(OBLIGATIONS, row)])


class ObligationKey(NamedTuple):
    effect_key: str
    kind: str

    def checked(self, limits: Limits) -> "ObligationKey":
        check_name(self.effect_key, limits, field="effect_key", required=True)
        check_name(self.kind, limits, field="kind", required=True)
        return self


class ClaimObligation(NamedTuple):
    """The reply is the obligation with the claim's token, None where it cannot be had.

    It can be had while its run is unwinding, if it is on top, due, and nobody else's claim lives.
    One that takes its claimers down is tried no more often than one that fails.
    """

    key: ObligationKey
    claimer: str
    lease_ttl_ms: int

    def checked(self, limits: Limits) -> "ClaimObligation":
        self.key.checked(limits)
        check_name(self.claimer, limits, field="claimer", required=True)
        check_claim_ttl(self.lease_ttl_ms)
        return self

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(OBLIGATIONS, (run_id, *self.key))

    @property
    def size(self) -> int:
        return 64

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        row = state.get(OBLIGATIONS, (run.run_id, *self.key))
        if row is None or row.status == ObligationStatus.COMPENSATED:
            return RunWriteResult(run, None)
        unwinding = run.status == RunStatus.COMPENSATING and row.seq == run.top_obligation
        if not unwinding and row.below != ALONE:
            return RunWriteResult(run, None)
        now = state.now_ms
        claimed = row.status == ObligationStatus.COMMITTED
        if row.next_attempt_at_ms > now or (claimed and row.claim_expires_at_ms > now):
            return RunWriteResult(run, None)
        if claimed and row.attempts >= row.max_attempts:
            lost = row._replace(last_error="the claim ran out")
            return _stuck(state, run, lost)._replace(reply=None)
        stuck = row.status == ObligationStatus.STUCK
        after = row._replace(
            status=ObligationStatus.COMMITTED.value,
            attempts=1 if stuck else row.attempts + 1,
            claimed_by=self.claimer,
            claim_expires_at_ms=now + self.lease_ttl_ms,
            claim_token=row.claim_token + 1,
        )
        return RunWriteResult(run, after, [_line("committed", after)], [save(OBLIGATIONS, after)])


class RenewObligationClaim(NamedTuple):
    """Keep a claim that nobody has taken over. Like a heartbeat it makes no entry."""

    key: ObligationKey
    claim_token: int
    lease_ttl_ms: int

    def checked(self, limits: Limits) -> "RenewObligationClaim":
        self.key.checked(limits)
        check_claim_ttl(self.lease_ttl_ms)
        return self

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(OBLIGATIONS, (run_id, *self.key))

    @property
    def size(self) -> int:
        return 64

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        row = _found(state, run, self.key)
        _check_claim(row, self.claim_token)
        after = row._replace(claim_expires_at_ms=state.now_ms + self.lease_ttl_ms)
        return RunWriteResult(run, after, (), [save(OBLIGATIONS, after)])


class ResolveObligation(NamedTuple):
    """By whoever claimed it: it is compensated, or it never will be."""

    key: ObligationKey
    claim_token: int
    status: int
    result_json: str = "null"
    parent_run_id: str | None = None

    def checked(self, limits: Limits) -> "ResolveObligation":
        if self.status not in (ObligationStatus.COMPENSATED, ObligationStatus.STUCK):
            raise InvalidArgument("must be COMPENSATED or STUCK", field="status")
        self.key.checked(limits)
        return self._replace(result_json=check_json(self.result_json, limits, field="result_json"))

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(OBLIGATIONS, (run_id, *self.key))
        yield from ending_needs(run_id, self.parent_run_id)

    @property
    def size(self) -> int:
        return len(self.result_json)

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        row = _found(state, run, self.key)
        if row.status == self.status and row.claim_token == self.claim_token:
            return RunWriteResult(run, row)
        _check_claim(row, self.claim_token)
        if self.status == ObligationStatus.STUCK:
            return _stuck(state, run, row._replace(result_json=self.result_json))
        after = _without_claim(row)._replace(status=self.status, result_json=self.result_json)
        lines, changes = [_line("compensated", after)], [save(OBLIGATIONS, after)]
        if row.below == ALONE:
            return RunWriteResult(run, after, lines, changes)
        run = run._replace(top_obligation=row.below)
        if row.below:
            return RunWriteResult(run, after, lines, changes)
        check_parent(run, self.parent_run_id)
        end = ended(state, run, RunStatus(run.ending), run.outcome_json)
        return end._replace(
            reply=after, lines=[*lines, *end.lines], changes=[*changes, *end.changes]
        )


class RecordObligationAttempt(NamedTuple):
    """By whoever claimed it: it failed this time. No time for the next attempt: it is stuck."""

    key: ObligationKey
    claim_token: int
    error: str
    next_attempt_at_ms: int = 0
    parent_run_id: str | None = None
    traceback: str = ""

    def checked(self, limits: Limits) -> "RecordObligationAttempt":
        self.key.checked(limits)
        check_time(self.next_attempt_at_ms, field="next_attempt_at_ms")
        return self._replace(
            error=clipped(self.error, limits),
            traceback=traceback_within(self.traceback, limits.payload_bytes // 2),
        )

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(OBLIGATIONS, (run_id, *self.key))
        yield from ending_needs(run_id, self.parent_run_id)

    @property
    def size(self) -> int:
        return len(self.error) + len(self.traceback)

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        row = _found(state, run, self.key)
        if self._is_repeat(row):
            return RunWriteResult(run, row)
        _check_claim(row, self.claim_token)
        after = _without_claim(row)._replace(last_error=self.error)
        if not self.next_attempt_at_ms or row.attempts >= row.max_attempts:
            return _stuck(state, run, after, self.traceback)
        after = after._replace(
            status=ObligationStatus.PENDING.value, next_attempt_at_ms=self.next_attempt_at_ms
        )
        line = _line("attempted", after, self.traceback)
        return RunWriteResult(run, after, [line], [save(OBLIGATIONS, after)])

    def _is_repeat(self, row: Obligation) -> bool:
        if not row.claim_token == self.claim_token > 0 or row.last_error != self.error:
            return False
        if row.status == ObligationStatus.PENDING:
            return row.next_attempt_at_ms == self.next_attempt_at_ms
        return row.status == ObligationStatus.STUCK


def _stuck(state: Reading, run: Run, row: Obligation, traceback: str = "") -> RunWriteResult:
    """The obligation stays on top and its run is stuck: an operator must look."""
    after = _without_claim(row)._replace(status=ObligationStatus.STUCK.value)
    line = _line("stuck", after, traceback)
    if row.below == ALONE:
        return RunWriteResult(run, after, [line], [save(OBLIGATIONS, after)])
    end = ended(state, run, RunStatus.STUCK, run.outcome_json)
    return end._replace(
        reply=after,
        lines=[line, *end.lines],
        changes=[save(OBLIGATIONS, after), *end.changes],
    )


def _found(state: Reading, run: Run, key: ObligationKey) -> Obligation:
    row = state.get(OBLIGATIONS, (run.run_id, *key))
    if row is None:
        raise NotFound(f"run {run.run_id!r} has no obligation {key.kind!r} for {key.effect_key!r}")
    return row


def _check_claim(row: Obligation, token: int) -> None:
    if row.claim_token != token or not row.claimed_by:
        raise StaleLease(
            f"obligation {row.seq} of run {row.run_id!r} was claimed by another worker, or its "
            "claim was released"
        )


def _without_claim(row: Obligation) -> Obligation:
    return row._replace(claimed_by="", claim_expires_at_ms=0, next_attempt_at_ms=0)


def _line(verb: str, row: Obligation, traceback: str = "") -> RunEntryDraft:
    payload: dict[str, Any] = {
        "obligation_seq": row.seq,
        "effect_key": row.effect_key,
        "kind": row.kind,
        "compensator_ref": row.compensator_ref,
        "payload": raw(row.payload_json),
        "attempts": row.attempts,
        "claimed_by": row.claimed_by,
        "last_error": row.last_error,
        "result": raw(row.result_json),
        **raised_at(traceback),
    }
    return RunEntryDraft(
        Kind.OBLIGATION.value,
        obligation(verb, row.kind, row.run_id),
        orjson.dumps(payload).decode(),
    )
