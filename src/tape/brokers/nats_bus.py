"""The outbox's broker: NATS JetStream, each message to its own subject, on a stream that is there.

On each new connection the stream is made sure of first. A stream that is otherwise than the
settings say and cannot be changed safely is told of and used as it is: publishing goes on.

A limit of an account may be lower than the server's, and no client is told of it: the server just
closes the connection. So what was on its way when a connection was lost is sent again alone, after
everything else; if that loses the connection too, the message is refused, and holds up its own
subject only.
"""

import logging
from collections.abc import Sequence

from tape.brokers.in_order import Results
from tape.brokers.jetstream import Applied, apply_stream, check_stream
from tape.brokers.nats import ConnectionLost, NatsBroker
from tape.brokers.nats_connection import NatsConnection, environment_login
from tape.brokers.targets import NatsTarget, parse_nats_url
from tape.config import StreamSettings
from tape.errors import BrokerError, BrokerRefused, BrokerUnavailable, InvalidArgument
from tape.ports.broker import MaySend, Outgoing

log = logging.getLogger("tape.outbox")


class NatsBusBroker:
    def __init__(
        self, url: str, stream: StreamSettings, *, field: str = "tape.outbox.nats"
    ) -> None:
        """A stream without subjects is left to others to make."""
        check_stream(stream)
        self._stream = stream
        self._suspects: set[str] = set()
        """Ids of messages that were on their way when a connection was lost."""
        self._broker = NatsBroker(
            NatsTarget(parse_nats_url(url, field=field), ""), on_connected=self._make_ready
        )

    async def prepare(self) -> None:
        await self._broker.connect()

    async def publish(self, messages: Sequence[Outgoing], may_send: MaySend) -> Results:
        suspected = {m.ordering_key for m in messages if m.message_id in self._suspects}
        parts: dict[str, list[int]] = {"": []}
        for place, message in enumerate(messages):
            key = message.ordering_key
            parts.setdefault(key if key in suspected else "", []).append(place)
        results: Results = [None] * len(messages)
        unreachable: BrokerError | None = None
        for key, places in parts.items():
            part = [messages[place] for place in places]
            if unreachable is None:
                found = self._judged(part, await self._broker.publish(part, may_send), alone=key)
            else:
                found = [unreachable] * len(part)
            unreachable = _unreachable(found)
            for place, result in zip(places, found, strict=True):
                results[place] = result
        if any(isinstance(result, BrokerRefused) for result in results):
            await self._broker.close()  # the stream may be gone: the next connection looks
        return results

    async def close(self) -> None:
        await self._broker.close()

    def _judged(self, part: Sequence[Outgoing], found: Results, *, alone: str) -> Results:
        """Note what may have cost the connection, and refuse what has done it twice."""
        lanes: dict[str, BrokerError] = {}
        for message, result in zip(part, found, strict=True):
            if result is None:
                self._suspects.discard(message.message_id)
            elif message.ordering_key not in lanes:  # the rest of a lane was not tried
                lanes[message.ordering_key] = result
                if not isinstance(result, ConnectionLost):
                    continue
                if alone and message.message_id in self._suspects:
                    lanes[message.ordering_key] = _closes_connection(result)
                self._suspects.add(message.message_id)
        return [
            None if result is None else lanes[message.ordering_key]
            for message, result in zip(part, found, strict=True)
        ]

    async def _make_ready(self, connection: NatsConnection) -> None:
        if not self._stream.subjects:
            return
        try:
            applied = await apply_stream(connection, self._stream)
        except InvalidArgument as fault:
            log.error("the stream stays as it is: %s", fault)  # noqa: TRY400 - the text says all
        else:
            tell(self._stream, applied)


def _unreachable(found: Results) -> BrokerError | None:
    """Why nothing was sent at all, if that is so."""
    away = [
        r for r in found if isinstance(r, BrokerUnavailable) and not isinstance(r, ConnectionLost)
    ]
    return away[0] if away and len(away) == len(found) else None


def _closes_connection(lost: ConnectionLost) -> BrokerRefused:
    return BrokerRefused(
        f"{lost} again as soon as this message was sent alone. It has {lost.size} bytes with its "
        "headers; the account's max_payload may be lower than the server's: raise that, or leave "
        "the message out"
    )


def tell(stream: StreamSettings, applied: Applied) -> None:
    if applied.outcome != "unchanged":
        changes = ", ".join(f"{c.field} {c.is_now} -> {c.wanted}" for c in applied.changes)
        log.info("stream %s: %s %s", stream.name, applied.outcome, changes)


async def open_connection(url: str, *, field: str, name: str = "tape") -> NatsConnection:
    """A connection to where a URL without subject and login says."""
    hosts = parse_nats_url(url, field=field)
    shown = f"nats://{','.join(hosts)}"
    return await NatsConnection.open(hosts, environment_login(), shown, name=name)
