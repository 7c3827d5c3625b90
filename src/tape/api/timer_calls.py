"""The calls on timers that are nobody's write: looking at them, and firing what is due."""

from collections.abc import Iterable, Iterator

from tape.api.auth import Role, needs
from tape.api.fitting import ANSWER_BYTES, fitting
from tape.api.handlers import Unary
from tape.bus import Operations
from tape.config import Limits
from tape.model.names import check_name
from tape.model.timer import Timer
from tape.runs.operations import RunOperations
from tape.wire import records
from tape.wire.v1 import tape_pb2 as pb


class TimerCalls:
    def __init__(self, operations: Operations, limits: Limits) -> None:
        self._operations = operations
        self._limits = limits

    def methods(self) -> dict[str, Unary]:
        return {
            "ListTimers": self.list_timers,
            "ListDueTimers": self.list_due_timers,
            "NextTimer": self.next_timer,
        }

    @needs(Role.READ)
    async def list_timers(self, request: pb.ListTimersRequest) -> pb.ListTimersResponse:
        """As many as fit; the rest is what the next call begins with."""
        after = check_name(request.after_timer_id, self._limits, field="after_timer_id")
        found = await self._runs.list_timers(request.run_id)
        later = sorted(timer for timer in found if timer.timer_id > after)
        timers, more = fitting(map(records.TIMER.to_wire, later))
        return pb.ListTimersResponse(timers=timers, more=more)

    @needs(Role.WRITE)
    async def list_due_timers(self, request: pb.ListDueTimersRequest) -> pb.ListDueTimersResponse:
        if request.claim:
            found = await self._runs.fire_due_timers(request.limit)
        else:
            found = await self._runs.list_due_timers(request.limit)
        return pb.ListDueTimersResponse(timers=_all_of(found))

    @needs(Role.READ)
    async def next_timer(self, _request: pb.NextTimerRequest) -> pb.NextTimerResponse:
        return pb.NextTimerResponse(in_ms=await self._runs.next_timer_in_ms())

    @property
    def _runs(self) -> RunOperations:
        return self._operations.runs


def _all_of(timers: Iterable[Timer]) -> Iterator[pb.TimerRecord]:
    """None is left out, for they have fired: only payloads are, where they are too much."""
    room = ANSWER_BYTES // 2
    for timer in timers:
        record = records.TIMER.to_wire(timer)
        size = record.ByteSize()
        if size > room:
            record.payload_json = ""
        else:
            room -= size
        yield record
