"""What a durable delivers over one connection, asked for in pulls of which one is open at a time.

A pull is one-shot: the server sends what is there, at most as many as were asked for, and says that
this was all; or it waits for the first message. So nothing is on its way that nobody asked for. At
the consumer's `max_ack_pending` the server says nothing and keeps the pull open: what comes of it
later is found here by the next `take`.
"""

import asyncio
import contextlib
from collections import deque
from typing import Final

import orjson
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as Inbox
from nats.errors import Error as NatsError

from tape.brokers.jetstream import NS
from tape.brokers.nats_connection import NatsConnection
from tape.errors import BrokerUnavailable
from tape.sources.nats_durable import BoundDurable

ALIVE_S: Final = 2.0
QUIET_S: Final = 0.05
LEAST_WAIT_S: Final = 0.05
PULL_BYTES: Final = 16 << 20
_OVER = ("404", "408")
_GONE = ("Consumer Deleted", "Consumer is push based")
_TOO_LARGE = "Message Size Exceeds MaxBytes"


class DurableGone(BrokerUnavailable):
    """The server says that the consumer is no longer there."""


class NatsPull:
    def __init__(self, connection: NatsConnection, durable: BoundDurable) -> None:
        self.connection = connection
        self.durable = durable
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{durable.stream}.{durable.durable}"
        self._inbox = connection.client.new_inbox()
        self._buffer: deque[Msg] = deque()
        self._asked = 0
        self._left = 0
        self._number = 0
        self._expires_at = 0.0
        self._too_large = False
        self._complaint: BrokerUnavailable | None = None
        self._over = asyncio.Event()
        self._over.set()
        self._stirred = asyncio.Event()
        self._subscription: Inbox | None = None
        self._losing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        # Without limits of its own: pulls bound what comes, and the library drops what is beyond.
        self._subscription = await self.connection.client.subscribe(
            f"{self._inbox}.*", cb=self._receive, pending_msgs_limit=0, pending_bytes_limit=0
        )
        self._losing = asyncio.create_task(self._until_lost(), name="tape-nats-lost")

    async def stop(self) -> None:
        """Ask for nothing more, and take in what the server has sent to the pull that is open: a
        pull outlives the call that made it. One that brings messages is waited for: what finds
        nobody here the server delivers again before what is given back."""
        inbox = self._subscription
        if inbox is not None and not self.connection.lost.is_set():
            with contextlib.suppress(NatsError, OSError, TimeoutError):
                async with asyncio.timeout(ALIVE_S):
                    await self._until_it_brings_nothing(inbox)
                    await inbox.drain()  # type: ignore[no-untyped-call]  # no types there

    async def _until_it_brings_nothing(self, inbox: Inbox) -> None:
        if not self._over.is_set():
            await self.connection.client.flush(int(ALIVE_S))
            while inbox.pending_msgs:  # noqa: ASYNC110 - the library tells nobody
                await asyncio.sleep(0)
        if self._left < self._asked:
            await self._over.wait()

    async def close(self) -> None:
        if self._losing is not None:
            self._losing.cancel()
            await asyncio.gather(self._losing, return_exceptions=True)
        await self.connection.close()

    def unseen(self) -> list[str]:
        """The receipts of what has come and nobody has taken."""
        return [message.reply for message in self._buffer]

    def drain(self) -> list[Msg]:
        """What has come and nobody has taken."""
        found = [*self._buffer]
        self._buffer.clear()
        return found

    async def take(self, most: int, wait_s: float) -> list[Msg]:
        """At most so many, as soon as there are any; BrokerUnavailable if there is nobody to ask,
        DurableGone if the consumer is not there."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + max(wait_s, LEAST_WAIT_S)
        while not self._buffer:
            self._raise_complaint()
            if self._over.is_set():
                left_s = ends - loop.time()
                if left_s <= 0:
                    return []
                await self._ask(most, max(left_s, LEAST_WAIT_S))
            if not await self._stirs(ends):
                return []
        await self._until_quiet(most)
        return [self._buffer.popleft() for _ in range(min(most, len(self._buffer)))]

    async def _ask(self, most: int, wait_s: float) -> None:
        durable = self.durable
        batch = 1 if self._too_large else min(most, durable.most_messages or most)
        wait_s = min(wait_s, durable.most_wait_s or wait_s)
        wanted = {"batch": batch, "no_wait": True, "expires": int(wait_s * NS)}
        if not self._too_large:
            wanted["max_bytes"] = min(PULL_BYTES, durable.most_bytes or PULL_BYTES)
        self._too_large = False
        self._number += 1
        self._asked = self._left = batch
        self._expires_at = asyncio.get_running_loop().time() + wait_s
        self._over.clear()
        try:
            await self.connection.client.publish(
                self._subject, orjson.dumps(wanted), reply=f"{self._inbox}.{self._number}"
            )
        except (NatsError, OSError) as error:
            raise BrokerUnavailable(str(error) or type(error).__name__) from None

    async def _stirs(self, ends: float) -> bool:
        """Wait until something happens; False if nothing does until `ends`."""
        loop = asyncio.get_running_loop()
        limit = self._expires_at + ALIVE_S
        self._stirred.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(limit if self._expires_at <= ends else ends):
                await self._stirred.wait()
            return True
        if loop.time() >= limit:  # the server has not even said that nothing came
            self.connection.hung = True
            self.connection.lost.set()
            raise BrokerUnavailable("the server does not answer")
        return False

    async def _until_quiet(self, most: int) -> None:
        while not self._over.is_set() and len(self._buffer) < most:
            before = len(self._buffer)
            try:
                async with asyncio.timeout(QUIET_S):
                    await self._over.wait()
            except TimeoutError:
                if len(self._buffer) == before:
                    return

    def _raise_complaint(self) -> None:
        if self.connection.lost.is_set():
            raise BrokerUnavailable("the connection was lost")
        complaint, self._complaint = self._complaint, None
        if complaint is not None:
            raise complaint

    async def _receive(self, message: Msg) -> None:
        if message.subject.startswith(self._inbox):
            self._note_status(message)
            return
        self._buffer.append(message)
        self._left -= 1
        if self._left <= 0:
            self._over.set()
        self._stirred.set()

    def _note_status(self, message: Msg) -> None:
        if self._over.is_set() or message.subject.rpartition(".")[2] != str(self._number):
            return  # of a pull that is no longer open
        told = message.headers or {}
        status, text = told.get("Status", ""), told.get("Description", "").strip()
        if status == "100":
            return
        if text == _TOO_LARGE:
            self._too_large = not self._buffer
        elif status == "503" or text in _GONE:
            self._complaint = DurableGone(text or "nobody answers for the consumer")
        elif status not in _OVER and text != "Batch Completed":
            self._complaint = BrokerUnavailable(f"JetStream: {text or status}")
        self._over.set()
        self._stirred.set()

    async def _until_lost(self) -> None:
        await self.connection.lost.wait()
        self._over.set()
        self._stirred.set()
