"""Looking at runs over gRPC: the half of the operations that `GrpcRuns` has from here."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

import grpc

from tape.client.outliving import outliving
from tape.client.representable import representable
from tape.client.server import Server
from tape.errors import NotFound
from tape.model.effect import Effect
from tape.model.entry import Entry
from tape.model.obligation import Obligation
from tape.model.run import Run
from tape.model.timer import Timer
from tape.ports.runs import PendingQuery, RecoverQuery, RunQuery, WaitingRuns
from tape.runs.operations import PAGE, WAITING_MS, Admission
from tape.wire import (
    mapping_decisions,
    mapping_effects,
    mapping_runs,
    records,
)
from tape.wire.mapping_entries import entries_from_wire, run_entry_from_wire
from tape.wire.v1 import tape_pb2 as pb

Q = TypeVar("Q")
A = TypeVar("A")


class GrpcRunLooks:
    """An answer may hold fewer than there are, no more than a message does; the rest is asked for
    here where the caller could not know that there is one.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._rpc = server.rpc

    async def get_run(self, run_id: str) -> Run | None:
        with representable():
            request = pb.GetRunRequest(run_id=run_id)
        try:
            return records.RUN.from_wire(await self._asked(self._rpc.GetRun, request))
        except NotFound:
            return None

    async def list_runs(self, query: RunQuery) -> list[Run]:
        with representable():
            request = mapping_runs.query_to_wire(query)
        most = _page(query.limit)
        found: list[Run] = []
        while True:
            request.limit = most - len(found)
            answer = await self._asked(self._rpc.ListRuns, request)
            found += records.RUN.all_from_wire(answer.runs)
            if not answer.more:
                return found
            request.after = found[-1].run_id

    async def list_runs_to_recover(self, query: RecoverQuery) -> list[Run]:
        with representable():
            request = records.RECOVER_QUERY.to_wire(query)
        answer = await self._asked(self._rpc.ListRunsToRecover, request)
        return records.RUN.all_from_wire(answer.runs)

    async def list_waiting_runs(self, older_than_ms: int = WAITING_MS) -> list[WaitingRuns]:
        with representable():
            request = pb.ListWaitingRunsRequest(older_than_ms=older_than_ms)
        answer = await self._asked(self._rpc.ListWaitingRuns, request)
        return [records.WAITING_RUNS.from_wire(group) for group in answer.waiting]

    async def read_run(self, run_id: str, after_seq: int, limit: int = 0) -> list[Entry]:
        with representable():
            request = pb.ReadRunEntriesRequest(run_id=run_id, after_seq=after_seq, limit=limit)
        most = _page(limit)
        found: list[Entry] = []
        while True:
            request.limit = most - len(found)
            batch = await self._asked(self._rpc.ReadRunEntries, request)
            found += entries_from_wire(batch)
            if not batch.more:
                return found
            request.after_seq = batch.cursor

    async def follow_run(
        self, run_id: str, after_seq: int, max_bytes: int = 0
    ) -> AsyncGenerator[list[Entry], None]:
        """One by one; the server bounds what it holds."""
        del max_bytes

        def ask() -> pb.SubscribeRunRequest:
            return pb.SubscribeRunRequest(run_id=run_id, from_seq=after_seq)

        async with aclosing(outliving(self._server, self._rpc.SubscribeRun, ask)) as messages:
            async for message in messages:
                after_seq = message.seq
                yield [run_entry_from_wire(message, run_id)]

    async def get_decision(self, run_id: str, decision_index: int) -> Entry | None:
        with representable():
            request = pb.GetDecisionRequest(
                run_id=run_id, decision_index=decision_index, as_entry=True
            )
        answer = await self._asked(self._rpc.GetDecision, request)
        return mapping_decisions.found_from_wire(answer)

    async def get_effect(self, run_id: str, idempotency_key: str) -> Effect | None:
        with representable():
            request = pb.GetEffectRequest(run_id=run_id, idempotency_key=idempotency_key)
        return mapping_effects.found_from_wire(await self._asked(self._rpc.GetEffect, request))

    async def list_pending_effects(self, query: PendingQuery) -> list[Effect]:
        if not query.include_pending and not query.include_unknown:
            return []  # to the server that would be a query for what is unknown
        with representable():
            request = records.PENDING_QUERY.to_wire(query)
        answer = await self._asked(self._rpc.ListPendingEffects, request)
        return records.EFFECT.all_from_wire(answer.effects)

    async def list_effects_to_dispatch(
        self, connectors: Sequence[str] = (), limit: int = 0
    ) -> list[Effect]:
        with representable():
            request = pb.ListEffectsToDispatchRequest(connectors=connectors, limit=limit)
        answer = await self._asked(self._rpc.ListEffectsToDispatch, request)
        return records.EFFECT.all_from_wire(answer.effects)

    async def list_obligations(self, run_id: str) -> list[Obligation]:
        with representable():
            request = pb.ListObligationsRequest(run_id=run_id)
        found: list[Obligation] = []
        while True:
            answer = await self._asked(self._rpc.ListObligations, request)
            found += records.OBLIGATION.all_from_wire(answer.obligations)
            if not answer.more:
                return found
            request.before_seq = found[-1].seq

    async def list_unresolved_obligations(
        self, limit: int = 0, *, include_stuck: bool = False
    ) -> list[Obligation]:
        with representable():
            request = pb.ListUnresolvedObligationsRequest(
                limit=limit,
                include_pending=True,
                include_stuck=include_stuck,
                include_committed_expired=True,
            )
        answer = await self._asked(self._rpc.ListUnresolvedObligations, request)
        return records.OBLIGATION.all_from_wire(answer.obligations)

    async def admit_budget(self, run_id: str, usd: float, tokens: int) -> Admission:
        with representable():
            request = pb.AdmitBudgetRequest(run_id=run_id, usd_estimate=usd, token_estimate=tokens)
        answer = await self._asked(self._rpc.AdmitBudget, request)
        budget = records.BUDGET.from_wire(answer.budget)
        return Admission(answer.admitted, answer.reason, budget)

    async def list_timers(self, run_id: str) -> list[Timer]:
        with representable():
            request = pb.ListTimersRequest(run_id=run_id)
        found: list[Timer] = []
        while True:
            answer = await self._asked(self._rpc.ListTimers, request)
            found += records.TIMER.all_from_wire(answer.timers)
            if not answer.more:
                return found
            request.after_timer_id = found[-1].timer_id

    async def list_due_timers(self, limit: int = 0) -> list[Timer]:
        with representable():
            request = pb.ListDueTimersRequest(limit=limit)
        answer = await self._asked(self._rpc.ListDueTimers, request)
        return records.TIMER.all_from_wire(answer.timers)

    async def next_timer_in_ms(self) -> int | None:
        answer = await self._asked(self._rpc.NextTimer, pb.NextTimerRequest())
        return answer.in_ms if answer.HasField("in_ms") else None

    async def _asked(self, rpc: grpc.aio.UnaryUnaryMultiCallable[Q, A], request: Q) -> A:
        return await self._server.call(rpc, request)


def _page(limit: int) -> int:
    return min(limit, PAGE) if limit > 0 else PAGE
