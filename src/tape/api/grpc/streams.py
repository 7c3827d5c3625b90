"""The calls that stream entries and changes out.

A stream pulls: the next page is read when the last message of the one before was accepted by the
connection's flow control, so a slow reader costs one page. When a caller goes away its task is
cancelled, which closes what it follows there and then.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from tape.api.grpc.handlers import Send, StreamOut
from tape.api.turnstile import Turnstile, entries_characters, page_characters
from tape.bus import FollowQuery, Operations
from tape.calls.journal import FOLLOW_QUERY
from tape.errors import Closed
from tape.journal.follow import Page
from tape.model.subject import EVERYTHING
from tape.model.value import ValueChange
from tape.wire import records
from tape.wire.mapping_entries import batch_to_wire, entry_to_wire, run_entry_to_wire
from tape.wire.v1 import tape_pb2 as pb

QUIET_ENTRIES = 10_000
QUIET_S = 5.0
# In characters, of which each has up to four bytes: a batch stays below the 4 MiB that clients
# accept who do not say otherwise, unless one entry alone is larger.
BATCH_CHARACTERS = 256 * 1024
ENVELOPE_CHARACTERS = 256


class Streams:
    def __init__(self, operations: Operations, stream_bytes: int, turnstile: Turnstile) -> None:
        self._operations = operations
        self._turnstile = turnstile
        self._stream_bytes = stream_bytes
        self._open: set[asyncio.Task[Any]] = set()
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Send every reader away; they come back to whoever serves next."""
        self._ending.set()
        for task in self._open:
            task.cancel()

    async def follow_entries(self, request: pb.FollowEntriesRequest, send: Send) -> None:
        query = FOLLOW_QUERY.from_wire(request)._replace(max_bytes=self._stream_bytes)
        async with self._opened(), aclosing(self._pages(query)) as pages:
            await _send_pages(pages, send, query.after)

    async def subscribe_by_subject(self, request: pb.SubscribeBySubjectRequest, send: Send) -> None:
        await self._send_singly(
            FollowQuery(request.subject_pattern, request.predicate_cel, request.from_global_seq),
            send,
        )

    async def subscribe_events(self, request: pb.SubscribeEventsRequest, send: Send) -> None:
        query = FollowQuery(
            request.subject_pattern or EVERYTHING,
            after=request.from_global_seq,
            kind=request.kind,
            run_id=request.run_id,
            from_ts_ms=request.from_ts_ms,
        )
        await self._send_singly(query, send)

    async def subscribe_run(self, request: pb.SubscribeRunRequest, send: Send) -> None:
        following = self._operations.runs.follow_run(
            request.run_id, request.from_seq, self._stream_bytes
        )
        reading = self._turnstile.reads(following, entries_characters)
        async with self._opened(), aclosing(reading) as batches:
            async for entries in batches:
                entries.reverse()
                while entries:  # what is sent is not kept while its reader takes its time
                    await send(run_entry_to_wire(entries.pop()))

    async def watch_value(self, request: pb.WatchValueRequest, send: Send) -> None:
        watching = self._operations.values.watch_value(
            request.namespace, request.key, request.from_version, self._stream_bytes
        )
        reading = self._turnstile.reads(watching, _change_characters)
        async with self._opened(), aclosing(reading) as changes:
            async for change in changes:
                taken = [change]
                del change  # it is not kept while its reader takes its time
                await send(records.VALUE_CHANGE.to_wire(taken.pop()))

    async def _send_singly(self, query: FollowQuery, send: Send) -> None:
        query = query._replace(max_bytes=self._stream_bytes)
        async with self._opened(), aclosing(self._pages(query)) as pages:
            async for page in pages:
                page.entries.reverse()
                while page.entries:
                    await send(entry_to_wire(page.entries.pop()))

    def _pages(self, query: FollowQuery) -> AsyncGenerator[Page, None]:
        return self._turnstile.reads(self._operations.follow(query), page_characters)

    def methods(self) -> dict[str, StreamOut]:
        return {
            "FollowEntries": self.follow_entries,
            "SubscribeBySubject": self.subscribe_by_subject,
            "SubscribeEvents": self.subscribe_events,
            "SubscribeRun": self.subscribe_run,
            "WatchValue": self.watch_value,
        }

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[None, None]:
        task = asyncio.current_task()
        if self._ending.is_set() or task is None:
            raise Closed("the server is shutting down")
        self._open.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._ending.is_set():
                raise
            task.uncancel()
            raise Closed("the server is shutting down") from None
        finally:
            self._open.discard(task)


def _change_characters(change: ValueChange) -> int:
    return len(change.value.value_json) + len(change.prev_value_json)


async def _send_pages(pages: AsyncGenerator[Page, None], send: Send, after: int) -> None:
    """Pages as batches. One without entries is told only now and then, for its cursor."""
    told, told_at = after, time.monotonic()
    ahead = Page([], after)  # what has been looked through and not told
    upcoming: asyncio.Task[Page | None] | None = None
    try:
        while True:
            upcoming = upcoming or asyncio.create_task(_next(pages))
            patience = max(0.0, told_at + QUIET_S - time.monotonic())
            await asyncio.wait((upcoming,), timeout=patience if ahead.cursor > told else None)
            if upcoming.done():
                page, upcoming = upcoming.result(), None
                if page is None:
                    break
                ahead = page._replace(
                    skipped=ahead.skipped + page.skipped, error=page.error or ahead.error
                )
            quiet_s = time.monotonic() - told_at
            if ahead.entries or ahead.cursor - told >= QUIET_ENTRIES or quiet_s >= QUIET_S:
                for batch in _batches(ahead):
                    await send(batch)
                told, told_at = ahead.cursor, time.monotonic()
                ahead = Page([], told)
        if ahead.cursor > told:
            await send(batch_to_wire([], *ahead[1:]))
    finally:
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.wait((upcoming,))


async def _next(pages: AsyncGenerator[Page, None]) -> Page | None:
    return await anext(pages, None)


def _batches(page: Page) -> Iterator[pb.EntryBatch]:
    """A page in messages that anyone accepts, each with the cursor it brings its reader to."""
    start, size = 0, 0
    for index, entry in enumerate(page.entries):
        weight = len(entry.payload_json) + ENVELOPE_CHARACTERS
        if size and size + weight > BATCH_CHARACTERS:
            part = page.entries[start:index]
            yield batch_to_wire(part, part[-1].global_seq)
            start, size = index, 0
        size += weight
    yield batch_to_wire(page.entries[start:], page.cursor, page.skipped, page.error)
