"""Recording by stream: batches come in, answers go out in the same order.

Several batches are in flight, so that they share commits; how many, and how large together, is
bounded, so a producer that outruns the journal is held back by its own stream.
"""

import asyncio
from collections import deque
from typing import Any, NamedTuple

from tape.api.grpc.handlers import Receive, Send
from tape.bus import Operations
from tape.errors import Closed, InvalidArgument
from tape.model.event import Recorded
from tape.wire.mapping_events import events_from_wire, recorded_to_wire
from tape.wire.v1 import tape_pb2 as pb

IN_FLIGHT = 32


class _InFlight(NamedTuple):
    recording: asyncio.Task[list[Recorded]]
    size: int


class RecordStream:
    def __init__(self, operations: Operations, in_flight_bytes: int) -> None:
        self._operations = operations
        self._in_flight_bytes = in_flight_bytes
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Take nothing more; answer what was taken."""
        self._ending.set()

    async def record_event_stream(self, receive: Receive, send: Send) -> None:
        flight: deque[_InFlight] = deque()
        ending = asyncio.create_task(self._ending.wait())
        reading: asyncio.Task[Any] | None = None
        last = False  # there is nothing more to take
        try:
            while flight or not last:
                if not last and reading is None and self._has_room(flight):
                    reading = asyncio.create_task(receive())
                oldest = flight[0].recording if flight else None
                await _any(oldest, reading, None if last else ending)
                last = last or ending.done()
                if oldest is not None and oldest.done():
                    flight.popleft()
                    await send(recorded_to_wire(oldest.result()))
                elif reading is not None and reading.done():
                    started, reading = self._start(reading), None
                    last = started is None or last
                    if started is not None:
                        flight.append(started)
            if ending.done():
                raise Closed("the server is shutting down")
        finally:
            for task in (ending, reading, *(waiting.recording for waiting in flight)):
                if task is not None:
                    task.cancel()

    def _start(self, reading: asyncio.Task[Any]) -> _InFlight | None:
        """What was read is being recorded; None at the end. A request that is no message takes its
        place in the order, so that those before it are answered first."""
        request: pb.RecordEventsRequest | None
        try:
            request = reading.result()
        except InvalidArgument as fault:
            return _InFlight(asyncio.create_task(_refused(fault)), 0)
        if request is None:
            return None
        recording = asyncio.create_task(self._operations.record_events(events_from_wire(request)))
        return _InFlight(recording, request.ByteSize())

    def _has_room(self, flight: deque[_InFlight]) -> bool:
        size = sum(waiting.size for waiting in flight)
        return len(flight) < IN_FLIGHT and size < self._in_flight_bytes


async def _any(*tasks: asyncio.Task[Any] | None) -> None:
    waiting = [task for task in tasks if task is not None]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)


async def _refused(fault: InvalidArgument) -> list[Recorded]:
    raise fault
