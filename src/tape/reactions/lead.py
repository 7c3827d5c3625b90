"""The leader: of all processes on one journal, the one that holds the matcher's lease.

It matches, takes back tasks whose holder is gone, and begins the runs of `agent` reactions. The
others ask for the lease every second or so; when the leader is gone for `ttl_s`, one of them gets
it.
"""

import asyncio
import contextlib
import logging
from typing import Protocol

from tape.errors import TapeError
from tape.journal.ids import UlidFactory
from tape.journal.pacer import Pacer
from tape.journal.writer import Writer
from tape.model.task import ExpireTasks
from tape.ports.matching import MatcherLease
from tape.ports.store import Store
from tape.reactions.match import LeaseLost, Matcher
from tape.settings import MatcherSettings
from tape.telemetry import metrics
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.leader")

EXPIRED_AT_ONCE = 500
LOOKING_SHARE = 0.05
"""The part of the time that looking for expired leases may take."""


class BeginRuns(Protocol):
    async def __call__(self, owner: str, reaction_ids: list[str]) -> None:
        """Claim tasks of these and begin their runs; returns when there are none for now."""


class Leader:
    def __init__(
        self,
        store: Store,
        writer: Writer,
        ids: UlidFactory,
        settings: MatcherSettings,
        begin_runs: BeginRuns,
        *,
        pacer: Pacer | None = None,
    ) -> None:
        self._store = store
        self._writer = writer
        self._ids = ids
        self._settings = settings
        self._begin_runs = begin_runs
        self._pacer = pacer or Pacer()
        self._owner = f"matcher-{next(ids)}"
        self._lease: MatcherLease | None = None
        self._retrying = Retrying(log, "matching")

    async def run(self) -> None:
        """Lead whenever nobody else does, until cancelled."""
        try:
            while True:
                try:
                    self._lease = await self._acquire()
                    await self._lead(self._lease)
                except* LeaseLost:
                    log.warning("another process has taken over matching")
                except* TapeError as errors:
                    self._retrying.failed(errors.exceptions[0])
                except* Exception:  # whatever it is, reactions must not stop for good
                    log.exception("matching failed, trying again")
                self._lease = None
                metrics.MATCHER_LEADING.set(0)
                await asyncio.sleep(self._settings.ttl_s / 3)
        finally:
            metrics.MATCHER_LEADING.set(0)
            await self._release()

    async def _acquire(self) -> MatcherLease:
        while True:
            lease = await self._store.matching.acquire_matcher(
                self._owner, int(self._settings.ttl_s * 1000)
            )
            if lease is not None:
                self._retrying.succeeded()
                log.info("matching from entry %d on", lease.position)
                return lease
            await asyncio.sleep(self._settings.ttl_s / 3)

    async def _lead(self, lease: MatcherLease) -> None:
        matcher = Matcher(self._store, lease, self._settings, self._pacer)
        metrics.MATCHER_LEADING.set(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(matcher.run(), name="tape-matcher")
            group.create_task(self._take_back(), name="tape-expiry")
            group.create_task(self._begin(matcher), name="tape-agents")

    async def _take_back(self) -> None:
        """Tasks whose lease has run out go back to the queue, or to the dead letters."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            keys = await self._store.tasks.read_expired(EXPIRED_AT_ONCE)
            took = loop.time() - started
            if keys:
                ids = list(self._ids.take(len(keys)))
                count = await self._writer.submit(ExpireTasks(keys, ids))
                if count:  # whoever was late may have renewed them after all
                    log.warning("the leases of %d tasks ran out", count)
            if len(keys) < EXPIRED_AT_ONCE:
                await asyncio.sleep(max(self._settings.expiry_s, took / LOOKING_SHARE))

    async def _begin(self, matcher: Matcher) -> None:
        while True:
            heard = self._store.tasks.task_bell
            if matcher.agents:
                await self._begin_runs(self._owner, matcher.agents)
            await self._store.tasks.await_tasks(heard, self._settings.expiry_s)

    async def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            with contextlib.suppress(TapeError):
                await self._store.matching.release_matcher(lease)
