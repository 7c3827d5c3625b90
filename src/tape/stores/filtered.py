"""Reading entries with a predicate that the store decides as far as it can, for a bounded time.

A reader writes the predicate, and another may have written large entries, so a range can take
minutes to filter: all the while a session is taken, and a stopping server would wait for it. So it
has `FILTER_S`. A range that takes longer is read again in a shorter one, and what is too slow even
for a few entries is left to Python, which is paced. A quarter of the sessions may be at it at once,
so that others have theirs, and a core. Whoever finds no room there for `FILTER_S` reads without the
predicate, too.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tape.ports.predicate import Dialect, EntryPredicate, SqlFilter
from tape.ports.store import EntryRange, ReadEntries

FILTER_S: Final = 0.5
SHORTER: Final = 16
REMEMBERED: Final = 1_000
_UNBOUNDED: Final = 2**63

Read = Callable[[ReadEntries, SqlFilter | None], Awaitable[EntryRange | None]]
"""None if the condition took longer than it may."""


class FilteredReads:
    def __init__(self, dialect: Dialect, sessions: int) -> None:
        self._dialect = dialect
        self._room = asyncio.Semaphore(max(1, sessions // 4))
        self._widest: dict[EntryPredicate, int] = {}
        """How many entries a slow predicate is given at once; 0 if it is left to Python."""

    async def read(self, query: ReadEntries, read: Read) -> EntryRange:
        predicate = query.predicate
        condition = predicate.sql_prefilter(self._dialect) if predicate else None
        while predicate is not None and condition is not None:
            width = min(self._widest.get(predicate, _UNBOUNDED), query.upto - query.after)
            if width <= 0:
                break
            if not await self._enter(query):
                break
            try:
                found = await read(query._replace(upto=query.after + width), condition)
            finally:
                self._room.release()
            if found is not None:
                return found
            self._remember(predicate, width // SHORTER)
        found = await read(query, None)
        assert found is not None  # noqa: S101 - only a condition can take too long
        return found

    async def _enter(self, query: ReadEntries) -> bool:
        """Whether there is room now, or soon."""
        if query.hurried and self._room.locked():
            return False
        try:
            async with asyncio.timeout(FILTER_S):
                return await self._room.acquire()
        except TimeoutError:
            return False

    def _remember(self, predicate: EntryPredicate, width: int) -> None:
        self._widest.pop(predicate, None)
        self._widest[predicate] = width
        if len(self._widest) > REMEMBERED:
            del self._widest[next(iter(self._widest))]
