"""The connections of the HTTP door, guarded: a client that does not finish holds nobody else up.

The head of a request has `header_s` to arrive and its body `body_s`, counted as a whole, so a byte
now and then gains nothing. A reader that takes nothing for `write_s` is cut off. When there are
more connections than allowed, the one that has been without a whole request for longest goes, so
half requests only drive out each other. What is not one of those is counted by the application,
which knows a question of health from others.
"""

import asyncio
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tape.settings import DoorSettings
from tape.telemetry import metrics
from tape.telemetry.metrics import CutOff

log = logging.getLogger("tape.http")

SPARE = 100
"""Connections above the limit, for questions of health while all others have whole requests."""
QUIET_S = 5.0
"""Between log lines of one kind: whoever attacks does not also fill the disk."""

_WORDS = {
    CutOff.HEAD: "the head of the request did not arrive in time (tape.doors.header_s)",
    CutOff.BODY: "the body of the request did not arrive in time (tape.doors.body_s)",
    CutOff.UNREAD: "the client did not read the answer (tape.doors.write_s, unread_bytes)",
    CutOff.CROWDED: "too many are open, and this one was longest without a whole request "
    "(tape.doors.connections)",
}
_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class OpenConnections:
    """All connections of a door, and among them those without a whole request, oldest first."""

    def __init__(self, settings: DoorSettings) -> None:
        self.settings = settings
        self.all: set[_Guarded] = set()
        self.unfinished: dict[_Guarded, None] = {}
        self.paused: dict[_Guarded, None] = {}
        self._said_at: dict[CutOff, float] = {}
        self._unsaid: dict[CutOff, int] = {}

    def admit(self, new: "_Guarded") -> None:
        self.all.add(new)
        if len(self.all) <= self.settings.connections:
            return
        oldest = next((each for each in self.unfinished if each is not new), None)
        if oldest is not None:
            oldest.cut_off(CutOff.CROWDED)
        elif len(self.all) > self.settings.connections + SPARE:
            new.cut_off(CutOff.CROWDED)

    def bound_unread(self) -> None:
        """Cut off whoever has waited longest for a reader while too much is unread."""
        unread = sum(each.transport.get_write_buffer_size() for each in self.paused)
        for each in list(self.paused):
            if unread <= self.settings.unread_bytes:
                return
            unread -= each.transport.get_write_buffer_size()
            each.cut_off(CutOff.UNREAD)

    def forget(self, gone: "_Guarded") -> None:
        self.all.discard(gone)
        self.unfinished.pop(gone, None)
        self.paused.pop(gone, None)

    def note(self, why: CutOff, now: float) -> None:
        metrics.CUT_OFF.labels(why).inc()
        self._unsaid[why] = self._unsaid.get(why, 0) + 1
        if now - self._said_at.get(why, -QUIET_S) >= QUIET_S:
            self._said_at[why] = now
            count = self._unsaid.pop(why)
            log.warning("cut off %d HTTP connection%s: %s", count, "s" * (count > 1), _WORDS[why])


class _Guarded(H11Protocol):
    open_connections: OpenConnections

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._phase: object = None
        self._asked = False
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._follow_phase()
        self.open_connections.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections.forget(self)
        self._stop(self._deadline)
        self._stop(self._unread)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow_phase()
        if self._phase is h11.IDLE and self._deadline is None:
            self._await_head()  # of a further request, which has begun to come

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._follow_phase()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.open_connections.paused[self] = None
        self._watch_reader(self.transport.get_write_buffer_size())
        self.open_connections.bound_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.open_connections.paused.pop(self, None)
        self._stop(self._unread)

    def cut_off(self, why: CutOff) -> None:
        """Close without waiting for what is unsent; its request ends as if the client had left."""
        self.open_connections.note(why, self.loop.time())
        self.open_connections.forget(self)
        self.transport.abort()

    def _follow_phase(self) -> None:
        """Give each part of a request its time, once, when it begins."""
        phase = self.conn.their_state
        if phase is self._phase or self.transport.is_closing():
            return
        self._phase = phase
        self._asked = self._asked or phase is not h11.IDLE
        self._stop(self._deadline)
        self._deadline = None
        settings = self.open_connections.settings
        if phase is h11.IDLE:
            self.open_connections.unfinished[self] = None
            if not self._asked:  # else uvicorn closes it soon, unless something comes
                self._await_head()
        elif phase is h11.SEND_BODY:
            self.open_connections.unfinished.setdefault(self)
            self._deadline = self.loop.call_later(settings.body_s, self.cut_off, CutOff.BODY)
        else:
            self.open_connections.unfinished.pop(self, None)

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(
            self.open_connections.settings.header_s, self._head_is_late
        )

    def _head_is_late(self) -> None:
        if self.flow.write_paused:
            self.cut_off(CutOff.HEAD)
        elif not self.transport.is_closing():
            self.open_connections.note(CutOff.HEAD, self.loop.time())
            self.transport.write(_TOO_LATE)
            self.transport.close()

    def _watch_reader(self, unread: int) -> None:
        self._stop(self._unread)
        self._unread = self.loop.call_later(
            self.open_connections.settings.write_s, self._look_at_reader, unread
        )

    def _look_at_reader(self, unread: int) -> None:
        now = self.transport.get_write_buffer_size()
        if now < unread:
            self._watch_reader(now)
        else:
            self.cut_off(CutOff.UNREAD)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def guarded_protocol(open_connections: OpenConnections) -> type[asyncio.Protocol]:
    """The class of one door's connections."""
    return type("GuardedConnection", (_Guarded,), {"open_connections": open_connections})
