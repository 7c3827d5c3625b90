"""Predicates take turns, so that no number of them can keep a process from its other work.

Whoever has entries to decide about drives an iterator that stops after each of them. It runs for a
slice of time, and then everything else that the process has to do comes first. One slice runs at a
time.

*What costs.* An entry may take `FREE_S`. What the entries of one piece of work take beyond that,
it owes; entries that take less pay it back. Work that owes more than a slice is *held*: it goes on
only while there is credit. So is work that may take long, until its first few hundred entries
have shown that it does not. Everything else is *free*: it never waits for credit.

*Credit* grows by `share` of the time that passes, and what is beyond `FREE_S` is drawn from it,
whoever it was. Half of it is for the services of the process (the matcher, the drainers), half for
clients; what one of them does not need goes to the other.

*Whose turn it is.* There are four queues: the free and the held work of services, and of clients.
They take turns, so that nobody waits long because another queue is long. Within a queue that client
goes first that has cost least so far, and of its work that which has cost least. Whoever is new, or
had nothing to do for a while, starts `AHEAD_S` before the last one that was held. A client is whom
a door knows by token or address; without one, each piece of work counts for itself.

*Where.* What may take long runs in a thread, the rest on the loop: a single evaluation can take as
long as ten slices, and a thread can be interrupted in it, where the loop would be held up. There is
one thread, since the interpreter runs one at a time anyway.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from itertools import count
from time import perf_counter, thread_time
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from tape.settings import PredicateSettings

T = TypeVar("T")

FREE_S: Final = 30e-6
"""So long an entry may take for nothing; the usual ones take a tenth of it."""

READ_S: Final = 15e-9
"""What a byte costs that is read to be decided about: it is fetched, decoded and freed, and the
interpreter is held for the whole of a large entry. That is some three times what it takes, so that
such entries come rarely enough for others not to meet them."""

CREDIT_S: Final = 0.02
"""The most credit there is, of services and of clients."""

UNTRIED_S: Final = 0.02
"""What work owes at first that may take long: about as much as one evaluation can take."""

AHEAD_S: Final = 0.02
"""So much less than the others one has had at most, as far as that matters."""

OWED_MOST_S: Final = 0.1
"""The most that is paid back: some thousand quick entries are enough after any number of others."""

DEFAULT: Final = PredicateSettings()

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""Whose request is being answered, where a door knows it."""


class Account:
    """What the work of one client has cost so far."""

    def __init__(self) -> None:
        self.had_s = 0.0
        self.least_s = 0.0
        """What that of its work has had that was held last."""


class Pacer:
    """Whose turn it is. Belongs to one event loop."""

    def __init__(self, settings: PredicateSettings = DEFAULT) -> None:
        self.settings = settings
        self._services, self._clients = _Side(), _Side()
        self._queues = deque(
            queue for side in (self._services, self._clients) for queue in (side.free, side.held)
        )
        self._accounts: WeakValueDictionary[str, Account] = WeakValueDictionary()
        self._counted_at = perf_counter()
        self._is_taken = False
        self._resting: asyncio.TimerHandle | None = None
        self._thread: ThreadPoolExecutor | None = None

    def turns(self, client: str | None = None) -> "PacedTurns":
        """For one follower, request or other piece of work of a client."""
        name = CLIENT.get() if client is None else client
        if not name:
            return PacedTurns(self, self._clients, Account())
        return PacedTurns(self, self._clients, self._accounts.setdefault(name, Account()))

    async def call_in_thread(self, function: Callable[[], T]) -> T:
        """One call that may take long, in its turn."""
        return await self.turns().call(function, is_light=False)

    def service_turns(self, *, comes_first: bool = False) -> "PacedTurns":
        """For work of the process itself. One that comes first is never held: it sees to it
        itself that it costs little."""
        return PacedTurns(self, self._services, Account(), is_never_held=comes_first)

    async def enter(self, turns: "PacedTurns", *, is_held: bool) -> None:
        side = turns.side
        if not self._is_taken and not (is_held and (side.held or not self.has_credit(side))):
            self._is_taken = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (side.held if is_held else side.free).push(turns, turn)
        if not self._is_taken:
            self._earn()
            self._rest()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        """The next turn is in the next round of the loop."""
        asyncio.get_running_loop().call_soon(self._pass_on)

    def draw(self, side: "_Side", costly_s: float) -> None:
        self._earn()
        side.credit_s -= costly_s

    def has_credit(self, side: "_Side") -> bool:
        self._earn()
        return side.credit_s >= 0

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
        if self._resting is not None:
            self._resting.cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    def _pass_on(self) -> None:
        if self._services.held or self._clients.held:
            self._earn()
        for _ in range(len(self._queues)):
            self._queues.rotate(-1)
            queue = self._queues[-1]
            if queue.may_go and (turn := queue.pop()) is not None:
                self._is_taken = True
                turn.set_result(None)
                return
        self._is_taken = False
        self._rest()

    def _earn(self) -> None:
        """Half for each side, and what one has no room for, to the other."""
        now = perf_counter()
        earned_s = (now - self._counted_at) * self.settings.share
        self._counted_at = now
        services, clients = self._services, self._clients
        services_s, clients_s = services.room_s, clients.room_s
        services.credit_s += min(services_s, max(earned_s / 2, earned_s - clients_s))
        clients.credit_s += min(clients_s, max(earned_s / 2, earned_s - services_s))

    def _rest(self) -> None:
        """Until there is credit for somebody who waits for it."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        services, clients = self._services, self._clients
        missing_s = [
            min(2 * -side.credit_s, other.room_s - side.credit_s)
            for side, other in ((services, clients), (clients, services))
            if side.held
        ]
        if missing_s:
            delay = max(0.0, min(missing_s)) / self.settings.share
            self._resting = asyncio.get_running_loop().call_later(delay, self._wake)

    def _wake(self) -> None:
        self._resting = None
        if not self._is_taken:
            self._pass_on()


class PacedTurns:
    """The turns of one piece of work. `used_s` is how long they took so far, of one core, and
    `had_s` how much of that was not free."""

    def __init__(
        self, pacer: Pacer, side: "_Side", account: Account, *, is_never_held: bool = False
    ) -> None:
        self.side = side
        self.account = account
        self.used_s = 0.0
        self.had_s = 0.0
        self._pacer = pacer
        self._is_never_held = is_never_held
        self._owed_s = 0.0
        self._is_tried = False

    @property
    def owes(self) -> bool:
        return self._owed_s > self._pacer.settings.slice_s

    async def run(
        self, work: Iterator[int], within_s: float = float("inf"), *, is_light: bool
    ) -> bool:
        """Drive it to its end; False if it has not come there within that time, and can go on.

        It yields after every few entries how many they were, after one where that may take long.
        """
        until = perf_counter() + within_s
        self._try(is_light=is_light)
        while not await self._slice(work, is_light=is_light, is_held=self.owes):
            if perf_counter() >= until:
                return False
        return True

    async def run_while_paid(self, work: Iterator[int], *, is_light: bool) -> bool:
        """Drive it to its end; False if it would have to wait for credit first, and can go on. One
        slice is always driven: `until_paid` has waited for it."""
        self._try(is_light=is_light)
        while not await self._slice(work, is_light=is_light, is_held=False):
            if self.owes and not self._pacer.has_credit(self.side):
                return False
        return True

    async def call(self, function: Callable[[], T], *, is_light: bool) -> T:
        """One call beside the entries, as to compile a predicate. It is held if it may take long;
        what it costs is not owed."""
        results: list[T] = []

        def calling() -> Iterator[int]:
            results.append(function())
            yield 1

        owed_s = self._owed_s
        await self._slice(calling(), is_light=is_light, is_held=self.owes or not is_light)
        self._owed_s = owed_s
        return results[0]

    async def until_paid(self, *, is_light: bool) -> None:
        """Wait until a slice of it may be driven."""
        self._try(is_light=is_light)
        if self.owes:
            await self._enter(is_held=True)
            self._pacer.leave()

    def pay_for_reading(self, entries: int, size: int) -> None:
        """Threads that fetch entries to be decided about keep the interpreter from everybody else
        as predicates do. So many entries had so many bytes."""
        read_s = size * READ_S
        self._pay(read_s, read_s, entries)

    def _try(self, *, is_light: bool) -> None:
        if not is_light and not self._is_tried:
            self._is_tried = True
            self._owed_s += UNTRIED_S

    async def _slice(self, work: Iterator[int], *, is_light: bool, is_held: bool) -> bool:
        pacer = self._pacer
        await self._enter(is_held=is_held and not self._is_never_held)
        piece = _Slice(work, pacer.settings.slice_s)
        started = perf_counter()
        try:
            return piece.drive() if is_light else await pacer.in_thread(piece.drive)
        finally:
            self.used_s += piece.used_s
            self._pay(piece.used_s, perf_counter() - started, piece.decided)
            pacer.leave()

    def _pay(self, used_s: float, took_s: float, entries: int) -> None:
        """What others lost while it ran is drawn from the credit, if it was not free: at most twice
        its own time, for the rest went to other processes. What it is judged by is its own time."""
        free_s = entries * FREE_S
        self._owed_s = min(OWED_MOST_S, max(0.0, self._owed_s + used_s - free_s))
        if used_s > free_s:
            self.had_s += used_s - free_s
            self.account.had_s += used_s - free_s
            self._pacer.draw(self.side, min(max(used_s, took_s), 2 * used_s) - free_s)

    async def _enter(self, *, is_held: bool) -> None:
        account, side = self.account, self.side
        if is_held:
            account.had_s = max(account.had_s, side.least_s - AHEAD_S)
            self.had_s = max(self.had_s, account.least_s - AHEAD_S)
        await self._pacer.enter(self, is_held=is_held)
        if is_held:
            side.least_s = max(side.least_s, account.had_s)
            account.least_s = max(account.least_s, self.had_s)


class _Queue:
    """Those that wait for a turn."""

    def __init__(self, paid_by: "_Side | None") -> None:
        self._paid_by = paid_by
        self._waiting: dict[Account, list[tuple[float, int, asyncio.Future[None]]]] = {}
        self._numbers = count()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def may_go(self) -> bool:
        return self._paid_by is None or self._paid_by.credit_s >= 0

    def push(self, turns: PacedTurns, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting.setdefault(turns.account, [])
        heapq.heappush(waiting, (turns.had_s, next(self._numbers), turn))

    def pop(self) -> asyncio.Future[None] | None:
        while self._waiting:
            account = min(self._waiting, key=_had_s)
            waiting = self._waiting.pop(account)
            _, _, turn = heapq.heappop(waiting)
            if waiting:
                self._waiting[account] = waiting  # behind those that have had as little
            if not turn.done():
                return turn
        return None


def _had_s(account: Account) -> float:
    return account.had_s


class _Side:
    """Services, or clients."""

    def __init__(self) -> None:
        self.credit_s = CREDIT_S
        self.least_s = 0.0
        """What the account has had that was held last."""
        self.free = _Queue(None)
        self.held = _Queue(self)

    @property
    def room_s(self) -> float:
        """For more credit."""
        return CREDIT_S - self.credit_s


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
