"""`GET /api/events/stream`: entries as they come, as server-sent events.

The id of each is its `global_seq`, so a reader that comes back with `Last-Event-ID` misses nothing
and sees nothing twice, whichever server of the store it comes back to. Where the filters let
nothing through, an id without data now and then brings the reader's cursor on all the same.

A stream pulls: the next page is read when the connection has taken the one before, so a slow
reader costs one page. It ends when its reader goes away or the server stops.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from typing import Annotated

import orjson
from fastapi import Header, Query, Request, Response
from starlette.types import Receive, Scope, Send

from tape.api.http.door import Door, gone
from tape.api.http.entry import entry_record
from tape.api.http.errors import detail_of, refused
from tape.api.http.fields import MOST_POSITION, Position
from tape.api.http.filters import EntryFilter, FilterParams
from tape.api.http.routes import Routes, TheDoor
from tape.api.turnstile import page_characters
from tape.bus import FollowQuery
from tape.calls.role import Role
from tape.errors import InvalidArgument, Overloaded, Pruned, TapeError
from tape.journal.follow import Page
from tape.model.entry import Entry
from tape.settings import KIB

routes = Routes("events")

HEARTBEAT_S = 10.0
FAREWELL_S = 0.5
PAGE_ENTRIES = 500
CHUNK_BYTES = 64 * KIB
RETRY = b"retry: 1000\n\n"
KIND = "text/event-stream"
_RAW_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


class StreamParams(FilterParams):
    """`after` is exclusive; without it the stream starts at the newest entry."""

    after: Position | None = None


@routes.add(
    "GET",
    "/api/events/stream",
    role=Role.READ,
    refusals=(410,),
    responses={
        200: {
            "description": "One event per entry: its id is the global_seq, its data the entry.",
            "content": {KIND: {"itemSchema": {"$ref": "#/components/schemas/EntryReply"}}},
        }
    },
)
async def follow_events(
    door: TheDoor,
    params: Annotated[StreamParams, Query()],
    last_event_id: Annotated[str | None, Header(pattern="^[0-9]{1,16}$")] = None,
) -> Response:
    """Follow entries, from the newest entry or after a `global_seq`."""
    wanted = await EntryFilter.of(params, door.limits, door.checker)
    after = params.after if last_event_id is None else int(last_event_id)
    query = FollowQuery(
        params.subject,
        params.where,
        await _start(door, after),
        PAGE_ENTRIES,
        run_id=params.run_id,
        max_bytes=door.settings.stream_bytes,
    )
    return _EventStream(door, query, wanted)


async def _start(door: Door, after: int | None) -> int:
    """Where to begin; a place that is not there is refused before anything is answered."""
    info = await door.operations.info()
    if after is None:
        return info.head_global_seq
    if after > min(info.head_global_seq, MOST_POSITION):
        raise InvalidArgument(
            f"{after} is beyond the end of this journal, {info.head_global_seq}: the cursor "
            "belongs to another journal, or this one was restored from a backup",
            field="after",
        )
    if 0 < after < info.first_global_seq - 1:
        raise Pruned(f"after: entries up to {info.first_global_seq - 1} have been pruned")
    return after


class _EventStream(Response):
    media_type = KIND

    def __init__(self, door: Door, query: FollowQuery, wanted: EntryFilter) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._door = door
        self._query = query
        self._wanted = wanted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            with self._door.streams.take(self._door.client_of(request)):
                await self._answer(scope, receive, send)
        except Overloaded as error:  # before anything was answered
            await refused(request, error)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            await self._until_over(receive, send)
        # A reader that takes nothing any more is not waited for.
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _until_over(self, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        reasons = {
            sending,
            asyncio.create_task(gone(receive)),
            asyncio.create_task(self._door.ending.wait()),
        }
        try:
            await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in reasons:
                task.cancel()
            await asyncio.gather(*reasons, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                await self._door.streams.turnstile.through(len(chunk))
                await send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        yield RETRY
        following = self._door.operations.follow(self._query)
        pages = self._door.streams.turnstile.reads(following, page_characters)
        upcoming: asyncio.Task[Page | None] | None = None
        told, told_at = self._query.after, time.monotonic()
        cursor = told
        try:
            while True:
                upcoming = upcoming or asyncio.create_task(_next(pages))
                patience = max(0.0, told_at + HEARTBEAT_S - time.monotonic())
                await asyncio.wait((upcoming,), timeout=patience)
                if upcoming.done():
                    page, upcoming = upcoming.result(), None
                    if page is None:
                        return
                    for chunk in self._events(page):
                        yield chunk
                        told, told_at = page.cursor, time.monotonic()
                    cursor = page.cursor
                if time.monotonic() - told_at >= HEARTBEAT_S:
                    yield b"id: %d\n\n" % cursor if cursor > told else b": alive\n\n"
                    told, told_at = cursor, time.monotonic()
        except TapeError as error:  # the status is out already
            yield b"event: error\ndata: %b\n\n" % orjson.dumps({"error": detail_of(error)})
        finally:
            if upcoming is not None:
                upcoming.cancel()
                await asyncio.wait((upcoming,))
            await pages.aclose()

    def _events(self, page: Page) -> Iterator[bytes]:
        """A page in chunks that a connection takes one by one."""
        parts: list[bytes] = []
        size = 0
        for entry in self._wanted.passing(page.entries):
            parts.append(_event(entry))
            size += len(parts[-1])
            if size >= CHUNK_BYTES:
                yield _joined(parts)  # nothing else holds it while it waits for its reader
                size = 0
        if parts:
            yield _joined(parts)


def _event(entry: Entry) -> bytes:
    # Line ends in a payload can only be white space between its parts.
    data = orjson.dumps(entry_record(entry)).translate(_RAW_LINE_ENDS)
    return b"id: %d\ndata: %b\n\n" % (entry.global_seq, data)


def _joined(parts: list[bytes]) -> bytes:
    chunk = parts[0] if len(parts) == 1 else b"".join(parts)
    parts.clear()
    return chunk


async def _next(pages: AsyncGenerator[Page, None]) -> Page | None:
    return await anext(pages, None)
