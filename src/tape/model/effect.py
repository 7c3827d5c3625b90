"""Effects: acts upon the world, written down before they happen and settled afterwards.

    pending ──> confirmed | failed | unknown            by the run's driver (inline), or by whoever
    unknown ──> confirmed | failed | pending again       claimed it (dispatcher, reconciler)

An effect that is not idempotent is never begun inline: a worker dispatches it under a claim, and a
claim that ran out without word makes it unknown instead of trying again. What is unknown is only
ever settled by an observation of the counterparty.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple

import orjson

from tape.errors import BusinessKeyTaken, InvalidArgument, NotFound, RunCancelled, StaleLease
from tape.model.entry import Kind
from tape.model.json_text import check_json
from tape.model.move import Need, Reading, Table, save
from tape.model.names import check_name, check_names
from tape.model.obligation import RegisterCompensation
from tape.model.run import Run, RunName, RunStatus
from tape.model.run_write import RunEntryDraft, RunWriteResult, raw, run_line
from tape.model.subjects import effect
from tape.settings import Limits


class EffectStatus(IntEnum):
    PENDING = 1
    CONFIRMED = 2
    FAILED = 3
    UNKNOWN = 4


class Semantics(IntEnum):
    IDEMPOTENT = 1
    NON_IDEMPOTENT = 2
    OBSERVE_ONLY = 3


class DispatchMode(IntEnum):
    INLINE = 1
    OUTBOX = 2


STATUS_WORDS = {status.value: status.name.lower() for status in EffectStatus}
_SEMANTICS = {semantics.value: semantics.name.lower() for semantics in Semantics}
_DISPATCH_MODES = {mode.value: mode.name.lower() for mode in DispatchMode}

SETTLED = (EffectStatus.CONFIRMED, EffectStatus.FAILED)
_A_RUN_ID = RunName("", "", "", "").run_id  # all have the same length


class Effect(NamedTuple):
    """An effect's row. `claim_token` fences whoever dispatches or reconciles it."""

    run_id: str
    idempotency_key: str
    seq: int
    decision_index: int
    tool_name: str
    call_index: int
    status: int
    request_json: str
    response_json: str
    error_json: str
    ts_ms: int
    semantics: int
    dispatch_mode: int
    business_key: str
    connector: str
    scope: str
    dispatch_attempts: int = 0
    next_dispatch_at_ms: int = 0
    external_ref: str = ""
    dispatch_claimed_by: str = ""
    dispatch_claim_expires_at_ms: int = 0
    last_dispatch_error: str = ""
    claim_token: int = 0

    @property
    def is_settled(self) -> bool:
        return self.status in SETTLED


class BusinessKey(NamedTuple):
    """Whose a business key is: one effect's for each connector."""

    connector: str
    business_key: str
    run_id: str
    idempotency_key: str


EFFECTS = Table("effects", Effect, lambda row: (row.run_id, row.idempotency_key))
BUSINESS_KEYS = Table("business_keys", BusinessKey, lambda row: (row.connector, row.business_key))


def effect_key(run_id: str, decision_index: int, tool_name: str, call_index: int) -> str:
    """What the counterparty is told, so that it can recognise a repeat."""
    return f"{run_id}/decision-{decision_index}/{tool_name}/{call_index}"


_NAMES = ("custom_key", "business_key", "connector", "scope")


class BeginEffect(NamedTuple):
    """Write down what is about to be done. One that was begun before is answered as it stands."""

    decision_index: int
    tool_name: str
    call_index: int
    request_json: str = "null"
    custom_key: str = ""
    semantics: int = Semantics.IDEMPOTENT
    dispatch_mode: int = DispatchMode.INLINE
    business_key: str = ""
    connector: str = ""
    scope: str = ""

    def checked(self, limits: Limits) -> "BeginEffect":
        semantics, mode = self.check_terms(limits)
        return self._replace(
            request_json=check_json(self.request_json, limits, field="request_json"),
            semantics=semantics,
            dispatch_mode=mode,
            connector=self.connector or self.tool_name,
        )

    def check_terms(self, limits: Limits) -> tuple[int, int]:
        """Refuse what is wrong with all but its request; its semantics and dispatch mode."""
        _check_index(self.decision_index, "decision_index")
        _check_index(self.call_index, "call_index")
        check_name(self.tool_name, limits, field="tool_name", required=True)
        check_name(
            self.key(_A_RUN_ID), limits, field="custom_key" if self.custom_key else "tool_name"
        )
        names = (self.custom_key, self.business_key, self.connector, self.scope)
        check_names(names, limits, fields=_NAMES)
        semantics = _one_of(_SEMANTICS, self.semantics, "semantics")
        mode = _one_of(_DISPATCH_MODES, self.dispatch_mode, "dispatch_mode")
        if semantics == Semantics.NON_IDEMPOTENT and mode != DispatchMode.OUTBOX:
            raise InvalidArgument(
                "an effect that is not idempotent must go through the outbox: after a crash "
                "between the act and its record it would be executed again",
                field="dispatch_mode",
            )
        return semantics, mode

    def key(self, run_id: str) -> str:
        return self.custom_key or effect_key(
            run_id, self.decision_index, self.tool_name, self.call_index
        )

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(EFFECTS, (run_id, self.key(run_id)))
        if self.business_key:
            yield Need(BUSINESS_KEYS, (self.connector or self.tool_name, self.business_key))

    @property
    def size(self) -> int:
        return 2 * len(self.request_json)

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        key = self.key(run.run_id)
        known = state.get(EFFECTS, (run.run_id, key))
        if known is not None:
            if known.tool_name != self.tool_name:
                raise InvalidArgument(f"{key!r} is {known.tool_name!r}'s", field="custom_key")
            return RunWriteResult(run, known)
        if run.cancel_reason and self.semantics != Semantics.OBSERVE_ONLY:
            raise RunCancelled(f"run {run.run_id!r} is being cancelled: {run.cancel_reason}")
        row = Effect(
            run.run_id,
            key,
            run.seq_cursor + 1,
            self.decision_index,
            self.tool_name,
            self.call_index,
            EffectStatus.PENDING.value,
            self.request_json,
            "null",
            "null",
            state.now_ms,
            self.semantics,
            self.dispatch_mode,
            self.business_key,
            self.connector,
            self.scope,
        )
        changes = [save(EFFECTS, row)]
        if self.business_key:
            changes.append(save(BUSINESS_KEYS, self._reserved(state, row)))
        details = {
            "call_index": row.call_index,
            "request": raw(row.request_json),
            "semantics": _SEMANTICS[row.semantics],
            "dispatch_mode": _DISPATCH_MODES[row.dispatch_mode],
            "connector": row.connector,
            "business_key": row.business_key,
        }
        return RunWriteResult(run, row, [effect_line("pending", row, **details)], changes)

    def _reserved(self, state: Reading, row: Effect) -> BusinessKey:
        wanted = BusinessKey(row.connector, row.business_key, row.run_id, row.idempotency_key)
        taken = state.get(BUSINESS_KEYS, wanted[:2])
        if taken is not None:
            raise BusinessKeyTaken(
                f"{row.connector}/{row.business_key} belongs to effect {taken.idempotency_key!r}"
            )
        return wanted


class CompleteEffect(NamedTuple):
    """What became of an inline effect, with its compensation if it is confirmed and has one."""

    idempotency_key: str
    status: int
    response_json: str = "null"
    error_json: str = "null"
    compensation: RegisterCompensation | None = None

    def checked(self, limits: Limits) -> "CompleteEffect":
        check_name(self.idempotency_key, limits, field="idempotency_key", required=True)
        if self.status not in (*SETTLED, EffectStatus.UNKNOWN):
            raise InvalidArgument("must be CONFIRMED, FAILED or UNKNOWN", field="status")
        return self._replace(
            response_json=check_json(self.response_json, limits, field="response_json"),
            error_json=check_json(self.error_json, limits, field="error_json"),
            compensation=self.compensation and self.compensation.checked(limits),
        )

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(EFFECTS, (run_id, self.idempotency_key))
        if self.compensation is not None:
            yield from self.compensation.needs(run_id)

    @property
    def size(self) -> int:
        return len(self.response_json) + len(self.error_json)

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        row = find_effect(state, run, self.idempotency_key)
        if row.status != EffectStatus.PENDING:
            return RunWriteResult(run, row)
        if row.dispatch_mode == DispatchMode.OUTBOX:
            raise InvalidArgument(
                "only the worker that claimed an outbox effect may settle it",
                field="idempotency_key",
            )
        row = row._replace(
            status=self.status, response_json=self.response_json, error_json=self.error_json
        )
        written = RunWriteResult(run, row, [outcome_line(row)], [save(EFFECTS, row)])
        if self.status != EffectStatus.CONFIRMED:
            return written
        return with_compensation(state, written, self.compensation)


def with_compensation(
    state: Reading, written: RunWriteResult, compensation: RegisterCompensation | None
) -> RunWriteResult:
    """Add an obligation to what is written, in the same transaction."""
    if compensation is None:
        return written
    if written.run.status == RunStatus.COMPENSATING:
        # The stack is being unwound, and whoever is at its top counts on being there.
        compensation = compensation._replace(alone=True)
    cursor = written.run.seq_cursor
    registered = compensation.write(
        state, written.run._replace(seq_cursor=cursor + len(written.lines))
    )
    run, lines = registered.run._replace(seq_cursor=cursor), list(registered.lines)
    ended = run.status in (RunStatus.FAILED, RunStatus.CANCELLED)
    if ended and lines and not compensation.alone:
        # It was cancelled while the effect was on its way: there is something to unwind after all.
        run = run._replace(status=RunStatus.COMPENSATING.value, ending=run.status, ended_at_ms=0)
        lines.append(run_line(run, because="an effect was confirmed after the end"))
    return written._replace(
        run=run,
        lines=[*written.lines, *lines],
        changes=[*written.changes, *registered.changes],
    )


def find_effect(state: Reading, run: Run, key: str) -> Effect:
    row = state.get(EFFECTS, (run.run_id, key))
    if row is None:
        raise NotFound(f"run {run.run_id!r} has no effect {key!r}")
    return row


def check_claim(row: Effect, token: int) -> None:
    if row.claim_token != token or not row.dispatch_claimed_by:
        raise StaleLease(
            f"effect {row.idempotency_key!r} was claimed by another worker, or its claim was "
            "released"
        )


def effect_line(verb: str, row: Effect, **details: Any) -> RunEntryDraft:
    payload = {
        "idempotency_key": row.idempotency_key,
        "tool_name": row.tool_name,
        "decision_index": row.decision_index,
        **details,
    }
    return RunEntryDraft(
        Kind.EFFECT.value, effect(verb, row.tool_name, row.run_id), orjson.dumps(payload).decode()
    )


def outcome_line(row: Effect, verb: str = "", **details: Any) -> RunEntryDraft:
    status = STATUS_WORDS[row.status]
    return effect_line(
        verb or status,
        row,
        status=status,
        response=raw(row.response_json),
        error=raw(row.error_json),
        external_ref=row.external_ref,
        **details,
    )


def _check_index(index: int, field: str) -> None:
    if not 0 <= index < 2**31:
        raise InvalidArgument("must be in 0..2^31-1", field=field)


def _one_of(known: dict[int, str], number: int, field: str) -> int:
    """A number that was not given is the first."""
    if number and number not in known:
        raise InvalidArgument(f"must be one of {', '.join(map(str, known))}", field=field)
    return int(number or 1)
