"""Messages that may be the reason why a connection was lost.

A limit of an account may be lower than the server's, and no client is told of it: the server just
closes the connection of who sends more, as if it were away. So what was on its way when a
connection was lost is suspected, and goes out the next time on a connection of its own, after
everything else. If that one is lost too, and the server takes the next, then it is the message: it
is refused, and holds up nothing but what has its ordering key.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence

from tape.brokers.in_order import PUBLISH_S, Results, one_by_one
from tape.brokers.nats_connection import NatsConnection
from tape.errors import BrokerError, BrokerRefused, BrokerUnavailable
from tape.ports.broker import Outgoing

KEPT_MOST = 10_000
"""Those that others have published since are never heard of again, so the oldest are forgotten."""

Open = Callable[[], Awaitable[NatsConnection]]
Send = Callable[[NatsConnection, Outgoing], Awaitable[None]]


class ConnectionLost(BrokerUnavailable):
    """The server closed the connection, or is gone, while a message of `size` was on its way."""

    def __init__(self, text: str, size: int) -> None:
        super().__init__(text)
        self.size = size


class Suspects:
    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def keys_of(self, messages: Iterable[Outgoing]) -> list[str]:
        """The ordering keys that have a suspect, each once."""
        return [*dict.fromkeys(m.ordering_key for m in messages if m.message_id in self._ids)]

    def note(self, messages: Sequence[Outgoing], results: Results) -> None:
        """Clear what was acknowledged, and suspect what was on its way when a connection was lost;
        the rest of its lane was not tried."""
        seen: set[str] = set()
        for message, result in zip(messages, results, strict=True):
            if result is None:
                self._ids.pop(message.message_id, None)
            elif message.ordering_key not in seen:
                seen.add(message.ordering_key)
                if isinstance(result, ConnectionLost):
                    self._ids[message.message_id] = None
        while len(self._ids) > KEPT_MOST:
            del self._ids[next(iter(self._ids))]

    async def publish_alone(
        self, lanes: Sequence[Sequence[Outgoing]], open_connection: Open, send: Send
    ) -> list[Results]:
        """The results of each lane; one after the other, until the broker is not there."""
        own = _OwnConnection(open_connection)
        try:
            return [await self._publish_lane(lane, own, send) for lane in lanes]
        finally:
            await own.close()

    async def _publish_lane(
        self, lane: Sequence[Outgoing], own: "_OwnConnection", send: Send
    ) -> Results:
        try:
            connection = await own.get()
        except BrokerError as away:
            return [away] * len(lane)
        results = await one_by_one(lambda message: send(connection, message))(lane)
        failed = next((place for place, result in enumerate(results) if result is not None), 0)
        lost = results[failed]
        if isinstance(lost, ConnectionLost) and lane[failed].message_id in self._ids:
            with contextlib.suppress(BrokerError):  # then the server is gone: it may be that
                await own.get()
                results[failed:] = [_closes_connection(lost)] * (len(lane) - failed)
        self.note(lane, results)
        return results


class _OwnConnection:
    """A connection that nothing else is on. Once there is none to be had, that is so for all."""

    def __init__(self, open_connection: Open) -> None:
        self._open = open_connection
        self._connection: NatsConnection | None = None
        self._give_up = asyncio.get_running_loop().time() + PUBLISH_S
        self._away: BrokerError | None = None

    async def get(self) -> NatsConnection:
        if asyncio.get_running_loop().time() > self._give_up:
            self._away = BrokerUnavailable("the broker is too slow: not tried")
        if self._away is not None:
            raise self._away
        if self._connection is None or self._connection.lost.is_set():
            await self.close()
            try:
                self._connection = await self._open()
            except BrokerError as error:
                self._away = error
                raise
        return self._connection

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


def _closes_connection(lost: ConnectionLost) -> BrokerRefused:
    return BrokerRefused(
        f"{lost} again as soon as this message was sent alone. It has {lost.size} bytes with its "
        "headers; the account's max_payload may be lower than the server's: raise it, or skip "
        "the message"
    )
