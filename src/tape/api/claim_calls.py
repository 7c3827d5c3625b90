"""The calls of those who dispatch, reconcile and compensate: each under a claim of its own."""

from tape.api.auth import Role, needs
from tape.api.handlers import Unary
from tape.api.run_input import ttl_ms
from tape.bus import Operations
from tape.config import Limits
from tape.errors import InvalidArgument, NotFound
from tape.model.obligation import ClaimObligation, ObligationKey, RenewObligationClaim
from tape.runs.operations import RunOperations
from tape.wire import mapping_effects, mapping_obligations, records
from tape.wire.v1 import tape_pb2 as pb


class ClaimCalls:
    def __init__(self, operations: Operations, limits: Limits) -> None:
        self._operations = operations
        self._limits = limits

    def methods(self) -> dict[str, Unary]:
        return {
            "ClaimEffectDispatch": self.claim_effect_dispatch,
            "RenewEffectClaim": self.renew_effect_claim,
            "RecordDispatchAttempt": self.record_dispatch_attempt,
            "RecordExternalObservation": self.record_external_observation,
            "ReconcileEffect": self.reconcile_effect,
            "ClaimObligation": self.claim_obligation,
            "RenewObligationClaim": self.renew_obligation_claim,
            "RecordObligationAttempt": self.record_obligation_attempt,
            "ResolveObligation": self.resolve_obligation,
        }

    @needs(Role.WRITE)
    async def claim_effect_dispatch(
        self, request: pb.ClaimEffectDispatchRequest
    ) -> pb.ClaimEffectDispatchResponse:
        ttl = ttl_ms(request.lease_ttl_ms, self._limits)
        write = records.CLAIM_EFFECT.from_wire(request)._replace(lease_ttl_ms=ttl)
        row = await self._runs.change_run(request.run_id, write)
        return mapping_effects.claimed_to_wire(row)

    @needs(Role.WRITE)
    async def renew_effect_claim(self, request: pb.RenewEffectClaimRequest) -> pb.EffectRecord:
        ttl = ttl_ms(request.lease_ttl_ms, self._limits)
        write = records.RENEW_EFFECT.from_wire(request)._replace(lease_ttl_ms=ttl)
        row = await self._runs.change_run(request.run_id, write)
        return records.EFFECT.to_wire(row)

    @needs(Role.WRITE)
    async def record_dispatch_attempt(
        self, request: pb.RecordDispatchAttemptRequest
    ) -> pb.EffectRecord:
        write = records.EFFECT_ATTEMPT.from_wire(request)
        row = await self._runs.change_run(request.run_id, write)
        return records.EFFECT.to_wire(row)

    @needs(Role.WRITE)
    async def record_external_observation(
        self, request: pb.RecordExternalObservationRequest
    ) -> pb.EffectRecord:
        write = mapping_effects.observation_from_wire(request)
        row = await self._runs.change_run(request.run_id, write)
        return records.EFFECT.to_wire(row)

    @needs(Role.WRITE)
    async def reconcile_effect(self, request: pb.ReconcileEffectRequest) -> pb.EffectRecord:
        write = records.RECONCILE_EFFECT.from_wire(request)
        row = await self._runs.change_run(request.run_id, write)
        return records.EFFECT.to_wire(row)

    @needs(Role.WRITE)
    async def claim_obligation(
        self, request: pb.ClaimObligationRequest
    ) -> pb.ClaimObligationResponse:
        ttl = ttl_ms(request.lease_ttl_ms, self._limits)
        write = ClaimObligation(await self._named(request), request.claimer, ttl)
        row = await self._runs.change_run(request.run_id, write)
        return mapping_obligations.claimed_to_wire(row)

    @needs(Role.WRITE)
    async def renew_obligation_claim(
        self, request: pb.RenewObligationClaimRequest
    ) -> pb.ObligationRecord:
        ttl = ttl_ms(request.lease_ttl_ms, self._limits)
        write = RenewObligationClaim(await self._named(request), request.fencing_token, ttl)
        row = await self._runs.change_run(request.run_id, write)
        return records.OBLIGATION.to_wire(row)

    @needs(Role.WRITE)
    async def record_obligation_attempt(
        self, request: pb.RecordObligationAttemptRequest
    ) -> pb.ObligationRecord:
        write = records.OBLIGATION_ATTEMPT.from_wire(request)
        write = write._replace(key=await self._named(request))
        row = await self._runs.change_run(request.run_id, write)
        return records.OBLIGATION.to_wire(row)

    @needs(Role.WRITE)
    async def resolve_obligation(self, request: pb.ResolveObligationRequest) -> pb.ObligationRecord:
        write = records.RESOLVE_OBLIGATION.from_wire(request)
        write = write._replace(key=await self._named(request))
        row = await self._runs.change_run(request.run_id, write)
        return records.OBLIGATION.to_wire(row)

    async def _named(self, request: mapping_obligations.Keyed) -> ObligationKey:
        """The obligation a request means, by its seq or by what it is for."""
        if request.effect_key or request.kind:
            if request.obligation_seq:
                raise InvalidArgument("excludes effect_key and kind", field="obligation_seq")
            return ObligationKey(request.effect_key, request.kind)
        for row in await self._runs.list_obligations(request.run_id):
            if row.seq == request.obligation_seq:
                return ObligationKey(row.effect_key, row.kind)
        raise NotFound(f"run {request.run_id!r} has no obligation {request.obligation_seq}")

    @property
    def _runs(self) -> RunOperations:
        return self._operations.runs
