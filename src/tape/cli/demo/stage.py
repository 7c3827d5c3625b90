"""What the acts share: the client, who follows, what was acknowledged and what was promised."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress

from tape.client import AsyncTapeClient
from tape.model.entry import Entry
from tape.model.event import NewEvent, Recorded
from tape.programs.worker import WorkerOptions, work

PATIENCE_S = 30


class Follower:
    """A live follower that can be sent away and comes back with nothing but its cursor."""

    def __init__(
        self, pattern: str, where: str = "", react: Callable[[Entry], Awaitable[None]] | None = None
    ) -> None:
        self.pattern = pattern
        self.where = where
        self.cursor = 0
        self.seen: list[int] = []
        self.undecided = 0
        self._react = react
        self._moved = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    def start(self, client: AsyncTapeClient) -> None:
        self._task = asyncio.create_task(self._follow(client))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def reach(self, global_seq: int) -> None:
        """Wait until the journal has been looked through that far."""
        if self._task is None:
            return
        waiting = asyncio.create_task(self._await_cursor(global_seq))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._task.done():
            self._task.result()

    async def replay(self, client: AsyncTapeClient) -> list[int]:
        """What somebody sees who reads the same from the start, afterwards."""
        async with client.follow(self.pattern, where=self.where, live=False) as entries:
            return [entry.global_seq async for entry in entries]

    async def _await_cursor(self, global_seq: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self.cursor >= global_seq)

    async def _follow(self, client: AsyncTapeClient) -> None:
        async with client.pages(self.pattern, where=self.where, after=self.cursor) as pages:
            async for page in pages:
                for entry in page.entries:
                    if self._react is not None:
                        await self._react(entry)
                self.seen += [entry.global_seq for entry in page.entries]
                self.undecided += page.skipped
                async with self._moved:
                    self.cursor = page.cursor
                    self._moved.notify_all()


@contextlib.asynccontextmanager
async def working(options: WorkerOptions, *loggers: str) -> AsyncIterator[None]:
    """Run a worker meanwhile. What these loggers would say is part of the play, and told there."""
    stop, ready = asyncio.Event(), asyncio.Event()
    logs = [logging.getLogger(name) for name in loggers]
    for log in logs:
        log.disabled = True
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(work(options, on_ready=lambda _ready: ready.set(), stop=stop))
            await ready.wait()
            try:
                yield
            finally:
                stop.set()
    finally:
        for log in logs:
            log.disabled = False


class Promise(NamedTuple):
    text: str
    held: bool


@dataclass(slots=True)
class Stage:
    """`events` is about how many the whole day has. `acknowledged` is where each idempotency key
    is, as its producer was told; `contradicted` counts producers that were told two places."""

    url: str
    client: AsyncTapeClient
    out: Console
    progress: Progress
    events: int
    rng: random.Random
    followers: dict[str, Follower] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    collapsed: int = 0
    contradicted: int = 0
    promises: list[Promise] = field(default_factory=list)

    def promise(self, text: str, held: bool) -> None:
        self.promises.append(Promise(text, held))
        mark = "[green]✓[/]" if held else "[bold red]✗ BROKEN:[/]"
        self.out.print(f"  {mark} {text}")

    def say(self, text: str) -> None:
        self.out.print(f"  [dim]{text}[/]")

    def note(self, key: str, recorded: Recorded) -> None:
        """A producer was told where its event is."""
        self.sent += 1
        self.collapsed += recorded.duplicate
        if self.acknowledged.setdefault(key, recorded.global_seq) != recorded.global_seq:
            self.contradicted += 1

    async def record(self, event: NewEvent) -> Recorded:
        (recorded,) = await self.record_many([event])
        return recorded

    async def record_many(self, events: list[NewEvent]) -> list[Recorded]:
        results = await self.client.record_many(events)
        for event, recorded in zip(events, results, strict=True):
            self.note(event.idempotency_key, recorded)
        return results

    async def settle(self) -> int:
        """Wait until every follower has seen all there is, what followers wrote included."""
        while True:
            head = (await self.client.info()).head_global_seq
            for follower in self.followers.values():
                await follower.reach(head)
            if (await self.client.info()).head_global_seq == head:
                return head
