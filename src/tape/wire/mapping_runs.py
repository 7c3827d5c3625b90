"""Runs and their leases, where more than names is mapped."""

from tape.model.lease import WHOEVER, Taker
from tape.ports.runs import RunQuery
from tape.wire.v1 import tape_pb2 as pb


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
