"""Predicates take turns, so that no number of them can keep a process from its other work.

Whoever has entries to decide about drives an iterator that stops after each of them. It runs for a
slice of time, and then everything else that the process has to do comes first. One slice runs at a
time, of whoever has had least so far: a follower with a quick predicate does not wait for those
with slow ones.

What takes microseconds for each entry goes on in the next turn of the loop. What takes longer is
paid for: the time beyond that is drawn from a credit that grows by `share` of the time that
passes, and while there is none, nobody goes on.

What may take long runs in a thread, the rest on the loop: a single evaluation can take as long as
ten slices, and a thread can be interrupted in it, where the loop would be held up. There is one
thread, since the interpreter runs one at a time anyway.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from time import perf_counter, thread_time
from typing import Final, TypeVar

from tape.config import PredicateSettings

T = TypeVar("T")

FREE_S: Final = 30e-6
"""So long an entry may take for nothing; the usual ones take a tenth of it."""

READ_S: Final = 5e-9
"""What a byte costs that is read to be decided about: it is fetched, decoded and freed, and the
interpreter is held for the whole of a large entry."""

CREDIT_S: Final = 0.02
DEFAULT: Final = PredicateSettings()


class Pacer:
    """Whose turn it is. Belongs to one event loop."""

    def __init__(self, settings: PredicateSettings = DEFAULT) -> None:
        self.settings = settings
        self.least_s = 0.0
        """What the one whose turn came last has had: newcomers start from there."""
        self._credit_s = CREDIT_S
        self._counted_at = perf_counter()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._is_taken = False
        self._thread: ThreadPoolExecutor | None = None

    def turns(self) -> "Turns":
        """For one follower, request or other piece of work."""
        return Turns(self)

    async def call_in_thread(self, function: Callable[[], T]) -> T:
        """One call that may take long, in its turn."""
        return await self.turns().call(function, is_light=False)

    async def enter(self, had_s: float) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (had_s, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(0.0)
            raise

    def leave(self, costly_s: float) -> None:
        """The next turn is in the next round of the loop, or when there is credit again."""
        now = perf_counter()
        earned_s = (now - self._counted_at) * self.settings.share
        self._credit_s = min(CREDIT_S, self._credit_s + earned_s) - costly_s
        self._counted_at = now
        loop = asyncio.get_running_loop()
        if self._credit_s < 0:
            loop.call_later(-self._credit_s / self.settings.share, self._pass_on)
        else:
            loop.call_soon(self._pass_on)

    async def in_thread(self, drive: Callable[[], bool]) -> bool:
        """A slice that the loop does not wait for. It ends by itself, also if nobody wants it."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="tape-predicates")
        running = asyncio.get_running_loop().run_in_executor(self._thread, drive)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait((running,))
            raise

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    def _pass_on(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False


class Turns:
    """The turns of one piece of work. `used_s` is how long they took so far, of one core."""

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer
        self._had_s = 0.0
        self.used_s = 0.0

    async def run(
        self, work: Iterator[int], within_s: float = float("inf"), *, is_light: bool
    ) -> bool:
        """Drive it to its end; False if it has not come there within that time, and can go on.

        It yields after every few entries how many they were, after one where that may take long.
        """
        until = perf_counter() + within_s
        while not await self._slice(work, is_light=is_light):
            if perf_counter() >= until:
                return False
        return True

    async def call(self, function: Callable[[], T], *, is_light: bool) -> T:
        """One call that may take long."""
        results: list[T] = []

        def calling() -> Iterator[int]:
            results.append(function())
            yield 1

        await self.run(calling(), is_light=is_light)
        return results[0]

    async def until_paid(self) -> None:
        """Wait for as long as others have to be let go first."""
        await self._enter()
        self._pacer.leave(0.0)

    async def pay_for_reading(self, entries: int, size: int) -> None:
        """Threads that fetch entries to be decided about keep the interpreter from everybody else
        as predicates do. So many entries had so many bytes."""
        await self._enter()
        costly_s = max(0.0, size * READ_S - entries * FREE_S)
        self._had_s += costly_s
        self._pacer.leave(costly_s)

    async def _slice(self, work: Iterator[int], *, is_light: bool) -> bool:
        pacer = self._pacer
        await self._enter()
        piece = _Slice(work, pacer.settings.slice_s)
        started = perf_counter()
        try:
            return piece.drive() if is_light else await pacer.in_thread(piece.drive)
        finally:
            took_s = perf_counter() - started
            self.used_s += piece.used_s
            self._had_s += piece.used_s
            pacer.leave(max(0.0, took_s - piece.decided * FREE_S))

    async def _enter(self) -> None:
        pacer = self._pacer
        self._had_s = max(self._had_s, pacer.least_s)
        await pacer.enter(self._had_s)
        pacer.least_s = max(pacer.least_s, self._had_s)


class _Slice:
    """So much of a piece of work as fits into some time, or the first of it that does not."""

    def __init__(self, work: Iterator[int], slice_s: float) -> None:
        self._work = work
        self._slice_s = slice_s
        self.decided = 0
        self.used_s = 0.0

    def drive(self) -> bool:
        """Whether that was all."""
        began_s, until = thread_time(), perf_counter() + self._slice_s
        try:
            for some in self._work:
                self.decided += some
                if perf_counter() >= until:
                    return False
            return True
        finally:
            self.used_s = thread_time() - began_s
