"""What the unary calls of each client hold: their number, the bytes of their requests, and the
bytes of answers that gRPC has not been able to hand over.

gRPC for Python can neither time a unary answer nor take one back: it keeps it until the caller
takes it or leaves. So what a client may leave untaken is bounded. An answer without room is dropped
and its call waits; when there is room it is asked for once more, which only calls that change
nothing can be. Calls that write are not begun while there is no room.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tape.errors import Overloaded
from tape.settings import DoorSettings

COPIES = 2
"""Of an untaken answer: Python has one, and gRPC another."""
RETRY_MS = 5_000


class CallsInHand:
    """Belongs to one event loop."""

    def __init__(self, settings: DoorSettings) -> None:
        self._settings = settings
        self._calls: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._untaken: Counter[str] = Counter()
        self._waiting: dict[str, dict[asyncio.Future[None], int]] = {}

    def enter(self, client: str) -> None:
        """Count the call that runs here until its answer is taken; Overloaded if it is too many."""
        if self._calls[client] >= self._settings.calls_per_client:
            raise Overloaded(
                f"this client has {self._calls[client]} calls open, the most that one client may "
                "have (tape.doors.calls_per_client)",
                retry_after_ms=RETRY_MS,
            )
        self._until_taken(self._calls, client, 1)

    @contextmanager
    def holding(self, client: str, size: int) -> Iterator[None]:
        """Count a request while it is worked on; Overloaded if the client's are too large."""
        if self._asked[client] and self._asked[client] + size > self._settings.body_bytes:
            raise Overloaded(
                "the requests of this client that are in progress are too large together "
                "(tape.doors.body_bytes): retry later",
                retry_after_ms=RETRY_MS,
            )
        _change(self._asked, client, size)
        try:
            yield
        finally:
            _change(self._asked, client, -size)

    def refuse_without_room(self, client: str, size: int) -> None:
        """For a call that writes, before it does: its answer is about as large as its request."""
        if not self._fits(client, size):
            raise self._nobody_takes(client)

    def keep(self, client: str, size: int) -> None:
        """Count an answer until it is taken, whether there is room or not."""
        self._until_taken(self._untaken, client, COPIES * size)

    def keep_if_room(self, client: str, size: int) -> bool:
        """The same, but not if there is no room. A client with nothing untaken always has some."""
        if self._waiting.get(client) or not self._fits(client, size):
            return False
        self.keep(client, size)
        return True

    async def keep_when_room(self, client: str, size: int) -> None:
        """The same, once others before it were taken; Overloaded if they are not."""
        turn = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(client, {})
        queue[turn] = size
        try:
            async with asyncio.timeout(self._settings.write_s):
                await turn
            self.keep(client, size)
        except TimeoutError:
            raise self._nobody_takes(client) from None
        finally:
            del queue[turn]
            if not queue:
                del self._waiting[client]
            self._admit(client)

    def _admit(self, client: str) -> None:
        """Let the first of those that wait go on, if there is room; it then lets the next."""
        for turn, size in self._waiting.get(client, {}).items():
            if not turn.done() and self._fits(client, size):
                turn.set_result(None)
            return

    def _fits(self, client: str, size: int) -> bool:
        untaken = self._untaken[client]
        return not untaken or untaken + COPIES * size <= self._settings.unread_bytes

    def _until_taken(self, counter: Counter[str], client: str, amount: int) -> None:
        def taken(_task: "asyncio.Task[Any]") -> None:
            _change(counter, client, -amount)
            self._admit(client)

        task = asyncio.current_task()
        if task is not None:
            _change(counter, client, amount)
            task.add_done_callback(taken)

    def _nobody_takes(self, client: str) -> Overloaded:
        return Overloaded(
            f"this client has not read {self._untaken[client]} bytes of earlier answers "
            "(tape.doors.unread_bytes)",
            retry_after_ms=RETRY_MS,
        )


def _change(counter: Counter[str], client: str, amount: int) -> None:
    counter[client] += amount
    if not counter[client]:
        del counter[client]
