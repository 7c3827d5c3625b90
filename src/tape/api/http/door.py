"""What every endpoint works with, and the end that all of them heed.

Whoever waits in an endpoint (a stream, a run's end) waits through `until_ending`, so that a server
that stops has answered everybody at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.types import Receive

from tape.api.auth import Tokens
from tape.api.ending import unless_ending
from tape.api.stream_slots import StreamSlots
from tape.bus import Operations
from tape.errors import Closed, Overloaded
from tape.journal.pacer import Pacer
from tape.predicates import DEFAULT_LIMITS, Checker
from tape.settings import DoorSettings, Limits

T = TypeVar("T")
Refresh = Callable[[], Awaitable[None]]


class StaticFile(Protocol):
    """A static file."""

    @property
    def content(self) -> bytes: ...

    @property
    def media_type(self) -> str: ...


SEARCHING = 2


@dataclass(slots=True)
class Door:
    """`refresh` brings the gauges of what the store holds up to date before each scrape; `host` is
    what the server was told to listen on.
    """

    operations: Operations
    tokens: Tokens
    refresh: Refresh
    limits: Limits = field(default_factory=Limits)
    pacer: Pacer = field(default_factory=Pacer)
    checker: Checker = field(
        default_factory=lambda: Checker(DEFAULT_LIMITS, Pacer().call_in_thread)
    )
    settings: DoorSettings = field(default_factory=DoorSettings)
    streams: StreamSlots = field(default_factory=StreamSlots)
    requests: int = 0
    """Whole requests that are being answered, apart from streams and questions of health."""

    body_bytes: int = 0
    """Of bodies that are being read, or whose requests are being answered."""

    searching: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SEARCHING))
    """For the pages of searches, until they are decided: they are large, and found in threads of
    the store."""

    host: str = ""
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    def client_of(self, request: Request) -> str:
        """Whose requests are counted together."""
        holder = self.tokens.holder(request.headers.get("authorization", ""))
        return holder or (request.client.host if request.client else "")

    @contextmanager
    def room_for_request(self) -> Iterator[None]:
        """Count a whole request for as long as it is answered; Overloaded if there are enough."""
        if self.requests >= self.settings.requests:
            raise Overloaded(f"{self.requests} requests are being answered: retry later")
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    @contextmanager
    def room_for_body(self) -> Iterator[Callable[[int], None]]:
        """Count the bytes of one body until its request is answered; Overloaded if all together are
        too many."""
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            taken += size
            self.body_bytes += size
            if self.body_bytes > self.settings.body_bytes:
                raise Overloaded("too many large requests are being received at once: retry later")

        try:
            yield take
        finally:
            self.body_bytes -= taken

    def end(self) -> None:
        """Send every waiting reader away; they come back to whoever serves next."""
        self.ending.set()

    async def while_wanted(self, receive: Receive, working: Coroutine[Any, Any, T]) -> T:
        """What it returns. Closed, and it is given up there and then, when its reader leaves or the
        server stops."""
        task = asyncio.create_task(working)
        ends = {asyncio.create_task(gone(receive)), asyncio.create_task(self.ending.wait())}
        try:
            await asyncio.wait({task, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Closed(
                    "the server is shutting down"
                    if self.ending.is_set()
                    else "the client has disconnected"
                )
            return task.result()
        finally:
            for each in (task, *ends):
                each.cancel()
            await asyncio.gather(task, *ends, return_exceptions=True)

    async def until_ending(
        self, waiting: Coroutine[Any, Any, T], timeout_s: float | None = None
    ) -> T | None:
        """What it returns; None if the time is up or the server stops first."""
        return await unless_ending(self.ending, waiting, timeout_s)


async def gone(receive: Receive) -> None:
    """Until the reader of an answer has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
