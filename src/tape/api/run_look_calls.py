"""What a run has written down, for whoever looks."""

from tape.api.auth import Role, needs
from tape.api.fitting import fitting
from tape.api.handlers import Unary
from tape.api.run_input import INDEXES, SEQUENCE, TIMES, check_member, check_names, check_number
from tape.bus import Operations
from tape.config import Limits
from tape.model.names import check_name
from tape.model.obligation import ObligationStatus
from tape.runs.operations import PAGE, RunOperations
from tape.wire import mapping_decisions, mapping_effects, records
from tape.wire.v1 import tape_pb2 as pb

DUE = {ObligationStatus.PENDING, ObligationStatus.COMMITTED}


class RunLookCalls:
    def __init__(self, operations: Operations, limits: Limits) -> None:
        self._operations = operations
        self._limits = limits

    def methods(self) -> dict[str, Unary]:
        return {
            "GetDecision": self.get_decision,
            "GetEffect": self.get_effect,
            "ListPendingEffects": self.list_pending_effects,
            "ListEffectsToDispatch": self.list_effects_to_dispatch,
            "ListObligations": self.list_obligations,
            "ListUnresolvedObligations": self.list_unresolved_obligations,
            "AdmitBudget": self.admit_budget,
        }

    @needs(Role.READ)
    async def get_decision(self, request: pb.GetDecisionRequest) -> pb.GetDecisionResponse:
        index = check_number(request.decision_index, INDEXES, field="decision_index")
        entry = await self._runs.get_decision(request.run_id, index)
        return mapping_decisions.found_to_wire(entry, as_entry=request.as_entry)

    @needs(Role.READ)
    async def get_effect(self, request: pb.GetEffectRequest) -> pb.GetEffectResponse:
        row = await self._runs.get_effect(request.run_id, request.idempotency_key)
        return mapping_effects.found_to_wire(row)

    @needs(Role.READ)
    async def list_pending_effects(
        self, request: pb.ListPendingEffectsRequest
    ) -> pb.ListPendingEffectsResponse:
        check_number(request.older_than_ms, TIMES, field="older_than_ms")
        check_names(request.connectors, self._limits, field="connectors")
        query = mapping_effects.pending_from_wire(request)
        found = await self._runs.list_pending_effects(query)
        effects, _ = fitting(map(records.EFFECT.to_wire, found))
        return pb.ListPendingEffectsResponse(effects=effects)

    @needs(Role.READ)
    async def list_effects_to_dispatch(
        self, request: pb.ListEffectsToDispatchRequest
    ) -> pb.ListEffectsToDispatchResponse:
        check_name(request.connector, self._limits, field="connector")
        check_names(request.connectors, self._limits, field="connectors")
        connectors = mapping_effects.connectors_from_wire(request)
        found = await self._runs.list_effects_to_dispatch(connectors, request.limit)
        effects, _ = fitting(map(records.EFFECT.to_wire, found))
        return pb.ListEffectsToDispatchResponse(effects=effects)

    @needs(Role.READ)
    async def list_obligations(
        self, request: pb.ListObligationsRequest
    ) -> pb.ListObligationsResponse:
        """As many as fit; the rest is what the next call begins with."""
        status = check_member(ObligationStatus, request.status_filter, field="status_filter")
        before = check_number(request.before_seq, SEQUENCE, field="before_seq")
        found = [
            row
            for row in await self._runs.list_obligations(request.run_id)
            if (not before or row.seq < before)
            and status in (0, row.status)
            and not (request.only_unresolved and row.status == ObligationStatus.COMPENSATED)
        ]
        obligations, more = fitting(map(records.OBLIGATION.to_wire, found))
        return pb.ListObligationsResponse(obligations=obligations, more=more)

    @needs(Role.READ)
    async def list_unresolved_obligations(
        self, request: pb.ListUnresolvedObligationsRequest
    ) -> pb.ListUnresolvedObligationsResponse:
        wanted = _wanted(request)
        most = request.limit if request.limit > 0 else PAGE
        some_left_out = not wanted >= DUE
        found = await self._runs.list_unresolved_obligations(
            PAGE if some_left_out else most, include_stuck=ObligationStatus.STUCK in wanted
        )
        chosen = [row for row in found if row.status in wanted]
        obligations, _ = fitting(map(records.OBLIGATION.to_wire, chosen[:most]))
        return pb.ListUnresolvedObligationsResponse(obligations=obligations)

    @needs(Role.READ)
    async def admit_budget(self, request: pb.AdmitBudgetRequest) -> pb.AdmitBudgetResponse:
        admission = await self._runs.admit_budget(
            request.run_id, request.usd_estimate, request.token_estimate
        )
        return pb.AdmitBudgetResponse(
            admitted=admission.admitted,
            reason=admission.reason,
            budget=records.BUDGET.to_wire(admission.budget),
        )

    @property
    def _runs(self) -> RunOperations:
        return self._operations.runs


def _wanted(request: pb.ListUnresolvedObligationsRequest) -> set[ObligationStatus]:
    named = {
        ObligationStatus.PENDING: request.include_pending,
        ObligationStatus.STUCK: request.include_stuck,
        ObligationStatus.COMMITTED: request.include_committed_expired,
    }
    return {status for status, included in named.items() if included} or DUE
