"""The writes of a run's driver, each by the name it has in `RunWrite` and `RunWriteResult`."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from tape.errors import InvalidArgument
from tape.model.budget import ChargeBudget, SetBudget
from tape.model.decision import RecordDecision
from tape.model.effect import BeginEffect, CompleteEffect
from tape.model.entry import Trace
from tape.model.gate import AwaitSignal
from tape.model.obligation import RegisterCompensation
from tape.model.run import Run
from tape.model.run_end import EndRun
from tape.model.run_write import Extended, RunWrite
from tape.model.timer import CancelTimer, SetTimer
from tape.wire import (
    mapping_decisions,
    mapping_effects,
    mapping_gates,
    records,
)
from tape.wire.v1 import tape_pb2 as pb


class _Named(NamedTuple):
    """A kind of write, its request both ways, and what it is answered with both ways."""

    name: str
    kind: type
    ask: Callable[[Any], Any]
    read: Callable[[Any], Any]
    answer: Callable[[Any], Any]
    reply: Callable[[Any], Any]


def _cancelled_to_wire(cancelled: bool) -> pb.CancelTimerResponse:
    return pb.CancelTimerResponse(cancelled=cancelled)


_KINDS = (
    _Named(
        "record_decision",
        RecordDecision,
        mapping_decisions.record_to_wire,
        mapping_decisions.record_from_wire,
        mapping_decisions.place_to_wire,
        mapping_decisions.place_from_wire,
    ),
    _Named(
        "begin_effect",
        BeginEffect,
        records.BEGIN_EFFECT.to_wire,
        records.BEGIN_EFFECT.from_wire,
        mapping_effects.begun_to_wire,
        mapping_effects.begun_from_wire,
    ),
    _Named(
        "complete_effect",
        CompleteEffect,
        records.COMPLETE_EFFECT.to_wire,
        mapping_effects.complete_from_wire,
        records.EFFECT.to_wire,
        records.EFFECT.from_wire,
    ),
    _Named(
        "register_compensation",
        RegisterCompensation,
        records.REGISTER_COMPENSATION.to_wire,
        records.REGISTER_COMPENSATION.from_wire,
        records.OBLIGATION.to_wire,
        records.OBLIGATION.from_wire,
    ),
    _Named(
        "await_signal",
        AwaitSignal,
        records.AWAIT_SIGNAL.to_wire,
        records.AWAIT_SIGNAL.from_wire,
        mapping_gates.awaited_to_wire,
        lambda message: message,  # only with its write it is a gate
    ),
    _Named(
        "set_timer",
        SetTimer,
        records.SET_TIMER.to_wire,
        records.SET_TIMER.from_wire,
        records.TIMER.to_wire,
        records.TIMER.from_wire,
    ),
    _Named(
        "cancel_timer",
        CancelTimer,
        records.CANCEL_TIMER.to_wire,
        records.CANCEL_TIMER.from_wire,
        _cancelled_to_wire,
        attrgetter("cancelled"),
    ),
    _Named(
        "set_budget",
        SetBudget,
        records.SET_BUDGET.to_wire,
        records.SET_BUDGET.from_wire,
        records.BUDGET.to_wire,
        records.BUDGET.from_wire,
    ),
    _Named(
        "charge_budget",
        ChargeBudget,
        records.CHARGE_BUDGET.to_wire,
        records.CHARGE_BUDGET.from_wire,
        records.BUDGET.to_wire,
        records.BUDGET.from_wire,
    ),
    _Named(
        "end_run",
        EndRun,
        records.END_RUN.to_wire,
        records.END_RUN.from_wire,
        lambda _run: pb.EndRunResponse(),
        lambda message: message,  # the run is in the answer around it
    ),
)
_BY_NAME = {named.name: named for named in _KINDS}
_BY_KIND = {named.kind: named for named in _KINDS}


def extend_to_wire(
    run_id: str, fencing_token: int, writes: Sequence[RunWrite], trace: Trace
) -> pb.ExtendRunRequest:
    request = pb.ExtendRunRequest(run_id=run_id, fencing_token=fencing_token, **trace._asdict())
    fill_writes(request.writes, writes)
    return request


def extend_from_wire(request: pb.ExtendRunRequest) -> list[RunWrite]:
    return writes_from_wire(request.writes, request.run_id, request.fencing_token)


def extended_to_wire(extended: Extended, writes: Sequence[RunWrite]) -> pb.ExtendRunResponse:
    response = pb.ExtendRunResponse(
        run=records.RUN.to_wire(extended.run), first_seq=extended.first_seq
    )
    fill_results(response.results, writes, extended.replies)
    return response


def extended_from_wire(message: pb.ExtendRunResponse, writes: Sequence[RunWrite]) -> Extended:
    run = records.RUN.from_wire(message.run)
    return Extended(run, message.first_seq, replies_from_wire(message.results, writes, run))


def fill_writes(into: Any, writes: Sequence[RunWrite]) -> None:
    for index, write in enumerate(writes):
        named = _BY_KIND.get(type(write))
        if named is None:
            what = f"{type(write).__name__} is no write of a run's driver"
            raise InvalidArgument(what, field=f"writes[{index}]")
        getattr(into.add(), named.name).CopyFrom(named.ask(write))


def writes_from_wire(
    messages: Sequence[pb.RunWrite], run_id: str, fencing_token: int
) -> list[RunWrite]:
    """One for another run, or with another token, is not one of these."""
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
        writes.append(_BY_NAME[name].read(inner))
    return writes


def fill_results(into: Any, writes: Sequence[RunWrite], replies: Sequence[Any]) -> None:
    for write, reply in zip(writes, replies, strict=True):
        result = into.add()
        if reply is not None:
            named = _BY_KIND[type(write)]
            getattr(result, named.name).CopyFrom(named.answer(reply))


def replies_from_wire(
    results: Sequence[pb.RunWriteResult], writes: Sequence[RunWrite], run: Run
) -> list[Any]:
    """The answer to each write; `run` is the one they made."""
    replies: list[Any] = []
    for write, result in zip(writes, results, strict=True):
        name = result.WhichOneof("result")
        reply = None if name is None else _BY_NAME[name].reply(getattr(result, name))
        if isinstance(reply, pb.AwaitSignalResponse) and isinstance(write, AwaitSignal):
            reply = mapping_gates.awaited_from_wire(reply, run.run_id, write)
        elif isinstance(reply, pb.EndRunResponse):
            reply = run
        replies.append(reply)
    return replies
