"""The head of the journal as this process knows it, and those who wait for it to move."""

import asyncio

from tape.errors import Closed


class Head:
    """A wake-up is a hint: whoever wakes reads the store. Lives on one event loop."""

    def __init__(self) -> None:
        self.global_seq = 0
        self.closed = False
        self._waiters: set[asyncio.Future[None]] = set()

    def advance(self, global_seq: int) -> None:
        if global_seq > self.global_seq:
            self.global_seq = global_seq
            self._wake()

    def close(self) -> None:
        """Let everyone who waits know that nothing more will come."""
        self.closed = True
        self._wake()

    def check_open(self) -> None:
        if self.closed:
            raise Closed

    async def beyond(self, global_seq: int) -> int:
        while self.global_seq <= global_seq:
            self.check_open()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
        return self.global_seq

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
