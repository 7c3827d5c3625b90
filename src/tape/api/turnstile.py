"""Some messages of streams at a time; then everybody else has a moment.

Many readers that come at once would otherwise make each turn of the event loop as long as all of
their messages take, and the thread that writes to the store would have to ask for the interpreter
again and again. Every other caller needs several turns, and a thread that gets its own. Where no
more comes than may go at once, nobody waits.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Final, NamedTuple, TypeVar

from tape.journal.follow import Page
from tape.model.entry import Entry
from tape.settings import KIB

AT_ONCE: Final = 32 * KIB
PAID: Final = 128 * KIB
"""So much of a larger message is made up for by one pause. It costs less for each byte."""
LEAST: Final = KIB
"""A small message takes as long as so many bytes of a large one."""
PAUSE_S: Final = 0.003
"""With a third of it, sixty backlogged readers made the writes of others four times as slow."""

T = TypeVar("T")


class _WaitingCall(NamedTuple):
    size: int
    turn: "asyncio.Future[None]"


class Turnstile:
    """Lets through in the order of arrival. Belongs to one event loop."""

    def __init__(self) -> None:
        self._left = AT_ONCE
        self._waiting: deque[_WaitingCall] = deque()
        self._is_turning = False

    async def through(self, size: int) -> None:
        """Wait until a message of so many bytes may be handed over."""
        loop = asyncio.get_running_loop()
        if not self._is_turning:
            self._is_turning = True
            loop.call_soon(self._end_turn)
        if self._left > 0 and not self._waiting:
            self._left -= max(size, LEAST)
            return
        waiting = _WaitingCall(max(size, LEAST), loop.create_future())
        self._waiting.append(waiting)
        await waiting.turn

    def _end_turn(self) -> None:
        if self._waiting:
            asyncio.get_running_loop().call_later(PAUSE_S, self._begin_turn)
        else:
            self._left = AT_ONCE
            self._is_turning = False

    def _begin_turn(self) -> None:
        self._left = min(AT_ONCE, self._left + PAID)
        while self._waiting and self._left > 0:
            size, turn = self._waiting.popleft()
            if not turn.done():  # else whoever waited was cancelled
                self._left -= size
                turn.set_result(None)
        asyncio.get_running_loop().call_soon(self._end_turn)

    async def reads(
        self, pages: AsyncGenerator[T, None], size_of: Callable[[T], int]
    ) -> AsyncGenerator[T, None]:
        """Read page after page in turns with the messages, each as if it were as large as the one
        before: followers of the same entries come to the ends of their pages at the same time.
        A page is not kept while its reader takes its time."""
        async with aclosing(pages):
            size = 0
            while True:
                if size:
                    await self.through(size)
                page = await anext(pages, None)
                if page is None:
                    return
                size = size_of(page)
                held = [page]
                del page
                yield held.pop()


def page_characters(page: Page) -> int:
    return entries_characters(page.entries)


def entries_characters(entries: Iterable[Entry]) -> int:
    return sum(len(entry.payload_json) for entry in entries)
