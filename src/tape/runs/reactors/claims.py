"""Claims: a row is claimed, held while it is worked on, and written under the token of its claim.

A claim that cannot be renewed in time is lost, whoever is to blame: the act is not begun, or is
abandoned before another may take it up, and somebody else finds out what became of it. What an act
came to is written even past the claim's time, as long as the store takes it: the token decides, not
the clock.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

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
from tape.settings import ReactorSettings
from tape.telemetry.retrying import Retrying
from tape.telemetry.tracing import driving

log = logging.getLogger("tape.reactors")

REFUSED = (InvalidArgument, StoreFailed)
"""What the store says of an outcome that it will never take."""
PAUSE_FIRST_S = 0.05
PAUSE_MOST_S = 5.0
LATE = 20
"""What comes later than this part of a heartbeat comes after a standstill."""
SLOW_S = 300.0


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


class ClaimKeeper(Generic[Row]):
    """Takes, renews and writes under the claims of one reactor."""

    def __init__(
        self,
        reactor: str,
        runs: RunOperations,
        rules: ClaimRules[Row],
        settings: ReactorSettings,
    ) -> None:
        self.reactor = reactor
        self.rules = rules
        self._runs = runs
        self._settings = settings
        self._renewing = Retrying(log, f"{reactor}: renewing claims")

    @property
    def _ttl_ms(self) -> int:
        return round(1000 * self._settings.lease_ttl_s)

    async def claim(self, row: Row) -> WorkClaim[Row] | None:
        """Claim a row; None if it is not to be had."""
        asked_at = asyncio.get_running_loop().time()
        taken: Row | None = await self._change(row, self.rules.take(row, self._ttl_ms))
        if taken is None:
            return None
        taken_at_ms = self.rules.expires_at_ms(taken) - self._ttl_ms
        return WorkClaim(taken, taken_at_ms, asked_at, asyncio.get_running_loop().time())

    async def act(
        self, claim: WorkClaim[Row], name: str, act: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Hold the claim during an act of that name, which a crash may cut off before and after."""
        boundary(f"before act {name}")
        try:
            result = await self.hold(claim, act())
        except ClaimLost:
            raise
        except Exception:
            boundary(f"after act {name}")
            raise
        boundary(f"after act {name}")
        return result

    async def hold(self, claim: WorkClaim[Row], act: Coroutine[Any, Any, T]) -> T:
        """Return what the act returns. Meanwhile its claim is renewed; if it is lost, the act is
        given up, or not even begun, and ClaimLost raised.
        """
        until = claim.asked_at + self._settings.lease_ttl_s
        name = f"{self.reactor}: {self.rules.describe(claim.row)}"
        acting = asyncio.create_task(self._begun(claim.row, act, until), name=name)
        slow_s = SLOW_S
        try:
            while True:
                pause_s = self._pause_s(until)
                wake_at = asyncio.get_running_loop().time() + pause_s
                if (await asyncio.wait({acting}, timeout=pause_s))[0]:
                    break
                until = await self._renew(claim, until, late=self._is_late(wake_at))
                slow_s = self._log_slow(claim, slow_s)
            if acting.cancelled():
                raise ClaimLost("the act was cancelled")
            return acting.result()
        finally:
            if not acting.done():
                acting.cancel()
                await asyncio.gather(acting, return_exceptions=True)
            act.close()  # it may not even have begun

    async def write_or(
        self, claim: WorkClaim[Row], write: RunWrite, instead: Callable[[Exception], RunWrite]
    ) -> Any:
        """Write an outcome, or something else instead of one that the store will never take; return
        the reply.
        """
        try:
            return await self.write(claim, write)
        except REFUSED as error:
            return await self.write(claim, instead(error))

    async def write(self, claim: WorkClaim[Row], write: RunWrite) -> Any:
        """Return the reply. A store that is away is waited for, because what is done is done."""
        pause = PAUSE_FIRST_S
        what = self.rules.describe(claim.row)
        retrying = Retrying(log, f"{self.reactor}: writing {what}")
        while True:
            try:
                reply = await self._change(claim.row, write)
            except (StoreUnavailable, Overloaded) as error:
                retrying.failed(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MOST_S)
            else:
                retrying.succeeded()
                return reply

    def _is_late(self, wake_at: float) -> bool:
        """Whether this process stood still: then nobody could have renewed anything."""
        late_s = asyncio.get_running_loop().time() - wake_at
        return late_s > self._settings.heartbeat_every_s / LATE

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
            for first in await self._runs.read_run(run_id, 0, 1):
                return Trace(first.trace_id, first.span_id, first.parent_span_id)
        return NO_TRACE

    def _log_slow(self, claim: WorkClaim[Row], slow_s: float) -> float:
        """Log an act that takes long, each time it takes twice as long; return when that is."""
        age = asyncio.get_running_loop().time() - claim.taken_at
        if age < slow_s:
            return slow_s
        what = self.rules.describe(claim.row)
        log.warning("%s: %s has been running for %.0f s", self.reactor, what, age)
        return 2 * age

    async def _renew(self, claim: WorkClaim[Row], until: float, *, late: bool) -> float:
        """Renew the claim; return until when it lives now, by the loop's clock."""
        asked = asyncio.get_running_loop().time()
        # Its token is good until somebody takes it up, so the store is asked even if it is late.
        patience_s = self._settings.heartbeat_every_s / 2 if late else self._pause_s(until)
        try:
            async with asyncio.timeout(patience_s):
                await self._change(claim.row, self.rules.renew(claim.row, self._ttl_ms))
        except (StaleLease, NotFound) as error:
            raise ClaimLost(str(error)) from error
        except (TapeError, TimeoutError) as error:
            if self._left_s(until) <= 0:
                raise ClaimLost(f"its claim was not renewed: {error!r}") from error
            self._renewing.failed(error)
            return until
        self._renewing.succeeded()
        return asked + self._settings.lease_ttl_s

    def _left_s(self, until: float) -> float:
        """How long it may go on with a claim that is not renewed: others may take it up at its end,
        and nothing of it must be under way by then.
        """
        too_late = until - self._settings.heartbeat_every_s / 2
        return too_late - asyncio.get_running_loop().time()

    def _pause_s(self, until: float) -> float:
        return max(0.0, min(self._settings.heartbeat_every_s, self._left_s(until)))

    async def _change(self, row: Row, write: RunWrite) -> Any:
        name = type(write).__name__
        boundary(f"before {name}")
        reply = await self._runs.change_run(row.run_id, write)
        boundary(f"after {name}")
        return reply
