"""A live follower that can be sent away and comes back with nothing but its cursor."""

import asyncio
from collections.abc import Awaitable, Callable

from tape.client import AsyncTapeClient
from tape.model.entry import Entry

PATIENCE_S = 30


class Follower:
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
