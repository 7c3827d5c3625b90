"""What a listener has in hand: fetched, and not acknowledged yet. It is bounded, in messages and in
about how many bytes they have."""

import asyncio
from collections import deque
from collections.abc import Sequence

from tape.ports.source import ReceivedMessage


class InHand:
    """One task fetches and puts, another takes and settles."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._waiting: deque[ReceivedMessage] = deque()
        self._count = 0
        self._bytes = 0
        self._typical = 0
        """Bytes of a message: of the longest fetched lately."""
        self._changed = asyncio.Event()
        self._is_closed = False

    @property
    def count(self) -> int:
        return self._count

    def room(self, most: int) -> int:
        """How many of `most` may be fetched now."""
        if not self._count:
            return min(most, self._most, max(1, self._fitting(self._most_bytes)))
        return max(0, min(most, self._most - self._count, self._fitting(self._free_bytes)))

    async def wait_for_room(self, most: int) -> int:
        """How many of `most` may be fetched, once that is any."""
        while not (room := self.room(most)):
            self._changed.clear()
            await self._changed.wait()
        return room

    def put(self, received: Sequence[ReceivedMessage]) -> None:
        if not received:
            return
        sizes = [_size(each) for each in received]
        self._waiting += received
        self._count += len(received)
        self._bytes += sum(sizes)
        self._typical = max(*sizes, self._typical * 7 // 8)
        self._changed.set()

    async def take(self, most: int, most_bytes: int) -> list[ReceivedMessage]:
        """Those that came first, at most so many and of so many bytes, or one; empty once it is
        closed and nothing waits. They stay in hand until they are settled."""
        while not self._waiting:
            if self._is_closed:
                return []
            self._changed.clear()
            await self._changed.wait()
        taken = [self._waiting.popleft()]
        size = _size(taken[0])
        while self._waiting and len(taken) < most:
            size += _size(self._waiting[0])
            if size > most_bytes:
                break
            taken.append(self._waiting.popleft())
        return taken

    def settle(self, received: Sequence[ReceivedMessage]) -> None:
        """These are acknowledged or given back."""
        self._count -= len(received)
        self._bytes -= sum(map(_size, received))
        self._changed.set()

    def close(self) -> None:
        """Nothing more is put."""
        self._is_closed = True
        self._changed.set()

    @property
    def _free_bytes(self) -> int:
        return self._most_bytes - self._bytes

    def _fitting(self, free_bytes: int) -> int:
        return self._most if not self._typical else max(0, free_bytes) // self._typical


def _size(received: ReceivedMessage) -> int:
    message = received.message
    return 512 + len(message.body) + sum(len(name) + len(value) for name, value in message.headers)
