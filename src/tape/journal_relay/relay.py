"""The relay: the journal to sinks, in order, at least once, from a durable cursor.

One page at a time: every sink acknowledges all of it, and only then the cursor file moves past it.
So the file is never ahead of what was acknowledged, and after a crash at most one page is sent
again. The next relay marks it as a possible repeat: it is that relay's first page, since the same
position gives a page that begins the same and is no shorter.

A sink that fails is tried again, after 1 s and then twice as long each time up to 30 s. Nothing is
ever skipped: the journal waits.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from tape.errors import BrokerError
from tape.journal.follow import Page
from tape.journal_relay.cursor_file import CursorFile
from tape.model.entry import Entry
from tape.ports.sink import Sink
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.relay")

# Pages without a match move the cursor too, but not each of them is worth a flush of the disk.
IDLE_WRITE_S = 1.0

OpenPages = Callable[[int], AsyncGenerator[Page, None]]
"""The pages of the journal after a `global_seq`."""


class RelayBackoff(NamedTuple):
    first_s: float = 1.0
    most_s: float = 30.0


class RelayProgress(NamedTuple):
    """`trouble` is what a sink is waited for, empty when all is well."""

    sent: int
    cursor: int
    trouble: str = ""


OnProgress = Callable[[RelayProgress], None]
Stopping = asyncio.Future[Literal[True]]
DEFAULT_BACKOFF = RelayBackoff()


@runtime_checkable
class MarksRepeats(Protocol):
    """A sink that tells its far side which entries may have been there before."""

    def expect_repeats(self, entries: Sequence[Entry]) -> None: ...


class JournalRelay:
    def __init__(
        self,
        open_pages: OpenPages,
        sinks: Sequence[Sink],
        cursor: CursorFile,
        *,
        backoff: RelayBackoff = DEFAULT_BACKOFF,
        on_progress: OnProgress = lambda _progress: None,
    ) -> None:
        self._open_pages = open_pages
        self._sinks = sinks
        self._cursor = cursor
        self._backoff = backoff
        self._on_progress = on_progress
        self._sent = 0
        self._reached = 0
        self._written = 0
        self._written_at = 0.0

    async def run(self, start: int, stop: asyncio.Event) -> None:
        """Relay what comes after `start`, until the pages end or `stop` is set.

        On `stop` the page in hand is finished; one whose sink does not answer is given up, unsent
        as far as the cursor tells.
        """
        self._reached = start
        may_repeat = self._cursor.interrupted
        stopping = asyncio.ensure_future(stop.wait())
        try:
            async with aclosing(self._open_pages(start)) as pages:
                await self._write()
                while (page := await _next(pages, stopping)) is not None:
                    if page.skipped:
                        log.warning(
                            "%d entries were left out because the predicate has no result: %s",
                            page.skipped, page.error,
                        )  # fmt: skip
                    if page.entries and may_repeat:
                        self._expect_repeats(page.entries)
                        may_repeat = False
                    if page.entries and not await self._deliver(page.entries, stopping):
                        return
                    await self._advance(page)
        finally:
            stopping.cancel()
        if self._written != self._reached:
            await self._write()
        if not may_repeat:
            self._cursor.settle()

    def _expect_repeats(self, entries: Sequence[Entry]) -> None:
        for sink in self._sinks:
            if isinstance(sink, MarksRepeats):
                sink.expect_repeats(entries)

    async def _advance(self, page: Page) -> None:
        self._reached = page.cursor
        self._sent += len(page.entries)
        idle = asyncio.get_running_loop().time() - self._written_at
        if page.entries or idle > IDLE_WRITE_S:
            await self._write()
        self._on_progress(RelayProgress(self._sent, self._reached))

    async def _write(self) -> None:
        await asyncio.to_thread(self._cursor.write, self._reached)
        self._written = self._reached
        self._written_at = asyncio.get_running_loop().time()

    async def _deliver(self, entries: Sequence[Entry], stopping: Stopping) -> bool:
        """Whether every sink has all of them; False if we were told to stop while waiting."""
        sending = [
            asyncio.ensure_future(self._deliver_to(sink, entries, stopping)) for sink in self._sinks
        ]
        try:
            return all(await asyncio.gather(*sending))
        finally:
            for task in sending:
                task.cancel()

    async def _deliver_to(self, sink: Sink, entries: Sequence[Entry], stopping: Stopping) -> bool:
        pause = self._backoff.first_s
        retrying = Retrying(log, "relaying")
        while True:
            try:
                await sink.send(entries)
            except BrokerError as error:
                retrying.failed(error, pause)
                self._on_progress(RelayProgress(self._sent, self._reached, str(error)))
            else:
                retrying.succeeded()
                return True
            await asyncio.wait((stopping,), timeout=pause)
            if stopping.done():
                return False
            pause = min(2 * pause, self._backoff.most_s)


async def _next(pages: AsyncGenerator[Page, None], stopping: Stopping) -> Page | None:
    """The next page; None at the end, or when it is time to stop."""
    fetching = asyncio.ensure_future(anext(pages, None))
    try:
        await asyncio.wait((fetching, stopping), return_when=asyncio.FIRST_COMPLETED)
        return None if stopping.done() else fetching.result()
    finally:
        if not fetching.done():
            fetching.cancel()
            await asyncio.wait((fetching,))
