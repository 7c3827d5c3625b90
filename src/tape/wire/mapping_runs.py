"""Runs and their leases."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from tape.model.lease import WHOEVER, Begun, NewRun, Taker
from tape.model.run import Run, RunName
from tape.ports.runs import RecoverQuery, RunQuery
from tape.wire.mapping_values import trace_from_wire
from tape.wire.v1 import tape_pb2 as pb

_NAMES = tuple("waiting_on_gate" if name == "waiting_on" else name for name in Run._fields)
_run_fields = attrgetter(*_NAMES)
_name_fields = attrgetter(*RunName._fields)


def run_to_wire(run: Run) -> pb.RunState:
    fields: dict[str, Any] = dict(zip(_NAMES, run, strict=True))
    return pb.RunState(**fields)


def run_from_wire(message: pb.RunState) -> Run:
    return Run._make(_run_fields(message))


def runs_from_wire(messages: Iterable[pb.RunState]) -> list[Run]:
    return [run_from_wire(message) for message in messages]


def begin_to_wire(new: NewRun, taker: Taker) -> pb.BeginRunRequest:
    return pb.BeginRunRequest(
        **new.name._asdict(),
        lease_owner=taker.owner,
        lease_ttl_ms=taker.ttl_ms,
        pool=new.pool,
        reactor_name=taker.reactor,
        input_json=new.input_json,
        app_version=new.app_version,
        parent_run_id=new.parent_run_id,
        parent_fencing_token=new.parent_fencing_token,
        **new.trace._asdict(),
    )


def begin_from_wire(request: pb.BeginRunRequest) -> tuple[NewRun, Taker]:
    new = NewRun(
        RunName._make(_name_fields(request)),
        request.input_json,
        request.pool,
        request.app_version,
        request.parent_run_id,
        request.parent_fencing_token,
        trace_from_wire(request),
    )
    return new, taker_from_wire(request)


def begun_to_wire(begun: Begun) -> pb.BeginRunResponse:
    run = run_to_wire(begun.run)
    return pb.BeginRunResponse(
        run_id=run.run_id,
        resumed=begun.resumed,
        next_seq=run.seq_cursor + 1,
        status=run.status,
        fencing_token=begun.fencing_token,
        run=run,
    )


def begun_from_wire(message: pb.BeginRunResponse) -> Begun:
    return Begun(run_from_wire(message.run), message.resumed, message.fencing_token)


def resume_to_wire(run_id: str, taker: Taker, expected_token: int) -> pb.ResumeRunRequest:
    return pb.ResumeRunRequest(
        run_id=run_id,
        lease_owner=taker.owner,
        lease_ttl_ms=taker.ttl_ms,
        reactor_name=taker.reactor,
        expected_token=None if expected_token == WHOEVER else expected_token,
    )


def expected_from_wire(request: pb.ResumeRunRequest) -> int:
    return request.expected_token if request.HasField("expected_token") else WHOEVER


def taker_from_wire(request: pb.BeginRunRequest | pb.ResumeRunRequest) -> Taker:
    taker = Taker(request.lease_owner, ttl_ms=request.lease_ttl_ms)
    return taker._replace(reactor=request.reactor_name or taker.reactor)


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
