"""A line to a server on which some of what a client says is lost, or the answer to it, and nobody
is told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from enum import Enum, auto
from typing import NamedTuple

Split = Callable[[bytes], int]
"""How many bytes the first message of these has, 0 if it is not complete yet."""


class Protocol(NamedTuple):
    """How bytes are messages, which of a client's tell that something is done, and by which bytes
    the answer to one is known, where there is one."""

    first_message: Split
    is_last_word: Callable[[bytes], bool]
    asked_by: Callable[[bytes], bytes] = lambda _message: b""
    answer_to: Callable[[bytes], bytes] = lambda _message: b""


class Fate(Enum):
    """What becomes of a last word."""

    PASSES = auto()
    IS_LOST = auto()
    IS_UNANSWERED = auto()


class LossyLine:
    """Forwards everything, but for last words while `loses` is set, or by the `fate` of each.
    `lost` counts them, and `unanswered` the answers that were lost."""

    def __init__(
        self,
        upstream: int,
        protocol: Protocol,
        port: int = 0,
        fate: Callable[[], Fate] | None = None,
    ) -> None:
        self._upstream = upstream
        self._protocol = protocol
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = port
        self.loses = False
        self._fate = fate or (lambda: Fate.IS_LOST if self.loses else Fate.PASSES)
        self.lost = 0
        self.unanswered = 0

    async def __aenter__(self) -> "LossyLine":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        pumps: list[asyncio.Task[None]] = []
        try:
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
                ends.append(far_writer)
                unheard: set[bytes] = set()
                pumps.append(asyncio.create_task(self._forward(reader, far_writer, unheard)))
                pumps.append(asyncio.create_task(self._answer(far_reader, writer, unheard)))
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in ends:
                end.close()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, unheard: set[bytes]
    ) -> None:
        async for message in self._messages(reader):
            fate = Fate.PASSES
            if self._protocol.is_last_word(message):
                fate = self._fate()
            if fate is Fate.IS_LOST:
                self.lost += 1
                continue
            if fate is Fate.IS_UNANSWERED:
                unheard.add(self._protocol.asked_by(message))
            writer.write(message)
            await writer.drain()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, unheard: set[bytes]
    ) -> None:
        if self._protocol.asked_by(bytes(16)) == b"":  # nobody is answered: nothing need be read
            return await _copy(reader, writer)
        async for message in self._messages(reader):
            asked = self._protocol.answer_to(message)
            if asked in unheard:
                unheard.discard(asked)
                self.unanswered += 1
            else:
                writer.write(message)
                await writer.drain()
        return None

    async def _messages(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        held = b""
        while chunk := await reader.read(1 << 16):
            held += chunk
            while size := self._protocol.first_message(held):
                message, held = held[:size], held[size:]
                yield message


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(1 << 16):
        writer.write(chunk)
        await writer.drain()


def _nats_size(held: bytes) -> int:
    line, end, _ = held.partition(b"\r\n")
    if not end:
        return 0
    size = len(line) + 2
    if line.startswith((b"PUB ", b"HPUB ")):
        size += int(line.rpartition(b" ")[2]) + 2
    return size if len(held) >= size else 0


def _kafka_size(held: bytes) -> int:
    size = 4 + int.from_bytes(held[:4], "big")
    return size if len(held) >= max(size, 4) else 0


_OFFSET_COMMIT = 8

NATS = Protocol(
    _nats_size, lambda message: message.startswith(b"PUB $JS.ACK.") and b"+ACK" in message
)
KAFKA = Protocol(
    _kafka_size,
    lambda message: int.from_bytes(message[4:6], "big") == _OFFSET_COMMIT,
    lambda message: message[8:12],  # the correlation id, which the answer begins with
    lambda message: message[4:8],
)
