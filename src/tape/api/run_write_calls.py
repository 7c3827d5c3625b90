"""The writes of a run's driver, one by one or together. Each is fenced by the run's lease."""

from typing import Any, Protocol

from tape.api.auth import Role, needs
from tape.api.handlers import Unary
from tape.api.run_input import check_size, naming_write
from tape.bus import Operations
from tape.config import Limits
from tape.model.decision import DecisionPlace
from tape.model.run_write import Extended, RunWrite
from tape.wire import (
    mapping_decisions,
    mapping_effects,
    mapping_gates,
    mapping_run_writes,
    records,
)
from tape.wire.v1 import tape_pb2 as pb


class ByDriver(Protocol):
    """A request of a run's driver."""

    @property
    def run_id(self) -> str: ...
    @property
    def fencing_token(self) -> int: ...


class RunWriteCalls:
    def __init__(self, operations: Operations, limits: Limits) -> None:
        self._operations = operations
        self._limits = limits

    def methods(self) -> dict[str, Unary]:
        return {
            "ExtendRun": self.extend_run,
            "RecordDecision": self.record_decision,
            "BeginEffect": self.begin_effect,
            "CompleteEffect": self.complete_effect,
            "RegisterCompensation": self.register_compensation,
            "AwaitSignal": self.await_signal,
            "SetTimer": self.set_timer,
            "CancelTimer": self.cancel_timer,
            "SetBudget": self.set_budget,
            "ChargeBudget": self.charge_budget,
            "EndRun": self.end_run,
        }

    @needs(Role.WRITE)
    async def extend_run(self, request: pb.ExtendRunRequest) -> pb.ExtendRunResponse:
        check_size(request, self._limits, field="writes")
        writes = mapping_run_writes.extend_from_wire(request)
        with naming_write(writes, self._limits):
            extended = await self._extend(request, *writes)
        return mapping_run_writes.extended_to_wire(extended, writes)

    @needs(Role.WRITE)
    async def record_decision(self, request: pb.RecordDecisionRequest) -> pb.DecisionRecord:
        write = mapping_decisions.record_from_wire(request)
        extended = await self._extend(request, write)
        place: DecisionPlace = extended.replies[0]
        if place.seq >= extended.first_seq:
            return mapping_decisions.recorded_to_wire(place, write)
        entry = await self._operations.runs.get_decision(place.run_id, place.decision_index)
        if entry is None:  # pruned since
            return mapping_decisions.place_to_wire(place)
        return mapping_decisions.decision_to_wire(entry)

    @needs(Role.WRITE)
    async def begin_effect(self, request: pb.BeginEffectRequest) -> pb.BeginEffectResponse:
        write = records.BEGIN_EFFECT.from_wire(request)
        return mapping_effects.begun_to_wire(await self._reply(request, write))

    @needs(Role.WRITE)
    async def complete_effect(self, request: pb.CompleteEffectRequest) -> pb.EffectRecord:
        write = mapping_effects.complete_from_wire(request)
        return records.EFFECT.to_wire(await self._reply(request, write))

    @needs(Role.WRITE)
    async def register_compensation(
        self, request: pb.RegisterCompensationRequest
    ) -> pb.ObligationRecord:
        write = records.REGISTER_COMPENSATION.from_wire(request)
        return records.OBLIGATION.to_wire(await self._reply(request, write))

    @needs(Role.WRITE)
    async def await_signal(self, request: pb.AwaitSignalRequest) -> pb.AwaitSignalResponse:
        write = records.AWAIT_SIGNAL.from_wire(request)
        return mapping_gates.awaited_to_wire(await self._reply(request, write))

    @needs(Role.WRITE)
    async def set_timer(self, request: pb.SetTimerRequest) -> pb.TimerRecord:
        write = records.SET_TIMER.from_wire(request)
        return records.TIMER.to_wire(await self._reply(request, write))

    @needs(Role.WRITE)
    async def cancel_timer(self, request: pb.CancelTimerRequest) -> pb.CancelTimerResponse:
        write = records.CANCEL_TIMER.from_wire(request)
        return pb.CancelTimerResponse(cancelled=await self._reply(request, write))

    @needs(Role.WRITE)
    async def set_budget(self, request: pb.SetBudgetRequest) -> pb.BudgetState:
        write = records.SET_BUDGET.from_wire(request)
        return records.BUDGET.to_wire(await self._reply(request, write))

    @needs(Role.WRITE)
    async def charge_budget(self, request: pb.ChargeBudgetRequest) -> pb.BudgetState:
        write = records.CHARGE_BUDGET.from_wire(request)
        return records.BUDGET.to_wire(await self._reply(request, write))

    @needs(Role.WRITE)
    async def end_run(self, request: pb.EndRunRequest) -> pb.EndRunResponse:
        extended = await self._extend(request, records.END_RUN.from_wire(request))
        return pb.EndRunResponse(run=records.RUN.to_wire(extended.run))

    async def _reply(self, request: ByDriver, write: RunWrite) -> Any:
        return (await self._extend(request, write)).replies[0]

    async def _extend(self, request: ByDriver, *writes: RunWrite) -> Extended:
        return await self._operations.runs.extend_run(
            request.run_id, request.fencing_token, writes, records.TRACE.from_wire(request)
        )
