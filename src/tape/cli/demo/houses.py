"""The bank, the broker and the ledger of act 6: they do each thing once for its key.

One JSON line for a question, one for its answer. A house that hangs up without an answer has done
what it was asked all the same.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

Answered = Callable[[str], Awaitable[bool]]
"""Told the house once it has done something; whether it answers."""


class Houses:
    """What was done, by house and key; `asked` counts requests to act, repeats included."""

    def __init__(self, on_done: Answered) -> None:
        self._on_done = on_done
        self.books: dict[str, dict[str, Any]] = {"bank": {}, "broker": {}, "ledger": {}}
        self.asked: Counter[str] = Counter()

    async def open(self) -> tuple[asyncio.Server, str]:
        """Their server, and its address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        return server, f"{host}:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if line := await reader.readline():
                answer = await self._answer(orjson.loads(line))
                if answer is not None:
                    writer.write(orjson.dumps(answer) + b"\n")
                    await writer.drain()
        except ConnectionError:
            pass  # whoever asked has been killed
        finally:
            writer.close()

    async def _answer(self, question: dict[str, Any]) -> dict[str, Any] | None:
        house, key = question["house"], question["key"]
        book = self.books[house]
        if question["do"] is None:
            return {"found": book.get(key)}
        self.asked[house] += 1
        book.setdefault(key, {"id": f"{house}-{len(book) + 1}", **question["do"]})
        return {"found": book[key]} if await self._on_done(house) else None


async def ask(address: str, house: str, key: str, do: dict[str, Any] | None) -> Any:
    """What a house has under that key, having done it if it was to; EOFError if it hung up."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(orjson.dumps({"house": house, "key": key, "do": do}) + b"\n")
        await writer.drain()
        line = await reader.readline()
        if not line:
            raise EOFError(f"the {house} hung up without an answer")
        return orjson.loads(line)["found"]
    finally:
        writer.close()
