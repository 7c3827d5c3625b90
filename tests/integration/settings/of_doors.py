"""What clients may take of a server's doors."""

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import h11

from tape.api.grpc.calls_in_hand import CallsInHand
from tape.api.grpc.rpcs import Rpcs
from tape.api.http.connections import OpenConnections, _Guarded
from tape.api.http.door import Door
from tape.api.stream_slots import StreamSlots
from tape.errors import Overloaded
from tape.settings import Settings
from tape.wire.channel import server_options
from tests.integration.settings.demonstrating import Demonstration, Demonstrations


class _Connection:
    """One that has sent half a request, or does not read what was answered."""

    def __init__(self, open_connections: OpenConnections, state: object = h11.IDLE) -> None:
        self.open_connections = open_connections
        self.conn = SimpleNamespace(their_state=state)
        self.loop = self
        self.transport = self
        self.timers: list[float] = []
        self.is_cut_off = False
        self._phase = self._deadline = self._unread = None
        self._asked = False

    def call_later(self, seconds: float, *_call: Any) -> None:
        self.timers.append(seconds)

    def cut_off(self, _why: object) -> None:
        self.is_cut_off = True
        self.open_connections.forget(cast("Any", self))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 1_000

    def _stop(self, _timer: object) -> None:
        """There is none."""

    def _head_is_late(self) -> None:
        """Nobody waits so long."""

    def _look_at_reader(self, _unread: int) -> None:
        """Nor so long."""

    def _await_head(self) -> None:
        _Guarded._await_head(cast("Any", self))


async def _waits(settings: Settings, _folder: Path) -> list[list[float]]:
    """For a head, for a body, and for a reader."""
    open_connections = OpenConnections(settings.doors)
    head, body, reader = (
        _Connection(open_connections),
        _Connection(open_connections, h11.SEND_BODY),
        _Connection(open_connections),
    )
    for one in (head, body):
        _Guarded._follow_phase(cast("Any", one))
    _Guarded._watch_reader(cast("Any", reader), 1_000)
    return [one.timers for one in (head, body, reader)]


async def _crowds(settings: Settings, _folder: Path) -> list[bool]:
    """Which of five half-sent requests are cut off."""
    open_connections = OpenConnections(settings.doors)
    five = [_Connection(open_connections) for _ in range(5)]
    for one in cast("Any", five):
        open_connections.unfinished[one] = None
        open_connections.admit(one)
    return [one.is_cut_off for one in five]


async def _unread(settings: Settings, _folder: Path) -> list[bool]:
    """Which of five readers who do not read are cut off."""
    open_connections = OpenConnections(settings.doors)
    five = [_Connection(open_connections) for _ in range(5)]
    open_connections.paused = dict.fromkeys(cast("Any", five))
    open_connections.bound_unread()
    return [one.is_cut_off for one in five]


def _door(settings: Settings) -> Door:
    nobody = cast("Any", None)
    return Door(nobody, nobody, nobody, settings=settings.doors)


async def _at_once(settings: Settings, _folder: Path) -> int:
    door = _door(settings)
    return _held(door.room_for_request)


async def _bodies(settings: Settings, _folder: Path) -> int:
    door, taken = _door(settings), 0
    with door.room_for_body() as take:
        try:
            for _ in range(10):
                take(1_000)
                taken += 1
        except Overloaded:
            return taken
    return taken


async def _calls(settings: Settings, _folder: Path) -> int:
    """How many of ten calls one client has at once."""
    in_hand, number = CallsInHand(settings.doors), 0
    try:
        while number < 10:
            in_hand.enter("me")
            number += 1
    except Overloaded:
        return number
    return number


async def _streams(settings: Settings, _folder: Path) -> list[int]:
    """How many of ten streams one client has, and how many there are of ten clients."""
    one, many = StreamSlots(settings.doors), StreamSlots(settings.doors)
    clients = iter(range(10))
    return [_held(lambda: one.take("me")), _held(lambda: many.take(str(next(clients))))]


def _held(take: Any) -> int:
    """How many of ten are to be had at once."""
    number = 0
    with ExitStack() as held:
        try:
            while number < 10:
                held.enter_context(take())
                number += 1
        except Overloaded:
            return number
    return number


async def _options(settings: Settings, _folder: Path) -> Any:
    return server_options(settings.doors)


async def _stream_memory(settings: Settings, _folder: Path) -> int:
    return Rpcs(
        cast("Any", None), settings.limits, StreamSlots(settings.doors)
    ).streams._stream_bytes


OF_DOORS: Demonstrations = {
    "doors.header_s": Demonstration((1, 2), _waits),
    "doors.body_s": Demonstration((1, 2), _waits),
    "doors.write_s": Demonstration((1, 2), _waits),
    "doors.idle_s": Demonstration((1, 2), _options),
    "doors.connections": Demonstration((3, 4), _crowds),
    "doors.unread_bytes": Demonstration((1_500, 15_000), _unread),
    "doors.requests": Demonstration((3, 4), _at_once),
    "doors.body_bytes": Demonstration((3_000, 4_000), _bodies),
    "doors.calls_per_client": Demonstration((3, 4), _calls),
    "doors.streams": Demonstration((3, 4), _streams),
    "doors.streams_per_client": Demonstration((3, 4), _streams),
    "doors.stream_bytes": Demonstration((3_000, 4_000), _stream_memory),
}
