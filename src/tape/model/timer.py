"""Timers: what a run wants to be told later, by the store's clock.

Kinds: `redrive` wakes the run, `gate_timeout` opens the gate its payload names if no word has come,
`reconcile` and the user's own only make their entry.
"""

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from tape.errors import InvalidArgument
from tape.model.entry import Kind
from tape.model.gate import GATES, release
from tape.model.json_text import check_json
from tape.model.move import Need, Reading, Table, save
from tape.model.names import check_name
from tape.model.run import Run
from tape.model.run_write import RunEntryDraft, RunWriteResult, raw, woken
from tape.model.subjects import timer
from tape.settings import Limits

REDRIVE = "redrive"
GATE_TIMEOUT = "gate_timeout"
RECONCILE = "reconcile"
TIMED_OUT_JSON = '{"timed_out":true}'


class Timer(NamedTuple):
    run_id: str
    timer_id: str
    fire_at_ms: int
    kind: str
    payload_json: str
    fired: bool
    cancelled: bool
    created_at_ms: int


TIMERS = Table("timers", Timer, lambda row: (row.run_id, row.timer_id))


class SetTimer(NamedTuple):
    """Set a timer, unless there is one by that id. With `after_ms` it is so long from now."""

    timer_id: str
    fire_at_ms: int = 0
    kind: str = REDRIVE
    payload_json: str = "null"
    after_ms: int = 0

    def checked(self, limits: Limits) -> "SetTimer":
        check_name(self.timer_id, limits, field="timer_id", required=True)
        check_name(self.kind, limits, field="kind")
        for field, most in (("fire_at_ms", 2**62), ("after_ms", 2**50)):
            if not 0 <= getattr(self, field) < most:
                raise InvalidArgument("must be a time in milliseconds", field=field)
        payload = check_json(self.payload_json, limits, field="payload_json")
        if self.kind == GATE_TIMEOUT:
            check_name(_gate_of(payload), limits, field="payload_json")
        return self._replace(payload_json=payload, kind=self.kind or REDRIVE)

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(TIMERS, (run_id, self.timer_id))

    @property
    def size(self) -> int:
        return len(self.payload_json)

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        known = state.get(TIMERS, (run.run_id, self.timer_id))
        if known is not None:
            return RunWriteResult(run, known)
        row = Timer(
            run.run_id,
            self.timer_id,
            self.fire_at_ms or state.now_ms + self.after_ms,
            self.kind,
            self.payload_json,
            False,
            False,
            state.now_ms,
        )
        return RunWriteResult(run, row, [_line("set", row)], [save(TIMERS, row)])


class CancelTimer(NamedTuple):
    """The reply is whether there was one that had not fired."""

    timer_id: str

    def checked(self, limits: Limits) -> "CancelTimer":
        check_name(self.timer_id, limits, field="timer_id", required=True)
        return self

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(TIMERS, (run_id, self.timer_id))

    @property
    def size(self) -> int:
        return 64

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        known = state.get(TIMERS, (run.run_id, self.timer_id))
        if known is None or known.fired or known.cancelled:
            return RunWriteResult(run, bool(known and known.cancelled))
        after = known._replace(cancelled=True)
        return RunWriteResult(run, True, [_line("cancelled", after)], [save(TIMERS, after)])


class FireTimer(NamedTuple):
    """From the timers' reactor, for a timer as it was read. One that is not due stays."""

    timer: Timer

    def checked(self, _limits: Limits) -> "FireTimer":
        return self

    def needs(self, run_id: str) -> Iterable[Need]:
        yield Need(TIMERS, (run_id, self.timer.timer_id))
        if self.timer.kind == GATE_TIMEOUT:
            yield Need(GATES, (run_id, _gate_of(self.timer.payload_json)))

    @property
    def size(self) -> int:
        return 64

    def write(self, state: Reading, run: Run) -> RunWriteResult:
        known = state.get(TIMERS, (run.run_id, self.timer.timer_id))
        if known is None or known.fired or known.cancelled or known.fire_at_ms > state.now_ms:
            return RunWriteResult(run, None)
        after = known._replace(fired=True)
        lines, changes = [_line("fired", after)], [save(TIMERS, after)]
        if not run.may_go_on:
            return RunWriteResult(run, after, lines, changes)
        if after.kind == GATE_TIMEOUT:
            name = _gate_of(after.payload_json)
            gate = state.get(GATES, (run.run_id, name))
            if gate is None or not gate.released:
                run, opened, rows = release(gate, run, name, TIMED_OUT_JSON)
                lines += opened
                changes += rows
        elif after.kind == REDRIVE:
            run, awake = woken(run, f"timer {after.timer_id}")
            lines += awake
        return RunWriteResult(run, after, lines, changes)


def _gate_of(payload_json: str) -> str:
    payload = orjson.loads(payload_json)
    name = payload.get("gate") if isinstance(payload, dict) else None
    if not isinstance(name, str) or not name:
        raise InvalidArgument('a gate_timeout names its gate: {"gate": "…"}', field="payload_json")
    return name


def _line(verb: str, row: Timer) -> RunEntryDraft:
    payload = {
        "timer_id": row.timer_id,
        "kind": row.kind,
        "fire_at_ms": row.fire_at_ms,
        "payload": raw(row.payload_json),
    }
    return RunEntryDraft(
        Kind.TIMER.value, timer(verb, row.kind, row.run_id), orjson.dumps(payload).decode()
    )
