"""Keeping leases: one loop renews all that this process holds, at a third of their time.

A lease that cannot be renewed in time is lost, whoever is to blame: the driver abandons its work,
and anything it still tries to write is refused by its token.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tape.config import ReactorSettings
from tape.errors import NotFound, StaleLease
from tape.model.run import Run
from tape.runs.operations import RunOperations

log = logging.getLogger("tape.runs")


@dataclass(slots=True, eq=False)
class _Held:
    run: Run
    until: float
    on_lost: Callable[[BaseException], None]
    on_renewed: Callable[[Run], None]
    renewing: asyncio.Task[None] | None = None


class LeaseKeeper:
    def __init__(self, runs: RunOperations, settings: ReactorSettings) -> None:
        self._runs = runs
        self._settings = settings
        self._held: set[_Held] = set()
        self._renewing: asyncio.Task[None] | None = None

    @property
    def ttl_ms(self) -> int:
        return round(self._settings.lease_ttl_s * 1000)

    @contextmanager
    def holding(
        self,
        run: Run,
        on_lost: Callable[[BaseException], None],
        on_renewed: Callable[[Run], None],
    ) -> Iterator[None]:
        """While in here the run's lease is renewed."""
        loop = asyncio.get_running_loop()
        held = _Held(run, loop.time() + self._settings.lease_ttl_s, on_lost, on_renewed)
        self._held.add(held)
        if self._renewing is None:
            self._renewing = loop.create_task(self._renew_all(), name="tape-leases")
        try:
            yield
        finally:
            self._held.discard(held)
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

    async def _renew(self, held: _Held) -> None:
        loop = asyncio.get_running_loop()
        asked = loop.time()
        run = held.run
        try:
            async with asyncio.timeout_at(self._too_late(held)):
                renewed = await self._runs.heartbeat_run(run.run_id, run.fencing_token, self.ttl_ms)
        except (StaleLease, NotFound) as error:
            self._lose(held, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the lease is not renewed
            self._not_renewed(held, error)
        else:
            held.until = asked + self._settings.lease_ttl_s
            held.on_renewed(renewed)

    def _not_renewed(self, held: _Held, error: Exception) -> None:
        log.warning("the lease of run %s was not renewed: %r", held.run.run_id, error)
        until = held.until

        def give_up() -> None:
            if held.until == until:
                self._lose(held, error)

        asyncio.get_running_loop().call_at(self._too_late(held), give_up)

    def _too_late(self, held: _Held) -> float:
        """Who has not renewed a lease by then must let it be, before another may take it."""
        return held.until - self._settings.heartbeat_every_s / 2

    def _lose(self, held: _Held, error: BaseException) -> None:
        if held in self._held:
            self._held.discard(held)
            held.on_lost(error)
