"""Runs and their leases."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from tape.model.lease import WHOEVER, Taker
from tape.model.run import Run
from tape.ports.runs import RecoverQuery, RunQuery, WaitingRuns
from tape.wire.v1 import tape_pb2 as pb

_NAMES = tuple("waiting_on_gate" if name == "waiting_on" else name for name in Run._fields)
_run_fields = attrgetter(*_NAMES)
_waiting_fields = attrgetter(*WaitingRuns._fields)


def run_to_wire(run: Run) -> pb.RunState:
    fields: dict[str, Any] = dict(zip(_NAMES, run, strict=True))
    return pb.RunState(**fields)


def run_from_wire(message: pb.RunState) -> Run:
    return Run._make(_run_fields(message))


def runs_from_wire(messages: Iterable[pb.RunState]) -> list[Run]:
    return [run_from_wire(message) for message in messages]


def resume_to_wire(run_id: str, taker: Taker, expected_token: int) -> pb.ResumeRunRequest:
    return pb.ResumeRunRequest(
        run_id=run_id,
        lease_owner=taker.owner,
        lease_ttl_ms=taker.ttl_ms,
        reactor_name=taker.reactor,
        pool=taker.pool,
        expected_token=None if expected_token == WHOEVER else expected_token,
    )


def expected_from_wire(request: pb.ResumeRunRequest) -> int:
    return request.expected_token if request.HasField("expected_token") else WHOEVER


def taker_from_wire(request: pb.BeginRunRequest | pb.ResumeRunRequest) -> Taker:
    taker = Taker(request.lease_owner, ttl_ms=request.lease_ttl_ms)
    # What BeginRun names is the pool of the new run, not of who takes it.
    pool = request.pool if isinstance(request, pb.ResumeRunRequest) else ""
    return taker._replace(reactor=request.reactor_name or taker.reactor, pool=pool)


def query_to_wire(query: RunQuery) -> pb.ListRunsRequest:
    user_id, session_id = query.session or (None, None)
    request = pb.ListRunsRequest(
        app_name=query.app_name,
        pool=query.pool,
        limit=query.limit,
        after=query.after,
        parent_run_id=query.parent_run_id,
        user_id=user_id,
        session_id=session_id,
    )
    # Stubs know enums by their own type, the model by their number.
    request.status = query.status  # type: ignore[assignment]
    return request


def query_from_wire(request: pb.ListRunsRequest) -> RunQuery:
    of_session = request.HasField("user_id") or request.HasField("session_id")
    return RunQuery(
        request.status,
        request.app_name,
        request.pool,
        request.limit,
        request.after,
        request.parent_run_id,
        (request.user_id, request.session_id) if of_session else None,
    )


def recover_to_wire(query: RecoverQuery) -> pb.ListRunsToRecoverRequest:
    return pb.ListRunsToRecoverRequest(
        limit=query.limit, pool=query.pool, app_names=query.app_names
    )


def recover_from_wire(request: pb.ListRunsToRecoverRequest) -> RecoverQuery:
    return RecoverQuery(request.pool, tuple(request.app_names), request.limit)


def waiting_to_wire(group: WaitingRuns) -> pb.WaitingRuns:
    return pb.WaitingRuns(**group._asdict())


def waiting_from_wire(message: pb.WaitingRuns) -> WaitingRuns:
    return WaitingRuns._make(_waiting_fields(message))
