"""`ExtendRun` and `BeginRun`: several writes of a run's driver in one request."""

from collections.abc import Sequence
from typing import Any, Final

from tape.calls.checks import check_size, naming_write
from tape.calls.run_writes import DRIVER_WRITES
from tape.errors import InvalidArgument
from tape.model.budget import ChargeBudget, SetBudget
from tape.model.entry import NO_TRACE, Trace
from tape.model.gate import AwaitSignal, Gate
from tape.model.lease import FIRST_TOKEN, Begun, NewRun, Taker
from tape.model.run import Run, RunName
from tape.model.run_end import EndRun
from tape.model.run_write import Extended, RunWrite
from tape.model.trace_context import TraceTexts
from tape.runs.operations import NOBODY, RunOperations
from tape.settings import Limits
from tape.wire import records
from tape.wire.codec import Empty, Record, Spread, Unsent
from tape.wire.v1 import tape_pb2 as pb

_BY_FIELD: Final = {row.field: row for row in DRIVER_WRITES}
_BY_KIND: Final = {row.kind: row for row in DRIVER_WRITES}

TAKER_NAMES: Final = {"owner": "lease_owner", "reactor": "reactor_name", "ttl_ms": "lease_ttl_ms"}
_NEW_RUN: Final = Record(
    NewRun,
    pb.BeginRunRequest,
    held={"name": Spread(RunName), "trace": Spread(Trace), "context": Spread(TraceTexts)},
)
_TAKER: Final = Record(
    Taker,
    pb.BeginRunRequest,
    renamed=TAKER_NAMES,
    # The request's pool is that of the new run, not of whoever takes it.
    held={"reactor": Empty(NOBODY.reactor), "pool": Unsent("")},
)


def is_repeatable(
    run_id: str, fencing_token: int, writes: Sequence[RunWrite], trace: Trace = NO_TRACE
) -> bool:
    """Whether the journal is the same if the writes come twice.

    Of a budget the server knows only the newest caps and the newest charge again, and that by its
    id.
    """
    del run_id, fencing_token, trace
    charges = [write for write in writes if isinstance(write, ChargeBudget)]
    caps = [write for write in writes if isinstance(write, SetBudget)]
    return len(caps) <= 1 and len(charges) <= 1 and all(charge.charge_id for charge in charges)


async def answer_extend(
    runs: RunOperations, request: pb.ExtendRunRequest, limits: Limits
) -> pb.ExtendRunResponse:
    check_size(request, limits, field="writes")
    writes = writes_of_extend(request)
    with naming_write(writes, limits):
        extended = await runs.extend_run(
            request.run_id, request.fencing_token, writes, records.TRACE.from_wire(request)
        )
    return extended_to_wire(extended, writes)


async def answer_begin(
    runs: RunOperations, request: pb.BeginRunRequest, limits: Limits
) -> pb.BeginRunResponse:
    check_size(request, limits, field="writes")
    new, taker, writes = begin_from_wire(request)
    with naming_write(writes, limits):
        begun = await runs.begin_run(new, taker, writes)
    return begun_to_wire(begun, writes)


def extend_to_wire(
    run_id: str, fencing_token: int, writes: Sequence[RunWrite], trace: Trace = NO_TRACE
) -> pb.ExtendRunRequest:
    request = pb.ExtendRunRequest(run_id=run_id, fencing_token=fencing_token, **trace._asdict())
    _fill_writes(request.writes, writes)
    return request


def writes_of_extend(request: pb.ExtendRunRequest) -> list[RunWrite]:
    return _writes_from_wire(request.writes, request.run_id, request.fencing_token)


def extended_to_wire(extended: Extended, writes: Sequence[RunWrite]) -> pb.ExtendRunResponse:
    response = pb.ExtendRunResponse(
        run=records.RUN.to_wire(extended.run), first_seq=extended.first_seq
    )
    _fill_results(response.results, writes, extended.replies)
    return response


def extended_from_wire(message: pb.ExtendRunResponse, writes: Sequence[RunWrite]) -> Extended:
    run = records.RUN.from_wire(message.run)
    return Extended(run, message.first_seq, replies_from_wire(message.results, writes, run))


def begin_to_wire(
    new: NewRun, taker: Taker = NOBODY, writes: Sequence[RunWrite] = ()
) -> pb.BeginRunRequest:
    request = _NEW_RUN.to_wire(new, **_TAKER.fields(taker))
    _fill_writes(request.writes, writes)
    return request


def begin_from_wire(request: pb.BeginRunRequest) -> tuple[NewRun, Taker, list[RunWrite]]:
    new = _NEW_RUN.from_wire(request)
    writes = _writes_from_wire(request.writes, new.name.run_id, FIRST_TOKEN)
    return new, _TAKER.from_wire(request), [_of_new(new, write) for write in writes]


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
        _fill_results(response.results, writes, begun.extended.replies)
    return response


def begun_from_wire(message: pb.BeginRunResponse, writes: Sequence[RunWrite]) -> Begun:
    run = records.RUN.from_wire(message.run)
    begun = Begun(run, message.resumed, message.fencing_token)
    if not message.results:
        return begun
    replies = replies_from_wire(message.results, writes, run)
    return begun._replace(extended=Extended(run, message.first_seq, replies))


def _of_new(new: NewRun, write: RunWrite) -> RunWrite:
    """The parent that is told of an end need not be looked up where the run is just begun."""
    if isinstance(write, EndRun) and write.parent_run_id is None:
        return write._replace(parent_run_id=new.parent_run_id)
    return write


def _fill_writes(into: Any, writes: Sequence[RunWrite]) -> None:
    for index, write in enumerate(writes):
        row = _BY_KIND.get(type(write))
        if row is None:
            what = f"{type(write).__name__} is no write of a run's driver"
            raise InvalidArgument(what, field=f"writes[{index}]")
        getattr(into.add(), row.field).CopyFrom(row.write.to_wire(write))


def _writes_from_wire(
    messages: Sequence[pb.RunWrite], run_id: str, fencing_token: int
) -> list[RunWrite]:
    """Read the writes; refuse one for another run, or with another token, than the request's."""
    writes: list[RunWrite] = []
    for index, message in enumerate(messages):
        name, field = message.WhichOneof("write"), f"writes[{index}]"
        if name is None:
            raise InvalidArgument("names no write", field=field)
        inner = getattr(message, name)
        if inner.run_id not in ("", run_id):
            raise InvalidArgument("is another than the request's", field=f"{field}.run_id")
        if inner.fencing_token not in (0, fencing_token):
            raise InvalidArgument("is another than the request's", field=f"{field}.fencing_token")
        writes.append(_BY_FIELD[name].write.from_wire(inner))
    return writes


def _fill_results(into: Any, writes: Sequence[RunWrite], replies: Sequence[Any]) -> None:
    for write, reply in zip(writes, replies, strict=True):
        result = into.add()
        if reply is not None:
            row = _BY_KIND[type(write)]
            getattr(result, row.field).CopyFrom(row.reply.to_wire(reply))


def replies_from_wire(
    results: Sequence[pb.RunWriteResult], writes: Sequence[RunWrite], run: Run
) -> list[Any]:
    """The reply to each write; `run` is the one they made."""
    replies: list[Any] = []
    for write, result in zip(writes, results, strict=True):
        name = result.WhichOneof("result")
        reply = None if name is None else _BY_FIELD[name].reply.from_wire(getattr(result, name))
        if isinstance(reply, pb.AwaitSignalResponse) and isinstance(write, AwaitSignal):
            reply = _awaited_from_wire(reply, run.run_id, write)
        elif isinstance(reply, pb.EndRunResponse):
            reply = run
        replies.append(reply)
    return replies


def _awaited_from_wire(message: pb.AwaitSignalResponse, run_id: str, write: AwaitSignal) -> Gate:
    return Gate(
        run_id,
        write.gate_name,
        True,
        message.delivered,
        message.payload_json,
        message.resolution_json,
    )
