"""A line to a server that can be cut at one exact message, before or after it arrives, or held."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Literal

Cut = Literal["before", "after", "silent"]


class Proxy:
    """Forwards everything until `cut` names a message.

    `before` loses the message, `after` loses the answer to it, and both then close the line;
    `silent` loses the answer and keeps the line open.

    Between `hold` and `let_go` nothing comes through in either direction, not even the end of a
    connection; what was sent meanwhile arrives after that.
    """

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._server: asyncio.Server | None = None
        self._message = b""
        self._how: Cut = "before"
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.happened = asyncio.Event()
        self.port = 0

    def cut(self, message: bytes, how: Cut) -> None:
        """Do it once, at the next message that holds these bytes."""
        self._message, self._how = message, how
        self.happened.clear()

    def hold(self) -> None:
        self._flowing.clear()

    def let_go(self) -> None:
        self._flowing.set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def deaf(self) -> None:
        """Take no new lines, until `listen`."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        await self.deaf()
        for writer in self._open:
            writer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        self._open.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
                ends.append(far_writer)
                self._open.add(far_writer)
                back = asyncio.create_task(self._pump(far_reader, writer))
                try:
                    await self._forward(reader, far_reader, far_writer, back)
                finally:
                    back.cancel()
                    await asyncio.gather(back, return_exceptions=True)
        finally:
            for end in ends:
                end.close()
                self._open.discard(end)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
        back: asyncio.Task[None],
    ) -> None:
        while chunk := await self._read(reader):
            if not self._message or self._message not in chunk:
                far_writer.write(chunk)
                continue
            self._message = b""
            if self._how != "before":
                back.cancel()
                await asyncio.gather(back, return_exceptions=True)
                far_writer.write(chunk)
                answer = b""
                while not answer.endswith(b"Z\0\0\0\5I"):  # ready, and in no transaction
                    answer += await far_reader.readexactly(1)
            self.happened.set()
            if self._how != "silent":
                return
            await reader.read()  # until the client gives up

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await self._read(reader):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        chunk = await reader.read(1 << 16)
        await self._flowing.wait()
        return chunk


@contextlib.asynccontextmanager
async def line_to(port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(port)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.close()
