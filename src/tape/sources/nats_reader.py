"""Reads a durable across connections: what is in hand, its progress reports, its last words.

An acknowledgement belongs to the message and not to a connection, so what was fetched over one that
broke may still be acknowledged over the next. What could not be said meanwhile is said then.

Messages in hand, handed out or waiting here, are reported as in progress each third of the
consumer's `ack_wait`. So that time only bounds how long a reader that is gone keeps them.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from tape.brokers.nats_connection import NatsConnection
from tape.brokers.nats_headers import header_pairs
from tape.errors import BrokerUnavailable
from tape.model.message import SourceMessage
from tape.model.subscription_spec import SourceKind
from tape.ports.source import ReceivedMessage
from tape.sources.nats_durable import BoundDurable, find_durable
from tape.sources.nats_pull import ALIVE_S, DurableGone, NatsPull

MSG_ID: Final = "Nats-Msg-Id"
SHORT_TOKENS: Final = 9
HEEDED_S: Final = 5.0
"""So long a server may take until it has given back what it was told to."""
AWAY: Final = (NatsError, OSError, TimeoutError, BrokerUnavailable)

Connect = Callable[[], Awaitable[NatsConnection]]
"""BrokerUnavailable if there is nobody."""


class _Delivered:
    """What the acknowledgement's subject tells of a delivery."""

    __slots__ = ("count", "number", "sequence", "timestamp_ms")

    def __init__(self, reply: str) -> None:
        tokens = reply.split(".")
        first = 4 if len(tokens) == SHORT_TOKENS else 6  # the longer form begins with an account
        self.count = int(tokens[first])
        self.sequence = int(tokens[first + 1])
        self.number = int(tokens[first + 2])
        self.timestamp_ms = int(tokens[first + 3]) // 1_000_000


class DurableReader:
    def __init__(self, connect: Connect, stream: str, durable: str) -> None:
        self._connect = connect
        self._stream = stream
        self._durable = durable
        self._pull: NatsPull | None = None
        self._identity: tuple[str, str] | None = None
        self._delivered = 0
        self._in_hand: dict[str, int] = {}
        self._receipts: dict[int, str] = {}
        self._unsaid: dict[str, bytes] = {}
        self._progress: asyncio.Task[None] | None = None
        self._fetching = asyncio.Lock()
        self._attaching = asyncio.Lock()
        """Of two connections at a time one would be forgotten, with its inbox."""

    @property
    def bound(self) -> BoundDurable | None:
        return None if self._pull is None else self._pull.durable

    @property
    def connection(self) -> NatsConnection | None:
        """The one that works, None while there is none."""
        pull = self._pull
        return None if pull is None or pull.connection.lost.is_set() else pull.connection

    async def attach(self) -> NatsPull:
        """Connect and find the consumer, if that is not so already. SourceRefused if it is not
        there, BrokerUnavailable if nobody is."""
        async with self._attaching:
            if self._pull is None or self.connection is None:
                await self._detach()
                self._pull = await self._attached()
                await self._say_unsaid()
            return self._pull

    async def _attached(self) -> NatsPull:
        connection = await self._connect()
        try:
            durable = await find_durable(connection, self._stream, self._durable)
            pull = NatsPull(connection, durable)
            await pull.open()
        except BaseException:
            await connection.close()
            raise
        self._take(durable)
        if self._progress is None:
            self._progress = asyncio.create_task(self._report(), name="tape-nats-progress")
        return pull

    async def detach(self) -> None:
        async with self._attaching:
            await self._detach()

    async def _detach(self) -> None:
        pull, self._pull = self._pull, None
        if pull is not None:
            self._give_back_unseen(pull)
            await pull.close()

    async def fetch(self, most: int, wait_s: float) -> list[ReceivedMessage]:
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait_s
        async with self._fetching:
            while True:
                pull = await self.attach()
                try:
                    messages = await pull.take(most, ends - loop.time())
                except DurableGone:
                    await self.detach()
                    pull = await self.attach()  # which refuses, unless it has been made again
                    messages = []
                found = await self._received(pull, messages)
                if found or loop.time() >= ends:
                    return found

    async def settle(self, receipt: str, payload: bytes) -> bool:
        """The last word on a message; False if it could not be said, so that it comes again."""
        self._forget(receipt)
        return await self._send(receipt, payload)

    async def settle_all(self, receipts: Sequence[str], payload: bytes) -> None:
        """The last word on those in hand. It is said again later if the connection breaks before
        the server has read it."""
        said = [receipt for receipt in receipts if receipt in self._in_hand]
        for receipt in said:
            self._forget(receipt)
            self._unsaid[receipt] = payload
        await self._say_unsaid()

    async def report(self, receipt: str) -> bool:
        """It is still worked at."""
        return await self._send(receipt, Msg.Ack.Progress)

    async def close(self) -> None:
        """Give back what is in hand, for another to get at once and before what is behind it."""
        if self._progress is not None:
            self._progress.cancel()
            await asyncio.gather(self._progress, return_exceptions=True)
        if self._pull is not None:
            await self._pull.stop()
        for receipt in [*self._in_hand]:
            self._forget(receipt)
            self._unsaid[receipt] = Msg.Ack.Nak
        if self._pull is not None:
            self._give_back_unseen(self._pull)
        await self._say_last()
        await self.detach()

    def _give_back_unseen(self, pull: NatsPull) -> None:
        self._unsaid.update((message.reply, Msg.Ack.Nak) for message in pull.drain())

    async def _say_unsaid(self) -> None:
        if not self._unsaid:
            return
        said = [*self._unsaid.items()]
        for receipt, payload in said:
            if not await self._send(receipt, payload):
                return
        if await self._flushed():
            for receipt, _ in said:
                self._unsaid.pop(receipt, None)

    async def _say_last(self) -> None:
        """Say what is unsaid, first of what came first: in this order the server delivers it again.
        It works at what it has read behind its other work, and one that pulls meanwhile would get
        what is behind all this first. So wait until it says that it has done the last of it."""
        connection = self.connection
        if connection is None or not self._unsaid:
            return
        *others, last = sorted(self._unsaid, key=lambda receipt: _Delivered(receipt).sequence)
        for receipt in others:
            if not await self._send(receipt, self._unsaid[receipt]):
                return
        with contextlib.suppress(*AWAY):
            await connection.request(last, self._unsaid[last], HEEDED_S)

    async def _flushed(self) -> bool:
        """Whether the server has read what was sent."""
        connection = self.connection
        if connection is None:
            return False
        flushing = asyncio.ensure_future(connection.client.flush(int(ALIVE_S)))
        losing = asyncio.ensure_future(connection.lost.wait())
        try:
            await asyncio.wait((flushing, losing), return_when=asyncio.FIRST_COMPLETED)
            return flushing.done() and flushing.exception() is None
        finally:
            for task in (flushing, losing):
                task.cancel()
            await asyncio.gather(flushing, losing, return_exceptions=True)

    async def _send(self, receipt: str, payload: bytes) -> bool:
        connection = self.connection
        if connection is None:
            return False
        try:
            await connection.client.publish(receipt, payload)
        except (NatsError, OSError):
            return False
        return True

    async def _report(self) -> None:
        while True:
            bound = self.bound
            await asyncio.sleep(bound.ack_wait_s / 3 if bound else ALIVE_S)
            pull = self._pull
            if pull is not None:
                for receipt in [*self._in_hand, *pull.unseen()]:
                    await self.report(receipt)

    async def _received(self, pull: NatsPull, messages: Sequence[Msg]) -> list[ReceivedMessage]:
        """What is new of these. One that is in hand already was delivered again because its
        progress could not be reported: it is kept, and not handed out twice."""
        found: list[ReceivedMessage] = []
        try:
            for message in messages:
                delivered = _Delivered(message.reply)
                if delivered.number != self._delivered + 1 or delivered.number == 1:
                    await self._compare_identity(pull)
                self._delivered = delivered.number
                if delivered.sequence in self._receipts:
                    continue
                self._in_hand[message.reply] = delivered.sequence
                self._receipts[delivered.sequence] = message.reply
                received = _source_message(message, delivered, pull.durable.origin)
                found.append(ReceivedMessage(received, message.reply))
        except BaseException:
            for message in messages:  # nobody has seen these
                self._forget(message.reply)
                self._unsaid[message.reply] = Msg.Ack.Nak
            raise
        return found

    async def _compare_identity(self, pull: NatsPull) -> None:
        """Deliveries are numbered one after the other: so another reader got some in between, or
        stream or consumer were deleted and made again."""
        pull.durable = await find_durable(pull.connection, self._stream, self._durable)
        self._take(pull.durable)

    def _take(self, durable: BoundDurable) -> None:
        """Go on with this one. If it is not the one before, what is in hand is forgotten: its last
        words would be taken for those on other messages, which have the same numbers now."""
        if self._identity not in (None, durable.identity):
            self._in_hand.clear()
            self._receipts.clear()
            self._unsaid.clear()
        self._identity = durable.identity
        self._delivered = durable.delivered

    def _forget(self, receipt: str) -> None:
        sequence = self._in_hand.pop(receipt, None)
        if sequence is not None:
            self._receipts.pop(sequence, None)


def _source_message(message: Msg, delivered: _Delivered, origin: str) -> SourceMessage:
    return SourceMessage(
        source=SourceKind.NATS.value,
        origin=origin,
        position=str(delivered.sequence),
        body=message.data,
        headers=header_pairs(message),
        message_id=(message.headers or {}).get(MSG_ID, ""),
        key=message.subject,
        timestamp_ms=delivered.timestamp_ms,
        subject=message.subject,
        deliveries=delivered.count,
    )
