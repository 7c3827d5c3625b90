"""A desk for tests of drainers: a bus, a worker in the same process, and an app that counts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import orjson

from tape.bus import Bus
from tape.model.drainer import Drainer, DrainReport
from tape.model.event import NewEvent, Recorded
from tape.model.event_subscription import NewEventSubscription
from tape.programs.connect import open_bus
from tape.programs.worker import _listen
from tape.reactions.threads import HandlerThreads
from tape.runs.declare import App, Apps
from tape.runs.reactors.run_reactors import RunReactors
from tape.settings import DrainerSettings, Settings, SqliteSettings

QUICK = Settings(
    sqlite=SqliteSettings(poll_s=0.02), drainers=DrainerSettings(lease_s=5, retry_s=0.05)
)
PATIENCE_S = 60.0
TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"


@dataclass
class Desk:
    """`acts` are the inputs that the app has handled well, `tried` all, by the drainer they came
    from; it fails while the pair of drainer and number is in `broken`, and waits while `gate` is
    clear. `reached` is set when it has been called, and it takes `pause_s`."""

    bus: Bus
    url: str
    acts: list[Any] = field(default_factory=list)
    tried: list[Any] = field(default_factory=list)
    broken: set[tuple[str, int]] = field(default_factory=set)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    pause_s: float = 0.0
    _acted: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, _ctx: Any, given: dict[str, Any]) -> str:
        self.reached.set()
        await self.gate.wait()
        await asyncio.sleep(self.pause_s)
        key = (given.get("who", ""), given["n"] if "n" in given else given["payload"]["n"])
        self.tried.append(key)
        self._acted.set()
        if key in self.broken:
            raise ValueError(f"cannot do {key}")
        self.acts.append(key)
        return "done"

    async def until(self, holds: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Until it holds, looked at whenever the app is called."""
        async with asyncio.timeout(patience_s):
            while not holds():
                self._acted.clear()
                await self._acted.wait()

    async def subscribe(self, subscription_id: str, **fields: Any) -> None:
        mapper = {"n": "$.payload.n", "who": f"literal:{subscription_id}"}
        new = NewEventSubscription(subscription_id, "order.*", "desk")
        mapped = new._replace(input_mapper=orjson.dumps(mapper).decode())
        await self.bus.ledger.put_event_subscription(mapped._replace(**fields))

    async def record(self, *numbers: int, event_type: str = "order.placed") -> list[Recorded]:
        return await self.bus.record_events(
            [
                NewEvent(event_type, f'{{"n":{n}}}', trace_id=TRACE_ID, span_id=SPAN_ID)
                for n in numbers
            ]
        )

    async def drain_all(self, drainer_id: str, **options: Any) -> DrainReport:
        """Passes until there is no more, or it is stopped; the last one."""
        while (report := await self.bus.ledger.drain(drainer_id, **options)).more:
            assert report.processed
        return report

    async def drainer(self, drainer_id: str) -> Drainer:
        found = await self.bus._store.ledger.get_drainer(drainer_id)
        assert found is not None
        return found

    async def stuck_pass(self, **options: Any) -> "asyncio.Task[DrainReport]":
        """A pass that waits for the app, which waits for the gate."""
        self.gate.clear()
        self.reached.clear()
        task = asyncio.create_task(self.bus.ledger.drain(**options))
        await self.reached.wait()
        return task

    def done_by(self, subscription_id: str) -> list[int]:
        return [n for who, n in self.acts if who == subscription_id]


@asynccontextmanager
async def a_desk(
    url: str, settings: Settings = QUICK, *, working: bool = True
) -> AsyncIterator[Desk]:
    settings = replace(settings, reactors=replace(settings.reactors, poll_s=0.2))
    bus = await open_bus(url, settings)
    desk = Desk(bus, url)
    desk.gate.set()
    apps = Apps()
    apps.add_app(App("desk", desk.handle))
    executor = HandlerThreads(2)
    stop = asyncio.Event()
    reactors = RunReactors(bus, apps, settings.reactors, executor, owner="worker", pool="shared")
    work = reactors.work(partial(_listen, bus), stop, 5) if working else reactors.close()
    task = asyncio.create_task(work)
    try:
        yield desk
    finally:
        desk.gate.set()
        stop.set()
        await task
        executor.shutdown()
        await bus.close()
