"""The operations on runs over gRPC.

Whatever is written for a run is recognised by the server if it comes again, so a call that was cut
off is sent again for a while. What is not (see `repeatable`) is told as OutcomeUnknown.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import grpc

from tape.client.again import until_answered
from tape.client.grpc_run_looks import GrpcRunLooks
from tape.client.representable import representable
from tape.client.server import Server
from tape.config import Limits
from tape.errors import InvalidArgument
from tape.model.budget import ChargeBudget, SetBudget
from tape.model.effect_claim import (
    ClaimEffect,
    ReconcileEffect,
    RecordDispatchAttempt,
    RecordExternalObservation,
    RenewClaim,
)
from tape.model.entry import NO_TRACE, Trace
from tape.model.gate import SendSignal
from tape.model.lease import WHOEVER, Begun, NewRun, Taker
from tape.model.obligation import (
    ClaimObligation,
    RecordObligationAttempt,
    RenewObligationClaim,
    ResolveObligation,
)
from tape.model.run import Run
from tape.model.run_end import CancelRun
from tape.model.run_write import Extended, RunWrite
from tape.model.timer import Timer
from tape.runs.operations import NOBODY
from tape.wire import (
    mapping_begin,
    mapping_effects,
    mapping_obligations,
    mapping_run_writes,
    mapping_runs,
    records,
)
from tape.wire.codec import Record
from tape.wire.v1 import tape_pb2 as pb

Q = TypeVar("Q")
A = TypeVar("A")

HEARTBEATS = 2
"""How often one is sent at most: the next is due soon."""


class GrpcRuns(GrpcRunLooks):
    def __init__(self, server: Server, retry_for_s: float, limits: Limits) -> None:
        super().__init__(server)
        self.limits = limits
        self._retry_for_s = retry_for_s

    async def begin_run(
        self, new: NewRun, taker: Taker = NOBODY, writes: Sequence[RunWrite] = ()
    ) -> Begun:
        with representable():
            request = mapping_begin.begin_to_wire(new, taker, writes)
        answer = await self._written(self._rpc.BeginRun, request)
        return mapping_begin.begun_from_wire(answer, writes)

    async def resume_run(
        self, run_id: str, taker: Taker = NOBODY, *, expected_token: int = WHOEVER
    ) -> Run:
        with representable():
            request = mapping_runs.resume_to_wire(run_id, taker, expected_token)
        answer = await self._written(self._rpc.ResumeRun, request)
        return records.RUN.from_wire(answer.run)

    async def heartbeat_run(self, run_id: str, fencing_token: int, ttl_ms: int) -> Run:
        with representable():
            request = pb.HeartbeatRunRequest(
                run_id=run_id, fencing_token=fencing_token, lease_ttl_ms=ttl_ms
            )
        answer = await self._written(self._rpc.HeartbeatRun, request, most_times=HEARTBEATS)
        return records.RUN.from_wire(answer.run)

    async def release_run(
        self, run_id: str, fencing_token: int, *, waiting_on: str = "", seen_seq: int = 0
    ) -> Run:
        with representable():
            request = pb.ReleaseRunRequest(
                run_id=run_id,
                fencing_token=fencing_token,
                waiting_on=waiting_on,
                seen_seq=seen_seq,
            )
        answer = await self._written(self._rpc.ReleaseRun, request)
        return records.RUN.from_wire(answer.run)

    async def extend_run(
        self,
        run_id: str,
        fencing_token: int,
        writes: Sequence[RunWrite],
        trace: Trace = NO_TRACE,
    ) -> Extended:
        with representable():
            request = mapping_run_writes.extend_to_wire(run_id, fencing_token, writes, trace)
        times = 0 if repeatable(writes) else 1
        answer = await self._written(self._rpc.ExtendRun, request, most_times=times)
        return mapping_run_writes.extended_from_wire(answer, writes)

    async def change_run(self, run_id: str, write: RunWrite) -> Any:
        change = _CHANGES.get(type(write))
        if change is None:
            what = f"{type(write).__name__} has no call of its own: extend the run with it"
            raise InvalidArgument(what, field="write")
        with representable():
            request = change.ask.to_wire(write, run_id=run_id)
        return change.read(await self._written(getattr(self._rpc, change.rpc), request))

    async def fire_due_timers(self, limit: int = 0) -> list[Timer]:
        with representable():
            request = pb.ListDueTimersRequest(limit=limit, claim=True)
        answer = await self._written(self._rpc.ListDueTimers, request)
        return records.TIMER.all_from_wire(answer.timers)

    async def _written(
        self, rpc: grpc.aio.UnaryUnaryMultiCallable[Q, A], request: Q, *, most_times: int = 0
    ) -> A:
        async def send() -> A:
            return await self._server.call(rpc, request, writes=True)

        return await until_answered(send, self._retry_for_s, most_times=most_times)


def repeatable(writes: Sequence[RunWrite]) -> bool:
    """Whether the journal is the same if they come twice.

    Of a budget only the newest caps and the newest charge are known again, and that by its id.
    """
    charges = [write for write in writes if isinstance(write, ChargeBudget)]
    caps = [write for write in writes if isinstance(write, SetBudget)]
    return len(caps) <= 1 and len(charges) <= 1 and all(charge.charge_id for charge in charges)


class _Change(NamedTuple):
    rpc: str
    ask: Record[Any, Any]
    read: Callable[[Any], Any]


def _run_of(message: pb.CancelRunResponse) -> Run:
    return records.RUN.from_wire(message.run)


_effect = records.EFFECT.from_wire
_obligation = records.OBLIGATION.from_wire
_CHANGES: dict[type, _Change] = {
    SendSignal: _Change("SendSignal", records.SEND_SIGNAL, records.SIGNALLED.from_wire),
    CancelRun: _Change("CancelRun", records.CANCEL_RUN, _run_of),
    ClaimEffect: _Change(
        "ClaimEffectDispatch", records.CLAIM_EFFECT, mapping_effects.claimed_from_wire
    ),
    RecordDispatchAttempt: _Change("RecordDispatchAttempt", records.EFFECT_ATTEMPT, _effect),
    RecordExternalObservation: _Change("RecordExternalObservation", records.OBSERVATION, _effect),
    RenewClaim: _Change("RenewEffectClaim", records.RENEW_EFFECT, _effect),
    ReconcileEffect: _Change("ReconcileEffect", records.RECONCILE_EFFECT, _effect),
    ClaimObligation: _Change(
        "ClaimObligation", records.CLAIM_OBLIGATION, mapping_obligations.claimed_from_wire
    ),
    RenewObligationClaim: _Change("RenewObligationClaim", records.RENEW_OBLIGATION, _obligation),
    RecordObligationAttempt: _Change(
        "RecordObligationAttempt", records.OBLIGATION_ATTEMPT, _obligation
    ),
    ResolveObligation: _Change("ResolveObligation", records.RESOLVE_OBLIGATION, _obligation),
}
