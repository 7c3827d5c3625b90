"""What the journal tells of one subscription, of the runs of its messages and of their children, as
it comes."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any, Final

from tape.bus import FollowQuery, Operations
from tape.errors import Pruned, StoreUnavailable
from tape.journal.follow import Page
from tape.model.entry import Entry, Kind
from tape.model.subject import EVERYTHING, encode_segment
from tape.model.subscription import MESSAGE_USER
from tape.ports.sink import Sink

MOST_KNOWN: Final = 100_000
"""Of so many runs it is remembered whose they are."""


def told_of(name: str) -> tuple[str, ...]:
    """Patterns for the entries of a subscription, and for the states of its runs."""
    segment = encode_segment(name)
    return f"/tape/subscription/*/{segment}", f"/tape/run/*/*/{MESSAGE_USER}/{segment}/*"


class SubscriptionTrail:
    """Takes entries in order: sends them to the sink, if there is one, and gives each to `notice`.

    By a pattern of `told_of` that is what matches it. By EVERYTHING it is all that the subscription
    and its runs have written.
    """

    def __init__(
        self,
        operations: Operations,
        name: str,
        after: int,
        notice: Callable[[Entry], None],
        *,
        pattern: str = EVERYTHING,
        sink: Sink | None = None,
    ) -> None:
        self._operations = operations
        self._segment = encode_segment(name)
        self._name = name
        self._cursor = after
        self._notice = notice
        self._pattern = pattern
        self._sink = sink
        self._known: OrderedDict[str, bool] = OrderedDict()
        """By run, whether it is one of the subscription's."""
        self._interrupted = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._is_ending = self._is_over = False

    async def follow(self) -> None:
        """Until `end`."""
        try:
            while True:
                await self._take_what_comes()
                self._interrupted.clear()
                asked = len(self._waiting)
                await self._take_what_is_there()
                for each in self._waiting[:asked]:
                    if not each.done():
                        each.set_result(None)
                del self._waiting[:asked]
                if self._is_ending:
                    return
        finally:
            self._is_over = True
            for each in self._waiting:
                if not each.done():
                    each.set_exception(_not_followed())

    async def catch_up(self) -> None:
        """Wait until everything is taken that is in the journal now."""
        if self._is_over:
            raise _not_followed()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._interrupted.set()
        await done

    def end(self) -> None:
        """Take what is in the journal now, and nothing that comes later."""
        self._is_ending = True
        self._interrupted.set()

    async def _take_what_comes(self) -> None:
        """Until it is interrupted, which no page is."""
        interrupted = asyncio.create_task(self._interrupted.wait())
        query = FollowQuery(self._pattern, after=self._cursor)
        try:
            async with aclosing(self._operations.follow(query)) as pages:
                while (page := await _next_unless(interrupted, pages)) is not None:
                    await self._take(page)
        finally:
            interrupted.cancel()

    async def _take_what_is_there(self) -> None:
        head = (await self._operations.info()).head_global_seq
        if head <= self._cursor:
            return
        query = FollowQuery(self._pattern, after=self._cursor, until=head)
        async with aclosing(self._operations.follow(query)) as pages:
            async for page in pages:
                await self._take(page)

    async def _take(self, page: Page) -> None:
        entries = [entry for entry in page.entries if await self._is_told_of(entry)]
        if entries and self._sink is not None:
            await self._sink.send(entries)
        for entry in entries:
            self._notice(entry)
        self._cursor = page.cursor

    async def _is_told_of(self, entry: Entry) -> bool:
        """Whether it is an entry of the subscription or of one of its runs. A child has the user
        and the session of the run that started it."""
        if entry.kind == Kind.SUBSCRIPTION:
            return entry.subject.split("/")[-1] == self._segment
        if not entry.run_id:
            return False
        if entry.kind == Kind.RUN:
            *_kind_and_app, user, session, _run_id = entry.subject.split("/")
            is_ours = (user, session) == (MESSAGE_USER, self._segment)
        elif entry.run_id in self._known:
            is_ours = self._known[entry.run_id]
        else:
            run = await self._operations.runs.get_run(entry.run_id)
            is_ours = run is not None and run.name[1:3] == (MESSAGE_USER, self._name)
        self._known[entry.run_id] = is_ours
        self._known.move_to_end(entry.run_id)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return is_ours


async def _next_unless(
    interrupted: asyncio.Task[Any], pages: AsyncGenerator[Page, None]
) -> Page | None:
    """The next page, or None once that is no longer waited for."""
    coming = asyncio.ensure_future(anext(pages))
    try:
        await asyncio.wait((coming, interrupted), return_when=asyncio.FIRST_COMPLETED)
        return coming.result() if coming.done() else None
    finally:
        if not coming.done():
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


def _not_followed() -> StoreUnavailable:
    return StoreUnavailable("the journal is not followed any more")


async def position_after(operations: Operations, last: dict[str, Any] | None) -> int | None:
    """Where to continue behind an entry that a file holds; None if the journal has no such one."""
    if last is None:
        return None
    position, event_id = last.get("global_seq"), last.get("event_id")
    head = (await operations.info()).head_global_seq
    if not isinstance(position, int) or not 0 < position <= head:
        return None
    query = FollowQuery(after=position - 1, until=position)
    with suppress(Pruned):
        async with aclosing(operations.follow(query)) as pages:
            async for page in pages:
                if any(entry.event_id == event_id for entry in page.entries):
                    return position
    return None
