"""The line in which the steps of an app come to its journal: the order in which they were begun.

Several branches of an app may be at a step at once. A replay comes to them in the order in which
they are begun, so they must be recorded in that order. A step that is recorded as soon as it is
begun just has its place. One that is recorded later, such as a decision that is being asked for,
holds its place until then, and what is begun behind it waits.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Line:
    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None

    @contextmanager
    def place(self) -> Iterator["Place"]:
        """A place behind all who are in line now, left at the end."""
        before, done = self._last, asyncio.get_running_loop().create_future()
        self._last = done
        try:
            yield Place(before)
        finally:
            if before is None or before.done():
                self._leave(done)
            else:  # whoever gives up lets nobody by
                before.add_done_callback(lambda _before: self._leave(done))

    def _leave(self, done: "asyncio.Future[None]") -> None:
        done.set_result(None)
        if self._last is done:
            self._last = None


class Place:
    def __init__(self, before: "asyncio.Future[None] | None") -> None:
        self._before = before

    async def come_up(self) -> None:
        """Wait for those who were there before."""
        if self._before is not None:
            await asyncio.shield(self._before)
