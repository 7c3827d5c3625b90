"""Tells those who wait for tasks that there may be some, as far as this process knows."""

import asyncio

from tape.errors import Closed


class Bell:
    """A ring is a hint: whoever hears it asks the store. Lives on one event loop."""

    def __init__(self) -> None:
        self.count = 0
        self.closed = False
        self._waiters: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        self.count += 1
        self._wake()

    def close(self) -> None:
        """Let everyone who waits know that nothing more will come."""
        self.closed = True
        self._wake()

    async def wait(self, heard: int, timeout_s: float) -> int:
        """Until it has rung since `heard`, or for so long; the count."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + timeout_s
        while self.count <= heard:
            if self.closed:
                raise Closed
            left = give_up - loop.time()
            if left <= 0:
                break
            waiter = loop.create_future()
            self._waiters.add(waiter)
            try:
                await asyncio.wait([waiter], timeout=left)
            finally:
                self._waiters.discard(waiter)
        return self.count

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
