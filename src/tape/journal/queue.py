"""The queue in front of the writer: bounded in moves and bytes, first come first served.

Who finds it full waits for room, in order; nobody who comes later overtakes. Who has waited for
`queue_wait_s` gets Overloaded.
"""

import asyncio
from collections import deque
from typing import Any, NamedTuple

from tape.errors import Closed, Overloaded
from tape.model.move import Move
from tape.settings import WriterSettings


class QueuedMove(NamedTuple):
    """A move and where its caller waits for the reply."""

    move: Move[Any]
    done: asyncio.Future[Any]


class _Outside(NamedTuple):
    waiting: QueuedMove
    admitted: asyncio.Future[None]


class MoveQueue:
    def __init__(self, settings: WriterSettings) -> None:
        self._settings = settings
        self._inside: deque[QueuedMove] = deque()
        self._outside: deque[_Outside] = deque()
        self._arrived = asyncio.Event()
        self._closed = False
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._inside)

    async def put(self, move: Move[Any]) -> asyncio.Future[Any]:
        """Queue a move, once there is room; the future of its reply."""
        if self._closed:
            raise Closed
        waiting = QueuedMove(move, asyncio.get_running_loop().create_future())
        if self._is_full or self._outside:
            await self._wait_for_room(waiting)
        else:
            self._admit(waiting)
        return waiting.done

    async def next_batch(self) -> list[QueuedMove]:
        """The next moves for one transaction, as soon as there are any; none at the end."""
        while not self._inside:
            if self._closed:
                return []
            self._arrived.clear()
            await self._arrived.wait()
        batch: list[QueuedMove] = []
        weight = 0
        while self._inside and len(batch) < self._settings.batch_moves:
            weight += self._inside[0].move.weight
            if batch and weight > self._settings.batch_bytes:
                break
            waiting = self._inside.popleft()
            self.bytes -= waiting.move.weight
            if not waiting.done.cancelled():
                batch.append(waiting)
        while self._outside and not self._is_full:
            outside = self._outside.popleft()
            self._admit(outside.waiting)
            outside.admitted.set_result(None)
        return batch or await self.next_batch()

    def close(self) -> None:
        """Take nothing more. What is inside is still to be written; who waits outside is told."""
        self._closed = True
        self._arrived.set()
        while self._outside:
            self._outside.popleft().admitted.set_exception(Closed())

    @property
    def _is_full(self) -> bool:
        settings = self._settings
        return len(self._inside) >= settings.queue_moves or self.bytes >= settings.queue_bytes

    def _admit(self, waiting: QueuedMove) -> None:
        self._inside.append(waiting)
        self.bytes += waiting.move.weight
        self._arrived.set()

    async def _wait_for_room(self, waiting: QueuedMove) -> None:
        outside = _Outside(waiting, asyncio.get_running_loop().create_future())
        self._outside.append(outside)
        try:
            # Unlike a time-out around it, this never cancels an admission that just happened.
            await asyncio.wait((outside.admitted,), timeout=self._settings.queue_wait_s)
        except asyncio.CancelledError:
            waiting.done.cancel()
            raise
        finally:
            if not outside.admitted.done():
                self._outside.remove(outside)
        if not outside.admitted.done():
            raise Overloaded(
                f"{len(self)} moves with {self.bytes} bytes are waiting to be written: "
                "slow down and retry"
            )
        outside.admitted.result()
