"""Runs on a SQLite file whose clock stands still until a test moves it, with a driver for apps."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, cast

from tape.bus import Bus
from tape.model.effect import Effect, EffectStatus
from tape.model.lease import Taker
from tape.model.obligation import Obligation, ObligationStatus
from tape.model.run import Run, RunStatus
from tape.model.run_end import CancelRun
from tape.model.run_write import RunWrite
from tape.runs.declare import App, Apps
from tape.runs.driving.drive import RunDriver
from tape.runs.driving.lease_keeper import LeaseKeeper
from tape.runs.driving.run_here import new_run
from tape.runs.operations import RunOperations
from tape.runs.reactors.compensate import Compensation
from tape.runs.reactors.dispatch import EffectDispatch
from tape.runs.reactors.reconcile import Reconciler
from tape.runs.reactors.recovery import Recovery
from tape.settings import ReactorSettings, ReactorsSettings, Settings
from tape.stores.by_url import open_store

TTL_S = 30.0
SETTINGS = ReactorsSettings()


class Clock:
    """The store's: it moves only when told to."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    def pass_s(self, seconds: float) -> None:
        self.now_ms += round(1000 * seconds)


class Watched:
    """Operations on runs that tell of each write from outside, and can be made to refuse some."""

    def __init__(self, runs: RunOperations) -> None:
        self._runs = runs
        self.writes: list[RunWrite] = []
        self.refusals: dict[type, list[Exception]] = {}
        self._seen: dict[type, asyncio.Event] = {}

    async def change_run(self, run_id: str, write: RunWrite) -> Any:
        self.writes.append(write)
        try:
            refusals = self.refusals.get(type(write))
            if refusals:
                raise refusals.pop(0)
            return await self._runs.change_run(run_id, write)
        finally:
            self.seen(type(write)).set()

    def seen(self, kind: type) -> asyncio.Event:
        return self._seen.setdefault(kind, asyncio.Event())

    def counts(self) -> Counter[str]:
        return Counter(type(write).__name__ for write in self.writes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)


class World:
    def __init__(self, bus: Bus, clock: Clock, executor: ThreadPoolExecutor) -> None:
        self.bus = bus
        self.runs = bus.runs
        self.clock = clock
        self.apps = Apps()
        self.executor = executor
        self._keeper = LeaseKeeper(bus.runs, SETTINGS.recovery)
        taker = Taker("driver", "recovery", self._keeper.ttl_ms)
        driver = RunDriver(bus, self._keeper, executor)
        self.recovery = Recovery(bus.runs, driver, self.apps, SETTINGS, taker, "shared")

    async def close(self) -> None:
        await self.recovery.drain(0)
        await self._keeper.close()

    async def begin(self, app: App[Any], payload: Any = None) -> Run:
        """A run of the app, as far as it goes by itself."""
        begun = await self.runs.begin_run(new_run(app, payload))
        await self.drive()
        return await self.run(begun.run.run_id)

    async def drive(self) -> None:
        while await self.recovery.once():
            await self.recovery.settled()

    async def cancel(self, run: Run) -> None:
        await self.runs.change_run(run.run_id, CancelRun("never mind"))

    async def run(self, run_id: str) -> Run:
        run = await self.runs.get_run(run_id)
        assert run is not None
        return run

    async def status(self, run: Run) -> RunStatus:
        return RunStatus((await self.run(run.run_id)).status)

    async def effect(self, run: Run, tool: str, call: int = 0) -> Effect:
        row = await self.runs.get_effect(run.run_id, f"{run.run_id}/decision-0/{tool}/{call}")
        assert row is not None
        return row

    async def effect_status(self, run: Run, tool: str, call: int = 0) -> EffectStatus:
        return EffectStatus((await self.effect(run, tool, call)).status)

    async def obligations(self, run: Run) -> dict[str, ObligationStatus]:
        """Newest first, by kind."""
        rows: list[Obligation] = await self.runs.list_obligations(run.run_id)
        return {row.kind: ObligationStatus(row.status) for row in rows}

    async def verbs(self, run: Run) -> list[str]:
        entries = await self.runs.read_run(run.run_id, 0)
        return ["{2} {3}".format(*entry.subject.split("/")) for entry in entries]

    def watched(self) -> Watched:
        return Watched(self.runs)

    def outbox(
        self, owner: str = "a", settings: ReactorSettings | None = None, runs: Any = None
    ) -> EffectDispatch:
        chosen = settings or ReactorSettings(lease_ttl_s=TTL_S)
        return EffectDispatch(self._of(runs), self.apps, self.executor, chosen, owner)

    def reconciler(self, owner: str = "a", runs: Any = None, **options: Any) -> Reconciler:
        settings = ReactorSettings(lease_ttl_s=TTL_S)
        return Reconciler(self._of(runs), self.apps, self.executor, settings, owner, **options)

    def compensation(self, owner: str = "a", runs: Any = None, **options: Any) -> Compensation:
        settings = ReactorSettings(lease_ttl_s=TTL_S)
        return Compensation(self._of(runs), self.apps, self.executor, settings, owner, **options)

    def _of(self, runs: Any) -> RunOperations:
        return cast("RunOperations", runs or self.runs)


@asynccontextmanager
async def a_world(url: str) -> AsyncIterator[World]:
    clock, settings = Clock(), Settings()
    bus = Bus(await open_store(url, settings, clock=clock), settings)
    with ThreadPoolExecutor(4) as executor:
        world = World(bus, clock, executor)
        try:
            yield world
        finally:
            await world.close()
            await bus.close()


async def settle(*reactors: Any) -> int:
    """Until none of them finds anything to do and nothing is in hand; how much there was."""
    done, did = 0, 1
    while did:
        for reactor in reactors:
            await reactor.settled()
        did = sum([await reactor.once() for reactor in reactors])
        done += did
    return done
