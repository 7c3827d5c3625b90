"""The writes of a run's driver: each a call of its own, and all of them parts of `ExtendRun` and
`BeginRun`, under the name of the call.
"""

import re
from typing import Any, Final

from google.protobuf.message import Message

from tape.calls.call import Answer, Fence, Rpc
from tape.calls.replies import Field, HandMapped, ReplyCodec, set_message
from tape.calls.role import Role
from tape.model.budget import ChargeBudget, SetBudget
from tape.model.decision import DecisionPlace, RecordDecision
from tape.model.effect import BeginEffect, CompleteEffect, Effect
from tape.model.gate import AwaitSignal, Gate
from tape.model.obligation import RegisterCompensation
from tape.model.run_end import EndRun
from tape.model.run_write import Extended, RunWrite
from tape.model.timer import CancelTimer, SetTimer
from tape.runs.operations import RunOperations
from tape.settings import Limits
from tape.wire import mapping_decisions, records
from tape.wire.v1 import tape_pb2 as pb


class DriverWrite(Rpc[RunOperations]):
    """A write that is fenced by the run's lease. A client sends it within `ExtendRun`."""

    def __init__(
        self,
        name: str,
        kind: type,
        write: ReplyCodec[Any],
        reply: ReplyCodec[Any],
        *,
        answer: Answer[RunOperations] | None = None,
    ) -> None:
        super().__init__(name, Role.WRITE, fence=Fence.TOKEN, answer=answer)
        self.is_answered = True
        set_message(reply, name, self.reply_message)
        self.kind = kind
        self.write = write
        self.reply = reply
        self.field = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()

    async def answer(self, noun: RunOperations, request: Any, limits: Limits) -> Message:
        if self._by_hand is not None:
            return await self._by_hand(noun, request, limits)
        extended = await _extend(noun, request, self.write.from_wire(request))
        return self.reply.to_wire(extended.replies[0])


async def _extend(runs: RunOperations, request: Any, *writes: RunWrite) -> Extended:
    trace = records.TRACE.from_wire(request)
    return await runs.extend_run(request.run_id, request.fencing_token, writes, trace)


async def _record_decision(
    runs: RunOperations, request: pb.RecordDecisionRequest, _limits: Limits
) -> pb.DecisionRecord:
    """A decision that was recorded before is answered as the journal has it."""
    write = records.RECORD_DECISION.from_wire(request)
    extended = await _extend(runs, request, write)
    place: DecisionPlace = extended.replies[0]
    if place.seq >= extended.first_seq:
        return mapping_decisions.recorded_to_wire(place, write)
    entry = await runs.get_decision(place.run_id, place.decision_index)
    if entry is None:  # pruned since
        return records.DECISION_PLACE.to_wire(place)
    return mapping_decisions.decision_to_wire(entry)


async def _end_run(
    runs: RunOperations, request: pb.EndRunRequest, _limits: Limits
) -> pb.EndRunResponse:
    extended = await _extend(runs, request, records.END_RUN.from_wire(request))
    return pb.EndRunResponse(run=records.RUN.to_wire(extended.run))


def begun_effect_to_wire(row: Effect) -> pb.BeginEffectResponse:
    """What an effect came to is beside its record, not in it once more."""
    record = records.EFFECT.to_wire(row._replace(response_json="", error_json=""))
    return pb.BeginEffectResponse(
        seq=row.seq,
        idempotency_key=row.idempotency_key,
        status=record.status,
        response_json=row.response_json,
        error_json=row.error_json,
        effect=record,
    )


def begun_effect_from_wire(message: pb.BeginEffectResponse) -> Effect:
    return records.EFFECT.from_wire(message.effect)._replace(
        response_json=message.response_json, error_json=message.error_json
    )


def complete_from_wire(request: pb.CompleteEffectRequest) -> CompleteEffect:
    write = records.COMPLETE_EFFECT.from_wire(request)
    return write._replace(compensation=of_effect(write.compensation, write.idempotency_key))


def of_effect(write: RegisterCompensation | None, key: str) -> RegisterCompensation | None:
    """A compensation that names no effect is for the one that it comes with."""
    return write if write is None or write.effect_key else write._replace(effect_key=key)


def _awaited_to_wire(gate: Gate) -> pb.AwaitSignalResponse:
    return pb.AwaitSignalResponse(
        delivered=gate.released,
        resolution_json=gate.resolution_json,
        payload_json=gate.payload_json,
    )


def _as_it_is(message: Any) -> Any:
    return message


DRIVER_WRITES: Final = (
    DriverWrite(
        "RecordDecision",
        RecordDecision,
        records.RECORD_DECISION,
        records.DECISION_PLACE,
        answer=_record_decision,
    ),
    DriverWrite(
        "BeginEffect",
        BeginEffect,
        records.BEGIN_EFFECT,
        HandMapped(begun_effect_to_wire, begun_effect_from_wire),
    ),
    DriverWrite(
        "CompleteEffect",
        CompleteEffect,
        HandMapped(records.COMPLETE_EFFECT.to_wire, complete_from_wire),
        records.EFFECT,
    ),
    DriverWrite(
        "RegisterCompensation",
        RegisterCompensation,
        records.REGISTER_COMPENSATION,
        records.OBLIGATION,
    ),
    DriverWrite(
        "AwaitSignal",
        AwaitSignal,
        records.AWAIT_SIGNAL,
        # Only with its write it is a gate: see `replies_from_wire`.
        HandMapped(_awaited_to_wire, _as_it_is),
    ),
    DriverWrite("SetTimer", SetTimer, records.SET_TIMER, records.TIMER),
    DriverWrite("CancelTimer", CancelTimer, records.CANCEL_TIMER, Field("cancelled", bool)),
    DriverWrite("SetBudget", SetBudget, records.SET_BUDGET, records.BUDGET),
    DriverWrite("ChargeBudget", ChargeBudget, records.CHARGE_BUDGET, records.BUDGET),
    DriverWrite(
        "EndRun",
        EndRun,
        records.END_RUN,
        # Within others, the run is in the reply around it.
        HandMapped(lambda _run: pb.EndRunResponse(), _as_it_is),
        answer=_end_run,
    ),
)
