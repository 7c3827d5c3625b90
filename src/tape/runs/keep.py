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
from tape.errors import NotFound, StaleLease, TapeError
from tape.model.run import Run
from tape.runs.operations import RunOperations

log = logging.getLogger("tape.runs")


@dataclass(slots=True, eq=False)
class _Held:
    run: Run
    until: float
    on_lost: Callable[[BaseException], None]
    on_renewed: Callable[[Run], None]


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

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    async def _renew_all(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_every_s)
            await asyncio.gather(*(self._renew(held) for held in list(self._held)))

    async def _renew(self, held: _Held) -> None:
        loop = asyncio.get_running_loop()
        asked = loop.time()
        run = held.run
        try:
            async with asyncio.timeout(max(0.0, held.until - asked)):
                renewed = await self._runs.heartbeat_run(run.run_id, run.fencing_token, self.ttl_ms)
        except (StaleLease, NotFound) as error:
            self._lose(held, error)
        except (TapeError, TimeoutError) as error:
            if loop.time() >= held.until - self._settings.heartbeat_every_s / 2:
                self._lose(held, error)
            else:
                log.warning("the lease of run %s was not renewed: %s", run.run_id, error)
        else:
            held.until = asked + self._settings.lease_ttl_s
            held.on_renewed(renewed)

    def _lose(self, held: _Held, error: BaseException) -> None:
        if held in self._held:
            self._held.discard(held)
            held.on_lost(error)
