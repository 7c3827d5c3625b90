"""Everything a worker does for runs: it drives those of its pool, and runs the reactors."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import Executor

from tape.model.lease import Taker
from tape.ports.polling import OpenPolledSource
from tape.runs.declare import Apps
from tape.runs.driving.drive import RunDriver
from tape.runs.driving.journal_writes import JournalOperations
from tape.runs.driving.lease_keeper import LeaseKeeper
from tape.runs.reactors.compensate import Compensation
from tape.runs.reactors.dispatch import EffectDispatch
from tape.runs.reactors.reactor import Listen, Reactor, react
from tape.runs.reactors.reconcile import Reconciler
from tape.runs.reactors.recovery import Recovery
from tape.runs.reactors.timers import Timers
from tape.settings import ReactorsSettings


class RunReactors:
    def __init__(
        self,
        operations: JournalOperations,
        apps: Apps,
        settings: ReactorsSettings,
        executor: Executor,
        *,
        owner: str,
        pool: str,
        other_pools: Iterable[str] = (),
        open_source: OpenPolledSource | None = None,
    ) -> None:
        runs = operations.runs
        self._settings = settings
        self._keeper = LeaseKeeper(runs, settings.recovery)
        driver = RunDriver(operations, self._keeper, executor, open_source)
        recoveries = [
            Recovery(
                runs,
                driver,
                apps,
                settings,
                Taker(owner, "recovery", self._keeper.ttl_ms, each),
                each,
            )
            for each in dict.fromkeys((pool, *other_pools))
        ]
        self._begins: list[Recovery | EffectDispatch | Reconciler | Compensation] = [
            *recoveries,
            EffectDispatch(runs, apps, executor, settings.outbox, owner),
            Reconciler(runs, apps, executor, settings.reconciler, owner),
            Compensation(runs, apps, executor, settings.compensation, owner),
        ]
        self._reactors: list[Reactor] = [*self._begins, Timers(runs)]

    async def work(self, listen: Listen, stop: asyncio.Event, grace_s: float) -> None:
        """Until `stop` is set; then let what is begun come to rest for a while, and go."""
        try:
            async with asyncio.TaskGroup() as group:
                for reactor in self._reactors:
                    group.create_task(react(reactor, listen, self._settings, stop))
            await self._drain(grace_s)
        finally:
            await self.close()

    async def close(self) -> None:
        """Let go of what is still being driven or in hand."""
        await self._drain(0)
        await self._keeper.close()

    async def once(self) -> int:
        """What can be done now, by every reactor in turn, until nothing is left; how much."""
        done = 0
        while did := sum([await reactor.once() for reactor in self._reactors]):
            done += did
            for reactor in self._begins:
                await reactor.settled()
        return done

    async def _drain(self, grace_s: float) -> None:
        await asyncio.gather(*(reactor.drain(grace_s) for reactor in self._begins))
