"""The beginning of a run, with the writes that come with it."""

from collections.abc import Sequence
from operator import attrgetter

from tape.model.lease import FIRST_TOKEN, Begun, NewRun, Taker
from tape.model.run import RunName
from tape.model.run_end import EndRun
from tape.model.run_write import Extended, RunWrite
from tape.wire import records
from tape.wire.mapping_run_writes import (
    fill_results,
    fill_writes,
    replies_from_wire,
    writes_from_wire,
)
from tape.wire.mapping_runs import taker_from_wire
from tape.wire.v1 import tape_pb2 as pb

_name_fields = attrgetter(*RunName._fields)


def begin_to_wire(new: NewRun, taker: Taker, writes: Sequence[RunWrite]) -> pb.BeginRunRequest:
    request = pb.BeginRunRequest(
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
    fill_writes(request.writes, writes)
    return request


def begin_from_wire(request: pb.BeginRunRequest) -> tuple[NewRun, Taker, list[RunWrite]]:
    new = NewRun(
        RunName._make(_name_fields(request)),
        request.input_json,
        request.pool,
        request.app_version,
        request.parent_run_id,
        request.parent_fencing_token,
        records.TRACE.from_wire(request),
    )
    writes = writes_from_wire(request.writes, new.name.run_id, FIRST_TOKEN)
    return new, taker_from_wire(request), [_of_new(new, write) for write in writes]


def begun_to_wire(begun: Begun, writes: Sequence[RunWrite]) -> pb.BeginRunResponse:
    run = records.RUN.to_wire(begun.run)
    response = pb.BeginRunResponse(
        run_id=run.run_id,
        resumed=begun.resumed,
        next_seq=run.seq_cursor + 1,
        status=run.status,
        fencing_token=begun.fencing_token,
        run=run,
    )
    if begun.extended is not None:
        response.first_seq = begun.extended.first_seq
        fill_results(response.results, writes, begun.extended.replies)
    return response


def begun_from_wire(message: pb.BeginRunResponse, writes: Sequence[RunWrite]) -> Begun:
    run = records.RUN.from_wire(message.run)
    begun = Begun(run, message.resumed, message.fencing_token)
    if not message.results:
        return begun
    replies = replies_from_wire(message.results, writes, run)
    return begun._replace(extended=Extended(run, message.first_seq, replies))


def _of_new(new: NewRun, write: RunWrite) -> RunWrite:
    """Whom an end is told to need not be looked up where the run is just begun."""
    if isinstance(write, EndRun) and write.parent_run_id is None:
        return write._replace(parent_run_id=new.parent_run_id)
    return write
