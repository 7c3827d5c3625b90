"""NATS JetStream: a message is published when the stream's PubAck is in.

`Nats-Msg-Id` is the message id, so a stream drops repeats within its duplicate window. A
connection that is lost fails what is in flight at once, and the next publish opens a new one.

A server closes the connection of who sends more than its `max_payload`, headers and payload counted
together, which would look like a server that is away. So that limit, which the server tells on each
new connection, is looked at first, and what is larger is refused and never sent. After such a
refusal the connection is made anew: the limit may be another by now. A limit that the server does
not tell is found out by what it does (`nats_suspects`).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from nats.errors import BadHeaderError
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NoStreamResponseError, ServerError, ServiceUnavailableError

from tape.brokers.in_order import Results, one_by_one, publish_by_key
from tape.brokers.logins import LoginsInUse, OpenLogin, from_environment
from tape.brokers.nats_connection import ANSWER_S, Login, NatsConnection
from tape.brokers.nats_login import logins_of
from tape.brokers.nats_suspects import ConnectionLost, Send, Suspects
from tape.brokers.reach import HostPort, Reach, places
from tape.brokers.targets import NatsTarget
from tape.errors import (
    BrokerError,
    BrokerRefused,
    BrokerUnavailable,
    InvalidArgument,
)
from tape.ports.broker import MaySend, Outgoing
from tape.wire.cloudevents import cloud_event, text_headers

IN_FLIGHT = 256
ATTEMPT_HEADER = "ce-tapeattempt"


class _OverLimit(BrokerRefused):
    """The message is larger than the server's max_payload."""


async def _no_setup(_connection: NatsConnection) -> None:
    """For those who need nothing done on a new connection."""


def _may_always_send() -> bool:
    return True


class NatsBroker:
    def __init__(
        self,
        target: NatsTarget,
        *,
        ack_s: float = ANSWER_S,
        reach: Reach | None = None,
        open_login: OpenLogin = from_environment,
        on_connected: Callable[[NatsConnection], Awaitable[None]] = _no_setup,
    ) -> None:
        """A target without a subject sends each message to its entry's event type. `on_connected`
        is done once on each new connection, before anything is sent on it."""
        self._target = target
        self._ack_s = ack_s
        self._reach = reach
        self._logins_in_use = LoginsInUse(open_login, target.shown, logins_of)
        self._on_connected = on_connected
        self._connection: NatsConnection | None = None
        self._opening = asyncio.Lock()
        self._revision = self._logins_in_use.revision
        """Of the credential that the connection was made with."""
        self._publishing: Counter[NatsConnection] = Counter()
        self._limit_in_doubt = False
        self._suspects = Suspects()

    def __repr__(self) -> str:
        return f"NatsBroker({self._target.shown})"

    async def connect(self) -> NatsConnection:
        """Now, and not with the first message."""
        return await self._connected()

    async def publish(
        self, messages: Sequence[Outgoing], may_send: MaySend = _may_always_send
    ) -> Results:
        try:
            connection = await self._connected()
        except BrokerError as error:
            return [error] * len(messages)

        async def send(over: NatsConnection, message: Outgoing) -> None:
            if not may_send():
                raise BrokerUnavailable("not sent: this relay may no longer lead")
            await self._send(over, message)

        self._publishing[connection] += 1
        try:
            results = await self._publish(messages, connection, send)
        finally:
            self._publishing[connection] -= 1
            if not self._publishing[connection]:
                del self._publishing[connection]
                if connection is not self._connection:  # its login was changed meanwhile
                    await connection.close()
        if any(isinstance(result, _OverLimit) for result in results):
            self._limit_in_doubt = True
        return results

    async def _publish(
        self, messages: Sequence[Outgoing], connection: NatsConnection, send: Send
    ) -> Results:
        """All on one connection, but for the lanes of suspects."""
        lanes: dict[str, list[int]] = {key: [] for key in self._suspects.keys_of(messages)}
        together: list[int] = []
        for place, message in enumerate(messages):
            lanes.get(message.ordering_key, together).append(place)
        some = [messages[place] for place in together]
        found = await publish_by_key(
            some, one_by_one(lambda message: send(connection, message)), in_flight=IN_FLIGHT
        )
        self._suspects.note(some, found)
        results = dict(zip(together, found, strict=True))
        alone = await self._suspects.publish_alone(
            [[messages[place] for place in lane] for lane in lanes.values()],
            lambda: self._open(self._target),
            send,
        )
        for lane, of_lane in zip(lanes.values(), alone, strict=True):
            results.update(zip(lane, of_lane, strict=True))
        return [results[place] for place in range(len(messages))]

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _connected(self) -> NatsConnection:
        async with self._opening:
            # Others may have messages on their way: the connection is then kept for them.
            asks_limit = self._limit_in_doubt and not self._publishing
            lost = self._connection is None or self._connection.lost.is_set()
            if not lost and await self._has_new_login():
                await self._leave()
            elif self._connection is not None and not lost and not asks_limit:
                return self._connection
            await self.close()
            self._limit_in_doubt = False
            target = self._target
            connection = await self._open(target)
            try:
                await self._on_connected(connection)
            except BaseException:
                await connection.close()
                raise
            self._connection = connection
            self._revision = self._logins_in_use.revision
            return connection

    async def _has_new_login(self) -> bool:
        """Whether the credential was changed since the connection was made."""
        if self._target.user:
            return False
        try:
            await self._logins_in_use.renew()
        except BrokerUnavailable:  # it was deleted, or cannot be used
            await self._leave()
            raise
        return self._logins_in_use.revision != self._revision

    async def _leave(self) -> None:
        """Use the connection no more; who has messages on their way closes it."""
        left, self._connection = self._connection, None
        if left is not None and not self._publishing[left]:
            await left.close()

    async def _open(self, target: NatsTarget) -> NatsConnection:
        """To its hosts; where it is held to a reach, to the addresses of each that were judged."""
        if self._reach is None:
            logins = await self._logins()
            return await NatsConnection.let_in(target.hosts, logins, target.shown)
        try:
            self._reach.check(target)  # the environment may have got a login since
        except InvalidArgument as refused:
            raise BrokerRefused(str(refused)) from None
        away: BrokerUnavailable | None = None
        for place in places(target):
            addresses = await self._reach.resolve(place)
            pinned = [str(HostPort(address, place.port)) for address in addresses]
            logins = await self._logins() if self._reach.trusts(place) else [Login()]
            try:
                return await NatsConnection.let_in(
                    pinned, logins, target.shown, tls_host=place.host
                )
            except BrokerUnavailable as error:
                away = error
        raise away or BrokerUnavailable(f"{target.shown} names no host")

    async def _logins(self) -> Sequence[Login]:
        """Those of the target, where a program gave it one, of its credential, or that of the
        environment."""
        target = self._target
        if target.password:
            return [{"user": target.user, "password": target.password}]
        if target.user:
            return [{"token": target.user}]
        return await self._logins_in_use.renew()

    async def _send(self, connection: NatsConnection, message: Outgoing) -> None:
        event = cloud_event(message)
        subject = self._target.subject or message.entry.event_type
        data = event.data.encode()
        headers = {**text_headers(event), "Nats-Msg-Id": message.message_id}
        limit = connection.client.max_payload
        if header_bytes(headers) + len(data) > limit:
            headers.pop(ATTEMPT_HEADER, None)  # what we add ourselves must not be what is too much
        size = header_bytes(headers) + len(data)
        if size > limit:
            raise self._over_limit(size, header_bytes(headers), limit)
        sending = asyncio.ensure_future(
            connection.jetstream.publish(subject, data, timeout=self._ack_s, headers=headers)
        )
        losing = asyncio.ensure_future(connection.lost.wait())
        try:
            await asyncio.wait((sending, losing), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                text = f"{self._target.shown}: the connection was lost"
                raise BrokerUnavailable(text) if connection.hung else ConnectionLost(text, size)
            sending.result()
        except TimeoutError:
            # The server hangs, or the way to it is cut: start over rather than wait for each.
            connection.hung = True
            connection.lost.set()
            raise BrokerUnavailable(f"{self._target.shown}: no acknowledgement in time") from None
        except (NatsError, OSError) as error:
            raise self._translated(error, subject, size) from None
        finally:
            sending.cancel()
            losing.cancel()

    def _over_limit(self, size: int, in_headers: int, limit: int) -> BrokerRefused:
        return _OverLimit(
            f"{self._target.shown}: the message has {size} bytes, {in_headers} of them headers, "
            f"and the server's max_payload is {limit}: raise max_payload, or skip the message"
        )

    def _translated(self, error: Exception, subject: str, size: int) -> BrokerError:
        where, name = self._target.shown, type(error).__name__
        if isinstance(error, NoStreamResponseError):
            return BrokerRefused(
                f"{where}: no stream takes the subject {subject!r}; create one, or correct the "
                "subject"
            )
        if isinstance(error, BadHeaderError):
            return BrokerRefused(f"{where}: {name}")
        if isinstance(error, APIError):
            text = (
                f"{where}: {error.description or name} (the message has {size} bytes with headers)"
            )
            away = isinstance(error, ServiceUnavailableError | ServerError)
            return BrokerUnavailable(text) if away else BrokerRefused(text)
        return BrokerUnavailable(f"{where}: {name}")


def header_bytes(headers: Mapping[str, str]) -> int:
    """How much headers add to a message, as the server counts it."""
    lines = sum(len(name) + len(value.encode()) + len(": \r\n") for name, value in headers.items())
    return len("NATS/1.0\r\n") + lines + len("\r\n")
