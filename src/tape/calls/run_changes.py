"""Writes for a run that are not its driver's: from outside, or under a claim of an effect or an
obligation. The operation for all of them is `change_run`; each has a call of its own.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from google.protobuf.message import Message

from tape.calls.call import Answer, Fence, Repeat, Rpc
from tape.calls.checks import ttl_ms
from tape.calls.replies import HandMapped, Inside, ReplyCodec, set_message
from tape.calls.role import Role
from tape.calls.run_writes import of_effect
from tape.errors import InvalidArgument, NotFound
from tape.model.effect import Effect
from tape.model.effect_claim import (
    ClaimEffect,
    ReconcileEffect,
    RecordDispatchAttempt,
    RecordExternalObservation,
    RenewClaim,
)
from tape.model.gate import SendSignal, Signalled
from tape.model.names import check_name
from tape.model.obligation import (
    ClaimObligation,
    Obligation,
    ObligationKey,
    RecordObligationAttempt,
    RegisterCompensation,
    RenewObligationClaim,
    ResolveObligation,
)
from tape.model.run_end import CancelRun
from tape.ports.runs import RunQuery
from tape.runs.operations import RunOperations
from tape.settings import Limits
from tape.wire import records
from tape.wire.codec import Record
from tape.wire.v1 import tape_pb2 as pb

SESSION_PAGE = 100

Complete = Callable[[RunOperations, Any, Any, Limits], Awaitable[Any]]


class Change(Rpc[RunOperations]):
    """`read` is for a request that says more than `write` maps. `complete` looks up what the
    request leaves open.
    """

    repeat = Repeat.ALWAYS
    """The server recognises each of them if it comes again."""

    def __init__(
        self,
        name: str,
        kind: type,
        write: Record[Any, Any],
        reply: ReplyCodec[Any],
        *,
        fence: Fence = Fence.TOKEN,
        read: Callable[[Any], Any] | None = None,
        complete: Complete | None = None,
        answer: Answer[RunOperations] | None = None,
    ) -> None:
        super().__init__(name, Role.WRITE, fence=fence, answer=answer)
        self.is_answered = True
        set_message(reply, name, self.reply_message)
        self.kind = kind
        self.write = write
        self.reply = reply
        self._read = read or write.from_wire
        self._complete = complete

    async def answer(self, noun: RunOperations, request: Any, limits: Limits) -> Message:
        if self._by_hand is not None:
            return await self._by_hand(noun, request, limits)
        write = self._read(request)
        if self._complete is not None:
            write = await self._complete(noun, request, write, limits)
        return self.reply.to_wire(await noun.change_run(request.run_id, write))


async def _send_signal(
    runs: RunOperations, request: pb.SendSignalRequest, limits: Limits
) -> pb.SendSignalResponse:
    run_id = request.run_id or await _newest_open(runs, request, limits)
    write = records.SEND_SIGNAL.from_wire(request)
    return _signalled_to_wire(await runs.change_run(run_id, write))


async def _newest_open(runs: RunOperations, request: pb.SendSignalRequest, limits: Limits) -> str:
    """The run that a signal to a session is for."""
    for field in ("app_name", "user_id", "session_id"):
        check_name(getattr(request, field), limits, field=field, required=field == "app_name")
    session = (request.user_id, request.session_id)
    query = RunQuery(app_name=request.app_name, session=session, limit=SESSION_PAGE)
    while page := await runs.list_runs(query):
        for run in page:
            if run.is_open:
                return run.run_id
        query = query._replace(after=page[-1].run_id)
    raise NotFound(f"{request.app_name!r} has no open run in session {session!r}")


def _signalled_to_wire(signalled: Signalled) -> pb.SendSignalResponse:
    run = signalled.run
    return records.SIGNALLED.to_wire(signalled, run_id=run.run_id, run_status=run.status)


async def _with_ttl(_runs: RunOperations, request: Any, write: Any, limits: Limits) -> Any:
    return write._replace(lease_ttl_ms=ttl_ms(request.lease_ttl_ms, limits))


async def _with_key(runs: RunOperations, request: Any, write: Any, _limits: Limits) -> Any:
    """An obligation is named by its seq, or by its effect and kind."""
    if request.effect_key or request.kind:
        if request.obligation_seq:
            raise InvalidArgument("excludes effect_key and kind", field="obligation_seq")
        return write
    for row in await runs.list_obligations(request.run_id):
        if row.seq == request.obligation_seq:
            return write._replace(key=ObligationKey(row.effect_key, row.kind))
    raise NotFound(f"run {request.run_id!r} has no obligation {request.obligation_seq}")


async def _with_ttl_and_key(runs: RunOperations, request: Any, write: Any, limits: Limits) -> Any:
    return await _with_key(runs, request, await _with_ttl(runs, request, write, limits), limits)


def observation_from_wire(
    request: pb.RecordExternalObservationRequest,
) -> RecordExternalObservation:
    write = records.OBSERVATION.from_wire(request)
    key, on_duplicate = write.idempotency_key, write.on_duplicate
    if on_duplicate is None and request.compensate_on_duplicate_kind:
        on_duplicate = RegisterCompensation(
            key, request.compensate_on_duplicate_kind, request.response_json
        )
    return write._replace(
        compensation=of_effect(write.compensation, key), on_duplicate=of_effect(on_duplicate, key)
    )


def _claimed_effect_to_wire(row: Effect | None) -> pb.ClaimEffectDispatchResponse:
    if row is None:
        return pb.ClaimEffectDispatchResponse()
    return pb.ClaimEffectDispatchResponse(
        acquired=True, effect=records.EFFECT.to_wire(row), fencing_token=row.claim_token
    )


def _claimed_effect_from_wire(message: pb.ClaimEffectDispatchResponse) -> Effect | None:
    return records.EFFECT.from_wire(message.effect) if message.acquired else None


def _claimed_obligation_to_wire(row: Obligation | None) -> pb.ClaimObligationResponse:
    if row is None:
        return pb.ClaimObligationResponse()
    return pb.ClaimObligationResponse(
        acquired=True, obligation=records.OBLIGATION.to_wire(row), fencing_token=row.claim_token
    )


def _claimed_obligation_from_wire(message: pb.ClaimObligationResponse) -> Obligation | None:
    return records.OBLIGATION.from_wire(message.obligation) if message.acquired else None


CHANGES: Final = (
    Change(
        "SendSignal",
        SendSignal,
        records.SEND_SIGNAL,
        HandMapped(_signalled_to_wire, records.SIGNALLED.from_wire),
        fence=Fence.OUTSIDE,
        answer=_send_signal,
    ),
    Change(
        "CancelRun", CancelRun, records.CANCEL_RUN, Inside("run", records.RUN), fence=Fence.OUTSIDE
    ),
    Change(
        "ClaimEffectDispatch",
        ClaimEffect,
        records.CLAIM_EFFECT,
        HandMapped(_claimed_effect_to_wire, _claimed_effect_from_wire),
        fence=Fence.TAKING,
        complete=_with_ttl,
    ),
    Change(
        "RenewEffectClaim", RenewClaim, records.RENEW_EFFECT, records.EFFECT, complete=_with_ttl
    ),
    Change("RecordDispatchAttempt", RecordDispatchAttempt, records.EFFECT_ATTEMPT, records.EFFECT),
    Change(
        "RecordExternalObservation",
        RecordExternalObservation,
        records.OBSERVATION,
        records.EFFECT,
        read=observation_from_wire,
    ),
    Change("ReconcileEffect", ReconcileEffect, records.RECONCILE_EFFECT, records.EFFECT),
    Change(
        "ClaimObligation",
        ClaimObligation,
        records.CLAIM_OBLIGATION,
        HandMapped(_claimed_obligation_to_wire, _claimed_obligation_from_wire),
        fence=Fence.TAKING,
        complete=_with_ttl_and_key,
    ),
    Change(
        "RenewObligationClaim",
        RenewObligationClaim,
        records.RENEW_OBLIGATION,
        records.OBLIGATION,
        complete=_with_ttl_and_key,
    ),
    Change(
        "RecordObligationAttempt",
        RecordObligationAttempt,
        records.OBLIGATION_ATTEMPT,
        records.OBLIGATION,
        complete=_with_key,
    ),
    Change(
        "ResolveObligation",
        ResolveObligation,
        records.RESOLVE_OBLIGATION,
        records.OBLIGATION,
        complete=_with_key,
    ),
)
