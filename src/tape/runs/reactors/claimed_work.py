"""The work that a reactor has claimed: several pieces at once, each under a claim of its own.

    take ──> claimed ──> held: the act, while its claim is renewed ──> written under its token

A claim that cannot be renewed in time is lost, whoever is to blame: the act is not begun, or is
abandoned before another may take it up, and somebody else finds out what became of it. What an act
came to is written even past the claim's time, as long as the store takes it: the token decides, not
the clock.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from tape.config import ReactorSettings
from tape.errors import (
    InvalidArgument,
    NotFound,
    Overloaded,
    StaleLease,
    StoreFailed,
    StoreUnavailable,
    TapeError,
)
from tape.model.entry import NO_TRACE, Trace
from tape.model.run_write import RunWrite
from tape.runs.boundary import boundary
from tape.runs.operations import RunOperations
from tape.telemetry import metrics
from tape.telemetry.retrying import Retrying
from tape.telemetry.tracing import driving

log = logging.getLogger("tape.reactors")

REFUSED = (InvalidArgument, StoreFailed)
"""What the store says of an outcome that it will never take."""
MOST = 32
LOOK = 200
"""How many pieces of work are looked for, besides those that are not to be had."""
FULL_S = 1.0
"""How long a reactor that can claim no more waits for one piece to end before it looks again."""
PAUSE_FIRST_S = 0.05
PAUSE_MOST_S = 5.0
LATE = 20
"""What comes later than this part of a heartbeat comes after a standstill."""
LATE_S = 0.005
"""What is looked for a moment too early is found only at the next look."""
SLOW_S = 300.0
REFUSED_FIRST_S = 0.25
REFUSED_MOST_S = 10.0


class _Pause(NamedTuple):
    until: float
    seconds: float


class Refusals:
    """What was not to be had is left alone for a while, longer each time it is tried in vain."""

    def __init__(self) -> None:
        self._pauses: dict[Hashable, _Pause] = {}

    def __contains__(self, name: Hashable) -> bool:
        pause = self._pauses.get(name)
        return pause is not None and pause.until > asyncio.get_running_loop().time()

    def add(self, name: Hashable) -> None:
        known = self._pauses.get(name)
        seconds = REFUSED_FIRST_S if known is None else min(2 * known.seconds, REFUSED_MOST_S)
        self._pauses[name] = _Pause(asyncio.get_running_loop().time() + seconds, seconds)

    def keep_only(self, names: Iterable[Hashable]) -> None:
        """Forget the others: they are settled, or another's."""
        self._pauses = {name: self._pauses[name] for name in names if name in self._pauses}


class OfRun(Protocol):
    @property
    def run_id(self) -> str: ...


T = TypeVar("T")
Row = TypeVar("Row", bound=OfRun)


class ClaimLost(Exception):
    """The claim ran out or was taken over: whatever comes of the act is for others to find."""


class ClaimRules(NamedTuple, Generic[Row]):
    """How one kind of row is claimed and its claim renewed, with a time to live in ms."""

    take: Callable[[Row, int], RunWrite]
    renew: Callable[[Row, int], RunWrite]
    expires_at_ms: Callable[[Row], int]
    describe: Callable[[Row], str]


@dataclass(slots=True, eq=False)
class WorkClaim(Generic[Row]):
    """A row that was claimed, and when by the clock of the store. By that of this process it was
    between `asked_at` and `taken_at`.
    """

    row: Row
    taken_at_ms: int
    asked_at: float
    taken_at: float

    def in_ms(self, seconds: float) -> int:
        """The time so long from now, by the store's clock."""
        elapsed = asyncio.get_running_loop().time() - self.taken_at
        return self.taken_at_ms + round(1000 * (elapsed + seconds))


@dataclass(slots=True)
class ClaimedWork(Generic[Row]):
    reactor: str
    runs: RunOperations
    rules: ClaimRules[Row]
    settings: ReactorSettings
    _busy: set[asyncio.Task[None]] = field(default_factory=set)
    _refusals: Refusals = field(default_factory=Refusals)
    _renewing: Retrying = field(init=False)
    _aside: int = 0
    _due: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._renewing = Retrying(log, f"{self.reactor}: renewing claims")

    @property
    def _ttl_ms(self) -> int:
        return round(1000 * self.settings.lease_ttl_s)

    async def take(
        self,
        look: Callable[[int], Awaitable[Sequence[Row]]],
        is_ours: Callable[[Row], bool],
        work: Callable[[WorkClaim[Row]], Coroutine[Any, Any, None]],
    ) -> int:
        """Claim of what `look` finds as many as there is room for, and begin; how many were got.

        What is found is given by age. So that new work is not hidden for ever behind what is not
        to be had, that much more is looked for.
        """
        if await self._are_full():
            return 0
        while True:
            aside = self._aside
            found = await look(LOOK + aside)
            self._refusals.keep_only(map(self._name, found))
            ours = [row for row in found if is_ours(row) and self._name(row) not in self._refusals]
            taken, refused = await self._claim_each(ours, work)
            for row in refused:
                self._refusals.add(self._name(row))
            self._aside = sum(
                not is_ours(row) or self._name(row) in self._refusals for row in found
            )
            if taken or self._aside <= aside:
                return taken

    async def take_these(
        self, rows: Sequence[Row], work: Callable[[WorkClaim[Row]], Coroutine[Any, Any, None]]
    ) -> int:
        """Claim as many as there is room for, and begin; how many were got."""
        taken, _ = await self._claim_each(rows, work)
        return taken

    async def _claim_each(
        self, rows: Sequence[Row], work: Callable[[WorkClaim[Row]], Coroutine[Any, Any, None]]
    ) -> tuple[int, list[Row]]:
        """How many were got and begun, and which were not to be had."""
        taken, refused, rest = 0, list[Row](), rows
        while rest and (room := MOST - len(self._busy)) > 0:
            some, rest = rest[:room], rest[room:]
            claims = await asyncio.gather(*map(self._claim, some), return_exceptions=True)
            refused += [row for row, claim in zip(some, claims, strict=True) if claim is None]
            for claim in claims:
                if isinstance(claim, WorkClaim):
                    self._begin(claim, work(claim))
                    taken += 1
            for failed in claims:
                if isinstance(failed, BaseException) and not isinstance(failed, NotFound):
                    raise failed
        return taken, refused

    async def _are_full(self) -> bool:
        """Whether nothing more can be taken, not even a moment later."""
        if len(self._busy) >= MOST:
            await asyncio.wait(self._busy, timeout=FULL_S, return_when=asyncio.FIRST_COMPLETED)
        return len(self._busy) >= MOST

    def _name(self, row: Row) -> tuple[str, str]:
        return row.run_id, self.rules.describe(row)

    async def hold(self, claim: WorkClaim[Row], act: Coroutine[Any, Any, T]) -> T:
        """What the act returns or raises. Meanwhile its claim is renewed; if it is lost, the act
        is given up, or not even begun, and ClaimLost raised.
        """
        until = claim.asked_at + self.settings.lease_ttl_s
        name = f"{self.reactor}: {self.rules.describe(claim.row)}"
        acting = asyncio.create_task(self._begun(claim.row, act, until), name=name)
        told_s = SLOW_S
        try:
            while True:
                pause_s = self._pause_s(until)
                wake_at = asyncio.get_running_loop().time() + pause_s
                if (await asyncio.wait({acting}, timeout=pause_s))[0]:
                    break
                until = await self._renew(claim, until, late=self._is_late(wake_at))
                told_s = self._tell_slow(claim, told_s)
            if acting.cancelled():
                raise ClaimLost("the act was cancelled")
            return acting.result()
        finally:
            if not acting.done():
                acting.cancel()
                await asyncio.gather(acting, return_exceptions=True)
            act.close()  # it may not even have begun

    def _is_late(self, wake_at: float) -> bool:
        """Whether this process stood still: then nobody could have renewed anything."""
        late_s = asyncio.get_running_loop().time() - wake_at
        return late_s > self.settings.heartbeat_every_s / LATE

    async def _begun(self, row: Row, act: Coroutine[Any, Any, T], until: float) -> T:
        """The act, in a task of its own: what else this process does comes before it begins."""
        if self._left_s(until) <= 0:  # the store was slow, or this process stood still
            raise ClaimLost("its claim ran out before it was begun")
        facts = {"tape.run_id": row.run_id, "tape.work": self.rules.describe(row)}
        with driving(self.reactor, await self._trace_of(row.run_id), facts):
            return await act

    async def _trace_of(self, run_id: str) -> Trace:
        """What the beginning of the run carries."""
        with suppress(TapeError):
            for first in await self.runs.read_run(run_id, 0, 1):
                return Trace(first.trace_id, first.span_id, first.parent_span_id)
        return NO_TRACE

    async def write(self, claim: WorkClaim[Row], write: RunWrite) -> Any:
        """Its reply. A store that is away is waited for, because what is done is done."""
        pause = PAUSE_FIRST_S
        what = self.rules.describe(claim.row)
        retrying = Retrying(log, f"{self.reactor}: writing {what}")
        while True:
            try:
                reply = await self._write(claim.row, write)
            except (StoreUnavailable, Overloaded) as error:
                retrying.failed(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MOST_S)
            else:
                retrying.succeeded()
                return reply

    def expect(self, seconds: float) -> None:
        """There will be more to do then."""
        self._due.append(asyncio.get_running_loop().time() + seconds + LATE_S)

    def due_in_s(self) -> float | None:
        now = asyncio.get_running_loop().time()
        self._due = [due for due in self._due if due > now]
        return min(self._due) - now if self._due else None

    async def settled(self) -> None:
        while self._busy:
            await asyncio.wait(self._busy)

    async def drain(self, grace_s: float) -> None:
        if self._busy:
            await asyncio.wait(self._busy, timeout=grace_s)
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)

    async def _claim(self, row: Row) -> WorkClaim[Row] | None:
        asked_at = asyncio.get_running_loop().time()
        taken: Row | None = await self._write(row, self.rules.take(row, self._ttl_ms))
        if taken is None:
            return None
        taken_at_ms = self.rules.expires_at_ms(taken) - self._ttl_ms
        return WorkClaim(taken, taken_at_ms, asked_at, asyncio.get_running_loop().time())

    def _begin(self, claim: WorkClaim[Row], work: Coroutine[Any, Any, None]) -> None:
        what = self.rules.describe(claim.row)
        task = asyncio.create_task(self._do(what, work), name=f"tape-{self.reactor}")
        self._busy.add(task)
        metrics.REACTOR_WORK.labels(self.reactor).inc()
        metrics.REACTOR_IN_HAND.labels(self.reactor).inc()
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._busy.discard(task)
        metrics.REACTOR_IN_HAND.labels(self.reactor).dec()

    async def _do(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (ClaimLost, TapeError) as error:
            log.warning("%s: %s is left to other workers: %s", self.reactor, what, error)
        except Exception:
            log.exception("%s: %s failed unexpectedly", self.reactor, what)

    def _tell_slow(self, claim: WorkClaim[Row], told_s: float) -> float:
        """Say so of an act that takes long, each time it takes twice as long."""
        age = asyncio.get_running_loop().time() - claim.taken_at
        if age < told_s:
            return told_s
        what = self.rules.describe(claim.row)
        log.warning("%s: %s has been running for %.0f s", self.reactor, what, age)
        return 2 * age

    async def _renew(self, claim: WorkClaim[Row], until: float, *, late: bool) -> float:
        """Until when the claim lives now, by the loop's clock."""
        asked = asyncio.get_running_loop().time()
        # Its token is good until somebody takes it up, so the store is asked even if it is late.
        patience_s = self.settings.heartbeat_every_s / 2 if late else self._pause_s(until)
        try:
            async with asyncio.timeout(patience_s):
                renewal = self.rules.renew(claim.row, self._ttl_ms)
                await self._write(claim.row, renewal)
        except (StaleLease, NotFound) as error:
            raise ClaimLost(str(error)) from error
        except (TapeError, TimeoutError) as error:
            if self._left_s(until) <= 0:
                raise ClaimLost(f"its claim was not renewed: {error!r}") from error
            self._renewing.failed(error)
            return until
        self._renewing.succeeded()
        return asked + self.settings.lease_ttl_s

    def _left_s(self, until: float) -> float:
        """How long it may go on with a claim that is not renewed: others may take it up at its end,
        and nothing of it must be under way by then.
        """
        too_late = until - self.settings.heartbeat_every_s / 2
        return too_late - asyncio.get_running_loop().time()

    def _pause_s(self, until: float) -> float:
        return max(0.0, min(self.settings.heartbeat_every_s, self._left_s(until)))

    async def _write(self, row: Row, write: RunWrite) -> Any:
        name = type(write).__name__
        boundary(f"before {name}")
        reply = await self.runs.change_run(row.run_id, write)
        boundary(f"after {name}")
        return reply


class ClaimReactor(Generic[Row]):
    """What reactors that work under claims have in common."""

    def __init__(self, work: ClaimedWork[Row]) -> None:
        self._work = work

    async def due_in_s(self) -> float | None:
        return self._work.due_in_s()

    async def settled(self) -> None:
        """Wait until nothing that `once` has begun is in hand."""
        await self._work.settled()

    async def drain(self, grace_s: float) -> None:
        """Let what is in hand be finished for so long; then abandon it to others."""
        await self._work.drain(grace_s)
