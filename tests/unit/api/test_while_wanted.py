"""Work for a reader is given up when the reader leaves or the server stops."""

import asyncio
from typing import Any, cast

import pytest

from tape.api.auth import Tokens
from tape.api.http.door import Door
from tape.bus import Operations
from tape.errors import Closed


async def refresh() -> None: ...


@pytest.fixture
async def door() -> Door:
    return Door(cast("Operations", None), Tokens(), refresh)


class Reader:
    """What a server hears of a connection."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})

    async def receive(self) -> dict[str, Any]:
        return await self.messages.get()

    def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})


class Work:
    def __init__(self) -> None:
        self.began, self.given_up = asyncio.Event(), asyncio.Event()

    async def endless(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.set()


async def done() -> str:
    return "done"


async def test_what_is_done_is_returned(door: Door) -> None:
    assert await door.while_wanted(Reader().receive, done()) == "done"


@pytest.mark.parametrize("how", ["left", "stopped"])
async def test_it_is_given_up(door: Door, how: str) -> None:
    reader, work = Reader(), Work()
    asking = asyncio.create_task(door.while_wanted(reader.receive, work.endless()))
    await work.began.wait()
    if how == "left":
        reader.leave()
    else:
        door.end()
    with pytest.raises(Closed, match="has disconnected" if how == "left" else "shutting down"):
        await asking
    assert work.given_up.is_set()
