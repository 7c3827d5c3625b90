"""A stream of items that a reader can leave at any time, from any task."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

Batches = AsyncGenerator[Sequence[T], None]


class Stream(Generic[T]):
    """Items as they come: `async for item in stream`.

    Leave it with `await stream.aclose()`, or hold it with `async with`, which also fixes where it
    starts before the block is entered. A reader that waits when it is closed sees it end.
    """

    def __init__(self, start: Callable[[], Awaitable[Batches[T]]]) -> None:
        self._start = start
        self._batches: Batches[T] | None = None
        self._fetching: asyncio.Task[Sequence[T] | None] | None = None
        self._items: Iterator[T] = iter(())
        self._closed = False

    async def __aenter__(self) -> "Stream[T]":
        self._batches = await self._start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    def __aiter__(self) -> "Stream[T]":
        return self

    async def __anext__(self) -> T:
        while True:
            for item in self._items:
                return item
            batch = await self.next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._items = iter(batch)

    async def next_batch(self) -> Sequence[T] | None:
        """The next items together, at least one; None at the end."""
        if self._closed:
            return None
        # A task of its own, so that closing can end the wait without cancelling the reader.
        self._fetching = fetching = asyncio.create_task(self._fetch())
        try:
            await asyncio.wait((fetching,))
        finally:
            fetching.cancel()
        batch = None if fetching.cancelled() else fetching.result()
        if batch is None:
            await self.aclose()
        return batch

    async def aclose(self) -> None:
        self._closed = True
        self._items = iter(())
        if self._fetching is not None and not self._fetching.done():
            self._fetching.cancel()
            await asyncio.wait((self._fetching,))
        if self._batches is not None:
            await self._batches.aclose()

    async def _fetch(self) -> Sequence[T] | None:
        if self._batches is None:
            self._batches = await self._start()
        async for batch in self._batches:
            if batch:
                return batch
        return None
