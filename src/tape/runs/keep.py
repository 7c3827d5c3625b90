"""Keeping leases: one loop renews all that this process holds, at a third of their time.

A lease that the store does not renew in time is lost: the driver abandons its work before another
may take it up, and anything it still tries to write is refused by its token. Time counts from when
the lease, or its renewal, was asked for.

If this process stood still, because a function held up its event loop or because it was paused,
nobody has asked. Its token is good until somebody takes the run over, so the store is asked then.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from tape.config import ReactorSettings
from tape.errors import NotFound, StaleLease
from tape.model.run import Run
from tape.runs.operations import RunOperations

log = logging.getLogger("tape.runs")

LATE = 20
"""What comes later than this part of a heartbeat comes after a standstill."""


@dataclass(slots=True, eq=False)
class Held:
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
        self._held: set[Held] = set()
        self._renewing: asyncio.Task[None] | None = None

    @property
    def ttl_ms(self) -> int:
        return round(self._settings.lease_ttl_s * 1000)

    def hold(
        self,
        run: Run,
        on_lost: Callable[[BaseException], None],
        on_renewed: Callable[[Run], None],
        asked_at: float | None = None,
    ) -> Held:
        """Renew the run's lease until it is let go of. It was asked for then by the loop's clock,
        if not just now.
        """
        loop = asyncio.get_running_loop()
        held = Held(run, on_lost, on_renewed)
        self._held.add(held)
        self._granted(held, loop.time() if asked_at is None else asked_at)
        if self._renewing is None:
            self._renewing = loop.create_task(self._renew_all(), name="tape-leases")
        return held

    def let_go(self, held: Held) -> None:
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
            for held in self._held:
                if held.renewing is None or held.renewing.done():  # one that hangs is let be
                    held.renewing = asyncio.create_task(self._renew(held))

    async def _renew(self, held: Held) -> None:
        asked_at = asyncio.get_running_loop().time()
        run = held.run
        try:
            renewed = await self._runs.heartbeat_run(run.run_id, run.fencing_token, self.ttl_ms)
        except (StaleLease, NotFound) as error:
            self._lose(held, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the lease is not renewed
            held.error = error
            log.warning("the lease of run %s was not renewed: %r", run.run_id, error)
        else:
            if held not in self._held:
                return
            held.on_renewed(renewed)
            if asyncio.get_running_loop().time() < self._too_late(asked_at):
                self._granted(held, asked_at)
            else:  # this process stood still before it came to the answer
                held.renewing = asyncio.create_task(self._renew(held))

    def _granted(self, held: Held, asked_at: float) -> None:
        held.error = None
        self._give_up_at(held, self._too_late(asked_at))

    def _too_late(self, asked_at: float) -> float:
        """Who has not renewed a lease by then must let it be."""
        return asked_at + self._settings.lease_ttl_s - self._settings.heartbeat_every_s / 2

    def _give_up_at(self, held: Held, too_late: float) -> None:
        if held.giving_up is not None:
            held.giving_up.cancel()
        loop = asyncio.get_running_loop()
        held.give_up_at = max(too_late, loop.time())
        held.giving_up = loop.call_at(held.give_up_at, self._give_up, held)

    def _give_up(self, held: Held) -> None:
        now, every_s = asyncio.get_running_loop().time(), self._settings.heartbeat_every_s
        if now - held.give_up_at < every_s / LATE:
            self._lose(held, held.error or TimeoutError("its lease was not renewed in time"))
            return
        self._give_up_at(held, now + every_s / 2)  # this process stood still
        if held.renewing is None or held.renewing.done():
            held.renewing = asyncio.create_task(self._renew(held))

    def _lose(self, held: Held, error: BaseException) -> None:
        if held in self._held:
            self._let_be(held)
            held.on_lost(error)

    def _let_be(self, held: Held) -> None:
        self._held.discard(held)
        if held.giving_up is not None:
            held.giving_up.cancel()
