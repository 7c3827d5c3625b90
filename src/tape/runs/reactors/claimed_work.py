"""The work that a reactor has claimed: several pieces at once, each under a claim of its own.

take ──> claimed ──> held: the act, while its claim is renewed ──> written under its token
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic

from tape.errors import NotFound, TapeError
from tape.ports.backoffs import Backoffs
from tape.runs.reactors.claims import ClaimKeeper, ClaimLost, Row, WorkClaim
from tape.telemetry import metrics

log = logging.getLogger("tape.reactors")

MOST = 32
LOOK = 200
"""How many pieces of work are looked for, besides those that are not to be had."""
FULL_S = 1.0
"""How long a reactor that can claim no more waits for one piece to end before it looks again."""
LATE_S = 0.005
"""What is looked for a moment too early is found only at the next look."""
REFUSED_FIRST_S = 0.25
REFUSED_MOST_S = 10.0

Work = Callable[[WorkClaim[Row]], Coroutine[Any, Any, None]]


class ClaimedWork(Generic[Row]):
    def __init__(self, claims: ClaimKeeper[Row]) -> None:
        self.claims = claims
        self._busy: set[asyncio.Task[None]] = set()
        self._refusals = Backoffs(REFUSED_FIRST_S, REFUSED_MOST_S)
        self._aside = 0
        self._due: list[float] = []

    async def take(
        self,
        look: Callable[[int], Awaitable[Sequence[Row]]],
        is_ours: Callable[[Row], bool],
        work: Work[Row],
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
            self._refusals.forget_others(set(map(self._name, found)))
            ours = [row for row in found if is_ours(row) and self._name(row) not in self._refusals]
            taken, refused = await self._claim_each(ours, work)
            for row in refused:
                self._refusals.add(self._name(row))
            self._aside = sum(
                not is_ours(row) or self._name(row) in self._refusals for row in found
            )
            if taken or self._aside <= aside:
                return taken

    async def take_these(self, rows: Sequence[Row], work: Work[Row]) -> int:
        """Claim as many as there is room for, and begin; how many were got."""
        taken, _ = await self._claim_each(rows, work)
        return taken

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

    async def _claim_each(self, rows: Sequence[Row], work: Work[Row]) -> tuple[int, list[Row]]:
        """How many were got and begun, and which were not to be had."""
        taken, refused, rest = 0, list[Row](), rows
        while rest and (room := MOST - len(self._busy)) > 0:
            some, rest = rest[:room], rest[room:]
            claims = await asyncio.gather(*map(self.claims.claim, some), return_exceptions=True)
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
        return row.run_id, self.claims.rules.describe(row)

    def _begin(self, claim: WorkClaim[Row], work: Coroutine[Any, Any, None]) -> None:
        reactor, what = self.claims.reactor, self.claims.rules.describe(claim.row)
        task = asyncio.create_task(self._do(what, work), name=f"tape-{reactor}")
        self._busy.add(task)
        metrics.REACTOR_WORK.labels(reactor).inc()
        metrics.REACTOR_IN_HAND.labels(reactor).inc()
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._busy.discard(task)
        metrics.REACTOR_IN_HAND.labels(self.claims.reactor).dec()

    async def _do(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        reactor = self.claims.reactor
        try:
            await work
        except (ClaimLost, TapeError) as error:
            log.warning("%s: %s is left to other workers: %s", reactor, what, error)
        except Exception:
            log.exception("%s: %s failed unexpectedly", reactor, what)


class ClaimReactor(Generic[Row]):
    """What reactors that work under claims have in common."""

    def __init__(self, claims: ClaimKeeper[Row]) -> None:
        self._claims = claims
        self._work = ClaimedWork(claims)

    async def due_in_s(self) -> float | None:
        return self._work.due_in_s()

    async def settled(self) -> None:
        """Wait until nothing that `once` has begun is in hand."""
        await self._work.settled()

    async def drain(self, grace_s: float) -> None:
        """Let what is in hand be finished for so long; then abandon it to others."""
        await self._work.drain(grace_s)
