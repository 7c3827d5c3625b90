"""A walk through what drivers, reactors and the world outside may do to some runs.

It looks at how things stand, so that most steps can be taken: the holder writes for its run, what
is open is settled, a claim is by the token that the row has. Some steps come again, too late, or
for what is not there.
"""

import random
from collections.abc import Callable
from typing import Any

from tape.model.budget import ChargeBudget, SetBudget
from tape.model.decision import DECISIONS, RecordDecision
from tape.model.effect import (
    EFFECTS,
    BeginEffect,
    CompleteEffect,
    DispatchMode,
    Effect,
    EffectStatus,
    Semantics,
)
from tape.model.effect_claim import (
    ClaimEffect,
    RecordDispatchAttempt,
    RecordExternalObservation,
    RenewClaim,
    Resolution,
)
from tape.model.gate import AwaitSignal, SendSignal
from tape.model.lease import WHOEVER, HeartbeatRun, ReleaseRun, Taker
from tape.model.move import Move
from tape.model.obligation import (
    OBLIGATIONS,
    ClaimObligation,
    Obligation,
    ObligationKey,
    ObligationStatus,
    RecordObligationAttempt,
    RegisterCompensation,
    ResolveObligation,
)
from tape.model.run import RUNS, Run, RunName, RunStatus
from tape.model.run_end import BY_DRIVER, CancelRun, EndRun
from tape.model.run_write import RunWrite
from tape.model.timer import GATE_TIMEOUT, REDRIVE, TIMERS, CancelTimer, FireTimer, SetTimer, Timer
from tests.conformance.in_memory import Memory
from tests.conformance.playing import IDS, LIMITS
from tests.conformance.running import (
    LONG_MS,
    SHORT_MS,
    beginning,
    changing,
    extending,
    resuming,
)

LONG_AGO, FAR_OFF = 5, 2**61
OPEN_AT_ONCE = 3
USUALLY = 0.88
_INLINE = (Semantics.IDEMPOTENT, DispatchMode.INLINE)
_OUTBOX = (Semantics.IDEMPOTENT, DispatchMode.OUTBOX)
_ONCE = (Semantics.NON_IDEMPOTENT, DispatchMode.OUTBOX)


class RunWalk:
    """Names of its own for each walk, and what should be there."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.pool = f"pool of {name}"
        self.connector = f"connector of {name}"
        self.memory = Memory()
        self._random = random.Random(seed)
        self._begun = 0

    def batch(self) -> list[Move[Any]]:
        """Some moves, all made for how things stand before the first."""
        return [self._move() for _ in range(self._one_of([1, 1, 1, 2, 4]))]

    def _move(self) -> Move[Any]:
        runs = self.memory.all(RUNS)
        living = [run for run in runs if run.is_open or run.status == RunStatus.COMPENSATING]
        if len(living) < OPEN_AT_ONCE:
            return self._begin_another(living)
        run = self._one_of(living if self._mostly() else runs)
        if run.status == RunStatus.RUNNING:
            kinds = [self._extend] * 12 + [self._tell] * 8 + [self._heartbeat, self._release]
        else:
            kinds = [self._tell] * 5 + [self._extend]
        kinds += [self._resume, self._resume, self._begin_again]
        move: Move[Any] = self._one_of(kinds)(run)
        return move

    def _begin_another(self, living: list[Run]) -> Move[Any]:
        self._begun += 1
        name = RunName(self.name, "u", f"s{self._begun % 2}", str(self._begun))
        fields: dict[str, Any] = {"pool": self.pool, "app_version": "v1"}
        if living and self._mostly():
            parent = self._one_of(living)
            fields |= {"parent_run_id": parent.run_id, "parent_fencing_token": parent.fencing_token}
        return beginning(name, self._taker(), **fields)

    def _begin_again(self, run: Run) -> Move[Any]:
        return beginning(run.name, self._taker())

    def _resume(self, run: Run) -> Move[Any]:
        expected = self._one_of([WHOEVER, run.fencing_token, run.fencing_token - 1])
        return resuming(run.run_id, self._taker(), expected)

    def _heartbeat(self, run: Run) -> Move[Any]:
        return HeartbeatRun(run.run_id, self._token(run), self._ttl_ms(), LIMITS)

    def _release(self, run: Run) -> Move[Any]:
        return ReleaseRun(
            run.run_id,
            self._token(run),
            next(IDS),
            LIMITS,
            waiting_on=self._one_of(["g0", "g1", ""]),
            seen_seq=run.seq_cursor,
        )

    def _extend(self, run: Run) -> Move[Any]:
        count = self._one_of([1, 1, 2, 3])
        writes = [self._end(run)] if run.cancel_reason else [self._write(run) for _ in range(count)]
        return extending(run.run_id, self._token(run), *writes)

    def _tell(self, run: Run) -> Move[Any]:
        kinds: list[Callable[[Run], RunWrite]] = [
            *[self._claim, self._settle_effect, self._settle] * 3,
            *[self._signal, self._fire, self._renew, self._attempt, self._attempt_obligation],
        ]
        if not self._mostly():
            kinds = [self._cancel, self._signal]
        write: RunWrite = self._one_of(kinds)(run)
        return changing(run.run_id, write)

    def _write(self, run: Run) -> RunWrite:
        kinds: list[Callable[[Run], RunWrite]] = [
            *[self._decide, self._begin_effect, self._complete] * 4,
            *[self._register, self._await, self._set_timer, self._charge],
        ]
        if not self._mostly():
            kinds = [self._cancel_timer, self._budget, self._end, self._end]
        write: RunWrite = self._one_of(kinds)(run)
        return write

    def _decide(self, run: Run) -> RunWrite:
        return RecordDecision(self._number(DECISIONS, run), "model", response_json='"ä"')

    def _begin_effect(self, run: Run) -> RunWrite:
        semantics, mode = self._one_of([_INLINE, _OUTBOX, _ONCE])
        return BeginEffect(
            0,
            "tool",
            0,
            "[1]",
            f"e{self._number(EFFECTS, run)}",
            semantics,
            mode,
            self._one_of(["", "", f"{self.name} {self._random.randint(0, 9)}"]),
            self.connector,
        )

    def _complete(self, run: Run) -> RunWrite:
        inline = [
            row
            for row in self._of(EFFECTS, run)
            if row.status == EffectStatus.PENDING and row.dispatch_mode == DispatchMode.INLINE
        ]
        if not inline and self._mostly():
            return self._begin_effect(run)
        key = self._one_of(inline or [_NO_EFFECT]).idempotency_key
        undo = self._one_of([None, RegisterCompensation(key, "undo", "[2]")])
        status = self._one_of(list(EffectStatus)[1:])
        return CompleteEffect(key, status, '"€"', compensation=undo)

    def _register(self, run: Run) -> RunWrite:
        number = self._number(OBLIGATIONS, run)
        return RegisterCompensation(f"o{number}", "undo", "[2]", alone=not self._mostly())

    def _await(self, _run: Run) -> RunWrite:
        return AwaitSignal(self._gate(), "[3]")

    def _set_timer(self, run: Run) -> RunWrite:
        moment, kind = self._one_of([LONG_AGO, FAR_OFF]), self._one_of([REDRIVE, GATE_TIMEOUT])
        gate = f'{{"gate":"{self._gate()}"}}'
        return SetTimer(f"t{self._number(TIMERS, run)}", moment, kind, gate)

    def _cancel_timer(self, run: Run) -> RunWrite:
        return CancelTimer(self._timer(run).timer_id)

    def _budget(self, _run: Run) -> RunWrite:
        return SetBudget(self._random.random(), self._random.randint(0, 9))

    def _charge(self, _run: Run) -> RunWrite:
        return ChargeBudget(self._random.random(), 1, self._one_of(["", "c1", "c2"]))

    def _end(self, run: Run) -> RunWrite:
        return EndRun(self._one_of(BY_DRIVER), "[4]", run.parent_run_id)

    def _signal(self, _run: Run) -> RunWrite:
        return SendSignal(self._gate(), '"yes"')

    def _cancel(self, run: Run) -> RunWrite:
        return CancelRun("enough", run.parent_run_id)

    def _fire(self, run: Run) -> RunWrite:
        return FireTimer(self._timer(run))

    def _claim(self, run: Run) -> RunWrite:
        if run.status == RunStatus.COMPENSATING or not self._of(EFFECTS, run):
            return ClaimObligation(_key(self._owed(run)), "compensator", self._ttl_ms())
        row = self._effect(run, self._one_of([EffectStatus.PENDING, EffectStatus.UNKNOWN]))
        return ClaimEffect(row.idempotency_key, "dispatcher", self._ttl_ms())

    def _renew(self, run: Run) -> RunWrite:
        row = self._effect(run, EffectStatus.PENDING)
        return RenewClaim(row.idempotency_key, self._claim_token(row), self._ttl_ms())

    def _attempt(self, run: Run) -> RunWrite:
        row = self._effect(run, EffectStatus.PENDING)
        return RecordDispatchAttempt(
            row.idempotency_key, self._claim_token(row), "no", self._moment()
        )

    def _settle_effect(self, run: Run) -> RunWrite:
        rows = [row for row in self._of(EFFECTS, run) if row.dispatch_claimed_by]
        if not rows and self._mostly():
            return self._claim(run)
        row = self._one_of(rows) if rows else self._effect(run, EffectStatus.UNKNOWN)
        key = row.idempotency_key
        return RecordExternalObservation(
            key,
            self._claim_token(row),
            self._one_of(list(Resolution)),
            "ref",
            compensation=RegisterCompensation(key, "undo") if self._mostly() else None,
            on_duplicate=RegisterCompensation(key, "other"),
            parent_run_id=run.parent_run_id,
        )

    def _settle(self, run: Run) -> RunWrite:
        row = self._owed(run)
        if not row.claimed_by and self._mostly():
            return self._claim(run)
        status = ObligationStatus.COMPENSATED if self._mostly() else ObligationStatus.STUCK
        return ResolveObligation(
            _key(row), self._claim_token(row), status, "[5]", run.parent_run_id
        )

    def _attempt_obligation(self, run: Run) -> RunWrite:
        row = self._owed(run)
        return RecordObligationAttempt(
            _key(row), self._claim_token(row), "no", self._moment(), run.parent_run_id
        )

    def _of(self, table: Any, run: Run) -> list[Any]:
        return [row for row in self.memory.all(table) if row.run_id == run.run_id]

    def _number(self, table: Any, run: Run) -> int:
        """That of another row, or of one that is there."""
        count = len(self._of(table, run))
        return count if self._mostly() else self._random.randint(0, count)

    def _effect(self, run: Run, status: EffectStatus) -> Any:
        there = self._of(EFFECTS, run)
        wanted = [row for row in there if row.status == status] or there
        return self._one_of(wanted) if wanted else _NO_EFFECT

    def _owed(self, run: Run) -> Any:
        there = self._of(OBLIGATIONS, run)
        top = [row for row in there if row.seq == run.top_obligation]
        return self._one_of(top if top and self._mostly() else there or [_NO_OBLIGATION])

    def _timer(self, run: Run) -> Any:
        return self._one_of(self._of(TIMERS, run) or [_NO_TIMER._replace(run_id=run.run_id)])

    def _gate(self) -> str:
        return f"g{self._random.randint(0, 3)}"

    def _taker(self) -> Taker:
        owner = self._one_of(["a", "b", ""]) if self._mostly() else "c"
        return Taker(owner, "worker", self._ttl_ms())

    def _token(self, run: Run) -> int:
        return run.fencing_token if self._mostly() else run.fencing_token - 1

    def _claim_token(self, row: Any) -> int:
        token: int = row.claim_token
        return token if self._mostly() else token - 1

    def _ttl_ms(self) -> int:
        return LONG_MS if self._mostly() else SHORT_MS

    def _moment(self) -> int:
        return self._random.choice([0, LONG_AGO, LONG_AGO, FAR_OFF])

    def _mostly(self) -> bool:
        return self._random.random() < USUALLY

    def _one_of(self, choices: Any) -> Any:
        return self._random.choice(choices)


def _key(row: Obligation) -> ObligationKey:
    return ObligationKey(row.effect_key, row.kind)


_NO_EFFECT = Effect("", "none", 0, 0, "none", 0, 1, "", "", "", 0, 1, 1, "", "", "")
_NO_OBLIGATION = Obligation("", "none", "none", 0, "", 1, 0, "", 0, 0, 0, "", "", 0, 0, "", 0)
_NO_TIMER = Timer("", "none", 0, REDRIVE, "null", False, False, 0)
