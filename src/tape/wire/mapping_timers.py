"""Timers."""

from collections.abc import Iterable
from operator import attrgetter

from tape.model.timer import CancelTimer, SetTimer, Timer
from tape.wire.v1 import tape_pb2 as pb

_timer_fields = attrgetter(*Timer._fields)
_set_fields = attrgetter(*SetTimer._fields)


def timer_to_wire(timer: Timer) -> pb.TimerRecord:
    return pb.TimerRecord(**timer._asdict())


def timer_from_wire(message: pb.TimerRecord) -> Timer:
    return Timer._make(_timer_fields(message))


def timers_from_wire(messages: Iterable[pb.TimerRecord]) -> list[Timer]:
    return [timer_from_wire(message) for message in messages]


def set_to_wire(write: SetTimer) -> pb.SetTimerRequest:
    return pb.SetTimerRequest(**write._asdict())


def set_from_wire(request: pb.SetTimerRequest) -> SetTimer:
    return SetTimer._make(_set_fields(request))


def cancel_to_wire(write: CancelTimer) -> pb.CancelTimerRequest:
    return pb.CancelTimerRequest(timer_id=write.timer_id)


def cancel_from_wire(request: pb.CancelTimerRequest) -> CancelTimer:
    return CancelTimer(request.timer_id)


def next_to_wire(in_ms: int | None) -> pb.NextTimerResponse:
    return pb.NextTimerResponse(in_ms=in_ms)


def next_from_wire(message: pb.NextTimerResponse) -> int | None:
    return message.in_ms if message.HasField("in_ms") else None
