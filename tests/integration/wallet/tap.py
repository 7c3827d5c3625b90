"""A way to a server that keeps what has gone over it."""

import asyncio
import contextlib


class Tap:
    """A way to a server that keeps what has gone over it."""

    def __init__(self, upstream: str) -> None:
        self._host, _, self._port = upstream.rpartition(":")
        self.sent = b""
        self.received = b""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_error: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, int(self._port))
        self._writers += [writer, far_writer]

        async def pump(one: asyncio.StreamReader, other: asyncio.StreamWriter, name: str) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await one.read(65_536):
                    setattr(self, name, getattr(self, name) + data)
                    other.write(data)
                    await other.drain()
                other.close()

        for one, other, name in (
            (reader, far_writer, "sent"), (far_reader, writer, "received"),
        ):  # fmt: skip
            task = asyncio.ensure_future(pump(one, other, name))
            self._tasks.add(task)
