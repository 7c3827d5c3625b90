"""Keeping leases: one loop renews all that this process holds, at a third of their time.

A lease that the store does not renew in time is lost: the driver abandons its work before another
may take it up, and anything it still tries to write is refused by its token. Time counts from when
the lease, or its renewal, was asked for.

If this process stood still, because a function held up its event loop or because it was paused,
or if the answer that granted the lease was long on its way, nobody has asked for a renewal. The
token is good until somebody takes the run over, so the store is asked before the lease is given up.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from tape.errors import NotFound, StaleLease
from tape.model.run import Run
from tape.runs.operations import RunOperations
from tape.settings import ReactorSettings
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.runs")

LATE = 20
"""What comes later than this part of a heartbeat comes after a standstill."""


@dataclass(slots=True, eq=False)
class KeptLease:
    """A lease that is kept."""

    run: Run
    on_lost: Callable[[BaseException], None]
    on_renewed: Callable[[Run], None]
    renewing: asyncio.Task[None] | None = None
    giving_up: asyncio.TimerHandle | None = None
    give_up_at: float = 0.0
    error: BaseException | None = None
    """Why it could not be renewed the last time."""


class LeaseKeeper:
    def __init__(self, runs: RunOperations, settings: ReactorSettings) -> None:
        self._runs = runs
        self._settings = settings
        self._held: set[KeptLease] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._beat_at = 0.0
        """When the leases were last asked for, all of them."""
        self._retrying = Retrying(log, "renewing the leases of runs")

    @property
    def ttl_ms(self) -> int:
        return round(self._settings.lease_ttl_s * 1000)

    def hold(
        self,
        run: Run,
        on_lost: Callable[[BaseException], None],
        on_renewed: Callable[[Run], None],
        asked_at: float | None = None,
    ) -> KeptLease:
        """Renew the run's lease until it is let go of. It was asked for then by the loop's clock,
        if not just now.
        """
        loop = asyncio.get_running_loop()
        held = KeptLease(run, on_lost, on_renewed)
        self._held.add(held)
        if self._renewing is None:
            self._beat_at = loop.time()
            self._renewing = loop.create_task(self._renew_all(), name="tape-leases")
        if not self._granted(held, loop.time() if asked_at is None else asked_at):
            self._ask_first(held)
        return held

    def let_go(self, held: KeptLease) -> None:
        """Renew it no more."""
        self._let_be(held)
        if held.renewing is not None:
            held.renewing.cancel()

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    async def _renew_all(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_every_s)
            stood_still = self._stood_still()
            self._beat_at = asyncio.get_running_loop().time()
            for held in self._held:
                if stood_still:
                    self._ask_first(held)
                else:
                    self._ask(held)

    def _ask(self, held: KeptLease) -> None:
        if held.renewing is None or held.renewing.done():  # one that hangs is let be
            held.renewing = asyncio.create_task(self._renew(held))

    def _ask_first(self, held: KeptLease) -> None:
        """Give the store time to answer before the lease is given up."""
        now = asyncio.get_running_loop().time()
        self._give_up_at(held, max(held.give_up_at, now + self._settings.heartbeat_every_s / 2))
        self._ask(held)

    async def _renew(self, held: KeptLease) -> None:
        asked_at = asyncio.get_running_loop().time()
        run = held.run
        try:
            renewed = await self._runs.heartbeat_run(run.run_id, run.fencing_token, self.ttl_ms)
        except (StaleLease, NotFound) as error:
            self._lose(held, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the lease is not renewed
            held.error = error
            self._retrying.failed(error)
        else:
            self._retrying.succeeded()
            if held not in self._held:
                return
            held.on_renewed(renewed)
            in_time = self._granted(held, asked_at)
            took_s = asyncio.get_running_loop().time() - asked_at
            if not in_time and took_s > self._settings.heartbeat_every_s:
                held.renewing = asyncio.create_task(self._renew(held))

    def _granted(self, held: KeptLease, asked_at: float) -> bool:
        """Keep it from then on; whether the next heartbeat is in time to renew it."""
        held.error = None
        every_s, now = self._settings.heartbeat_every_s, asyncio.get_running_loop().time()
        too_late = asked_at + self._settings.lease_ttl_s - every_s / 2
        if too_late > held.give_up_at:
            self._give_up_at(held, too_late)
        return max(now, self._beat_at + every_s) < too_late

    def _give_up_at(self, held: KeptLease, when: float) -> None:
        if held.giving_up is not None:
            held.giving_up.cancel()
        held.give_up_at = when
        held.giving_up = asyncio.get_running_loop().call_at(when, self._give_up, held)

    def _give_up(self, held: KeptLease) -> None:
        late_s = asyncio.get_running_loop().time() - held.give_up_at
        if self._stood_still() or late_s >= self._settings.heartbeat_every_s / LATE:
            self._ask_first(held)
        else:
            self._lose(held, held.error or TimeoutError("its lease was not renewed in time"))

    def _stood_still(self) -> bool:
        """Whether the leases should have been asked for by now, and were not."""
        every_s = self._settings.heartbeat_every_s
        return asyncio.get_running_loop().time() > self._beat_at + every_s + every_s / LATE

    def _lose(self, held: KeptLease, error: BaseException) -> None:
        if held in self._held:
            self._let_be(held)
            held.on_lost(error)

    def _let_be(self, held: KeptLease) -> None:
        self._held.discard(held)
        if held.giving_up is not None:
            held.giving_up.cancel()
