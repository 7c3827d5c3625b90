"""Testing an app: with a clock that is moved, crashes wherever it can crash, and its journal.

    async def test_a_sweep_survives_everything(tmp_path):
        async for crash in crashes(tmp_path, treasury, {"floor_cents": 0}):
            run = await crash.recovered()
            assert run.status == tape.RunStatus.TERMINAL
            assert crash.journal.effects("sweep") == ["confirmed"]

A crash is as good as a kill: what is in memory is gone, nothing more is written, and the lease
stays until it runs out. Another worker then goes on, at a time that is moved there.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tape.bus import Bus, Operations
from tape.client.run_calls import RunMethods
from tape.model.entry import Entry
from tape.model.run import DEFAULT_POOL, Run
from tape.ports.clock import system_clock
from tape.ports.polling import OpenPolledSource
from tape.reactions.threads import HandlerThreads
from tape.runs.boundary import set_boundary_hook
from tape.runs.declare import DECLARED_APPS, App, Apps
from tape.runs.driving import pen
from tape.runs.driving.replay import ReplayLog
from tape.runs.reactors.run_reactors import RunReactors
from tape.settings import Settings
from tape.stores.by_url import open_store

ROUNDS = 100
"""So often a test kit moves on to what is due next before it gives up."""


class MovedClock:
    """A clock for tests: it stands still until it is moved."""

    def __init__(self) -> None:
        self._now_ms = system_clock()

    def __call__(self) -> int:
        return self._now_ms

    def advance(self, seconds: float) -> None:
        self._now_ms += round(seconds * 1000)


@dataclass(frozen=True, slots=True)
class RunJournal:
    """A run's journal, for assertions."""

    entries: Sequence[Entry]

    @property
    def subjects(self) -> list[str]:
        """Kind and verb of each entry, in order: `effect/pending`, `gate/released`…"""
        return ["/".join(entry.subject.split("/")[2:4]) for entry in self.entries]

    @property
    def steps(self) -> list[str]:
        """What the app did, in order: `effect pending sweep`…"""
        log = ReplayLog()
        log.add(self.entries)
        found = []
        while (step := log.peek()) is not None:
            log.take(step.kind, step.name)
            found.append(str(step))
        return found

    def effects(self, tool_name: str) -> list[str]:
        """The status of each call of an effect."""
        log = ReplayLog()
        log.add(self.entries)
        return [
            state.status for key, state in log.effects.items() if key.split("/")[-2] == tool_name
        ]

    def tokens(self) -> list[int]:
        """The fencing tokens of the leases it was granted."""
        return [
            entry.payload["fencing_token"]
            for entry in self.entries
            if entry.kind == "run" and "owner" in entry.payload
        ]


class AppKit(RunMethods):
    """Tape on a file, with a clock that you move and a worker that works when you call it."""

    def __init__(
        self,
        bus: Bus,
        clock: MovedClock,
        apps: Apps,
        settings: Settings,
        open_source: OpenPolledSource | None = None,
    ) -> None:
        self._operations: Operations = bus
        self._polled = open_source
        self.clock = clock
        self._apps = apps
        self._settings = settings
        self._threads = HandlerThreads(8)
        self._workers = 0

    async def settle(
        self, run_id: str = "", *, is_over: Callable[[], bool] = lambda: False
    ) -> Run | None:
        """Do all work that is due, and move the clock to the next due time, until nothing is left.

        A run that waits for a signal keeps waiting. Returns the run with that id.
        """
        for _ in range(ROUNDS):
            await self.work()
            if is_over():
                break
            due_ms = await self._operations.runs.next_timer_in_ms()
            if due_ms is None:
                break
            self.clock.advance(due_ms / 1000)
        return await self.get_run(run_id) if run_id else None

    async def work(self, pool: str = DEFAULT_POOL) -> int:
        """Do the work that a worker of that pool would find now, without moving the clock."""
        self._workers += 1
        reactors = RunReactors(
            self._operations,
            self._apps,
            self._settings.reactors,
            self._threads,
            owner=f"test-worker-{self._workers}",
            pool=pool,
            open_source=self._polled,
        )
        try:
            return await reactors.once()
        finally:
            await reactors.close()

    async def close(self) -> None:
        await self._stop_running_here()
        self._threads.shutdown()
        await self._operations.close()

    async def journal(self, run_id: str) -> RunJournal:
        return RunJournal(await self.read_run(run_id))


@asynccontextmanager
async def app_kit(
    folder: Path,
    *,
    apps: Apps | None = None,
    settings: Settings | None = None,
    clock: MovedClock | None = None,
    open_source: OpenPolledSource | None = None,
) -> AsyncIterator[AppKit]:
    """Open a kit on `tape.db` in that folder. An existing file keeps its content.

    `open_source` opens what apps poll, such as `tape.testing.polling.MessagesToPoll`.
    """
    settings = settings or Settings()
    clock = clock or MovedClock()
    store = await open_store(f"sqlite:{folder / 'tape.db'}", settings, clock=clock)
    bus = Bus(store, settings)
    kit = AppKit(bus, clock, apps or DECLARED_APPS, settings, open_source)
    try:
        yield kit
    finally:
        await kit.close()


class Crashed(BaseException):
    """The process ended here."""


@dataclass(slots=True)
class Boundaries:
    """Counts the places where a run can crash, and crashes it at one of them."""

    crash_at: int = 0
    names: list[str] = field(default_factory=list)

    def has_crashed(self) -> bool:
        return 0 < self.crash_at <= len(self.names)

    def __call__(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self.crash_at:
            raise Crashed(name)
        if self.crash_at and len(self.names) > self.crash_at:
            raise Crashed(f"{name}, after it had crashed")


@dataclass(slots=True)
class Crash:
    """A run that crashed at one boundary. `recovered` lets another worker finish it."""

    number: int
    boundary: str
    run_id: str
    folder: Path
    clock: MovedClock
    apps: Apps | None
    settings: Settings
    journal: RunJournal = field(default_factory=lambda: RunJournal(()))
    open_source: OpenPolledSource | None = None

    async def recovered(self) -> Run:
        """Let another worker finish the run after the dead worker's lease, and return the run."""
        async with app_kit(
            self.folder, apps=self.apps, settings=self.settings, clock=self.clock,
            open_source=self.open_source,
        ) as kit:  # fmt: skip
            reactors = self.settings.reactors
            leases = (reactors.recovery, reactors.outbox, reactors.reconciler,
                      reactors.compensation)  # fmt: skip
            self.clock.advance(max(lease.lease_ttl_s for lease in leases) + 1)
            run = await kit.settle(self.run_id)
            if run is None:
                raise AssertionError(f"{self.run_id} was begun and is gone")
            self.journal = await kit.journal(self.run_id)
            return run


async def crashes(
    folder: Path,
    app: App[Any],
    payload: Any = None,
    *,
    apps: Apps | None = None,
    settings: Settings | None = None,
    signals: Sequence[tuple[str, Any]] = (),
    open_source: Callable[[], OpenPolledSource | None] = lambda: None,
) -> AsyncIterator[Crash]:
    """Run the app once for each boundary, with a crash there.

    `signals` are sent when the run has started. Each crash has its own folder, and what
    `open_source` returns opens the sources that the app polls.
    """
    settings = settings or Settings()
    loop = asyncio.get_running_loop()
    before, linger_s = loop.get_exception_handler(), pen.LINGER_S
    loop.set_exception_handler(_without_crashes)
    pen.LINGER_S = 3600.0  # what goes out by itself goes out sooner or later, never the same
    try:
        async for crash in _crashes(
            folder, app, payload, apps=apps, settings=settings, signals=signals,
            open_source=open_source,
        ):  # fmt: skip
            yield crash
    finally:
        gc.collect()  # what the crashed left behind, while nobody is told
        loop.set_exception_handler(before)
        pen.LINGER_S = linger_s


async def _crashes(
    folder: Path,
    app: App[Any],
    payload: Any,
    *,
    apps: Apps | None,
    settings: Settings,
    signals: Sequence[tuple[str, Any]],
    open_source: Callable[[], OpenPolledSource | None],
) -> AsyncIterator[Crash]:
    number, more = 0, True
    while more:
        number += 1
        place = folder / f"crash-{number}"
        place.mkdir()
        boundaries, clock, polled = Boundaries(number), MovedClock(), open_source()
        async with app_kit(
            place, apps=apps, settings=settings, clock=clock, open_source=polled
        ) as kit:
            run = await kit.start_run(app, payload, invocation_id="under-test")
            for gate_name, resolution in signals:
                await kit.send_signal(run.run_id, gate_name, resolution)
            set_boundary_hook(boundaries)
            try:
                await kit.settle(is_over=boundaries.has_crashed)
                more = boundaries.has_crashed()
            except (Crashed, BaseExceptionGroup):
                if not boundaries.has_crashed():
                    raise
            finally:
                set_boundary_hook(None)
        if more:
            yield Crash(
                number,
                boundaries.names[number - 1],
                run.run_id,
                place,
                clock,
                apps,
                settings,
                open_source=polled,
            )


def _without_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A task that has crashed is never asked for its result, as in a process that was killed."""
    if not isinstance(context.get("exception"), Crashed):
        loop.default_exception_handler(context)
