"""NATS JetStream: a message is published when the stream's PubAck is in.

`Nats-Msg-Id` is the message id, so a stream drops repeats within its duplicate window. The client
does not reconnect by itself: what it buffers while away would reach the server after we had given
up on it. A connection that is lost fails what is in flight at once, and the next publish opens a
new one.
"""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from typing import TypedDict

from nats.aio.client import Client
from nats.errors import BadHeaderError, MaxPayloadError
from nats.errors import Error as NatsError
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError, ServerError, ServiceUnavailableError

from tape.brokers.in_order import Results, one_by_one, publish_by_key
from tape.brokers.targets import NatsTarget
from tape.errors import BrokerError, BrokerRefused, BrokerUnavailable
from tape.ports.broker import Outgoing
from tape.wire.cloudevents import cloud_event, text_headers

IN_FLIGHT = 256
ACK_S = 10.0
CONNECT_S = 5.0
CLOSE_S = 2.0
STREAM_NOT_FOUND = 10059  # of JetStream's error codes


class _Login(TypedDict, total=False):
    user: str
    password: str
    token: str
    user_credentials: str


def _login(target: NatsTarget) -> _Login:
    """That of the target, where a program gave it one, or that of the environment."""
    if target.password:
        return {"user": target.user, "password": target.password}
    if target.user:
        return {"token": target.user}
    if credentials := os.environ.get("TAPE_NATS_CREDENTIALS"):
        return {"user_credentials": credentials}
    if user := os.environ.get("TAPE_NATS_USER"):
        return {"user": user, "password": os.environ.get("TAPE_NATS_PASSWORD", "")}
    return {}


class _Connection:
    """One connection, until it is lost."""

    def __init__(self) -> None:
        self.client = Client()
        self.lost = asyncio.Event()
        self.reason = ""

    async def open(self, target: NatsTarget) -> JetStreamContext:
        await self.client.connect(
            [f"nats://{host}" for host in target.hosts],
            error_cb=self._note,
            closed_cb=self._closed,
            name="tape",
            allow_reconnect=False,
            connect_timeout=int(CONNECT_S),
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            **_login(target),
        )
        return self.client.jetstream(timeout=ACK_S)

    async def close(self) -> None:
        with contextlib.suppress(NatsError, OSError, TimeoutError):
            await asyncio.wait_for(self.client.close(), CLOSE_S)

    async def _note(self, error: Exception) -> None:
        self.reason = type(error).__name__

    async def _closed(self) -> None:
        self.lost.set()


class NatsBroker:
    def __init__(self, target: NatsTarget, *, ack_s: float = ACK_S) -> None:
        self._target = target
        self._ack_s = ack_s
        self._connection: _Connection | None = None
        self._stream: JetStreamContext | None = None
        self._opening = asyncio.Lock()

    def __repr__(self) -> str:
        return f"NatsBroker({self._target.shown})"

    async def publish(self, messages: Sequence[Outgoing]) -> Results:
        try:
            connection, stream = await self._connected()
        except BrokerError as error:
            return [error] * len(messages)

        async def send(message: Outgoing) -> None:
            await self._send(connection, stream, message)

        return await publish_by_key(messages, one_by_one(send), in_flight=IN_FLIGHT)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _connected(self) -> tuple[_Connection, JetStreamContext]:
        async with self._opening:
            if self._connection is not None and not self._connection.lost.is_set():
                assert self._stream is not None  # noqa: S101 - set together
                return self._connection, self._stream
            await self.close()
            connection = _Connection()
            try:
                stream = await asyncio.wait_for(connection.open(self._target), CONNECT_S)
            except (NatsError, OSError, TimeoutError) as error:
                await connection.close()
                reason = connection.reason or type(error).__name__
                raise BrokerUnavailable(f"{self._target.shown}: {reason}") from None
            except BaseException:
                await connection.close()
                raise
            self._connection, self._stream = connection, stream
            return connection, stream

    async def _send(
        self, connection: _Connection, stream: JetStreamContext, message: Outgoing
    ) -> None:
        event = cloud_event(message)
        headers = {**text_headers(event), "Nats-Msg-Id": message.message_id}
        sending = asyncio.ensure_future(
            stream.publish(
                self._target.subject, event.data.encode(), timeout=self._ack_s, headers=headers
            )
        )
        losing = asyncio.ensure_future(connection.lost.wait())
        try:
            await asyncio.wait((sending, losing), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise BrokerUnavailable(f"{self._target.shown}: the connection was lost")
            sending.result()
        except TimeoutError:
            # The server hangs, or the way to it is cut: start over rather than wait for each.
            connection.lost.set()
            raise BrokerUnavailable(f"{self._target.shown}: no acknowledgement in time") from None
        except (NatsError, OSError) as error:
            raise self._translated(error) from None
        finally:
            sending.cancel()
            losing.cancel()

    def _translated(self, error: Exception) -> BrokerError:
        where, name = self._target.shown, type(error).__name__
        if isinstance(error, NoStreamResponseError):
            return BrokerRefused(
                f"{where}: no stream takes the subject {self._target.subject!r}; "
                "make one, or correct the target"
            )
        if isinstance(error, MaxPayloadError):
            return BrokerRefused(f"{where}: the message is larger than the server's max_payload")
        if isinstance(error, BadHeaderError):
            return BrokerRefused(f"{where}: {name}")
        if isinstance(error, APIError):
            text = f"{where}: {error.description or name}"
            away = isinstance(error, ServiceUnavailableError | ServerError)
            return BrokerUnavailable(text) if away else BrokerRefused(text)
        return BrokerUnavailable(f"{where}: {name}")
