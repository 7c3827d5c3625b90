"""Clients of the event stream: one that reads it by the rules of server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, NamedTuple

import orjson


class Sent(NamedTuple):
    """One event of a stream. Without data it only brings the cursor on."""

    id: str
    data: Any
    event: str = "message"


class Refused(Exception):
    """The server answered with another status than 200."""


async def events(address: str, path: str, last_event_id: str = "") -> AsyncGenerator[Sent, None]:
    """Until the server ends the stream or the connection breaks."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**20)
    try:
        lines = [f"GET {path} HTTP/1.1", f"host: {address}", "accept: text/event-stream"]
        if last_event_id:
            lines.append(f"last-event-id: {last_event_id}")
        writer.write("\r\n".join((*lines, "", "")).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise Refused(head)
        field = {"id": last_event_id, "event": "message", "data": ""}
        async for line in _body_lines(reader):
            if line:
                name, _, value = line.partition(":")
                if name in field:
                    field[name] = field[name] + value if name == "data" else value.strip()
            else:
                data = orjson.loads(field["data"]) if field["data"] else None
                yield Sent(field["id"], data, field["event"])
                field |= {"event": "message", "data": ""}
    finally:
        writer.close()


async def _body_lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """The lines of a chunked body; a line that is cut off is none."""
    rest = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        rest += await reader.readexactly(size)
        await reader.readexactly(2)
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line.decode()
