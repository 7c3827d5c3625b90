"""The outbox's broker: NATS JetStream, each message to its own subject, on a stream that is there.

On each new connection the stream is made sure of first. A stream that is otherwise than the
settings say and cannot be changed safely is told of and used as it is: publishing goes on.
"""

import logging
from collections.abc import Sequence

from tape.brokers.in_order import Results
from tape.brokers.jetstream import Applied, apply_stream, check_stream
from tape.brokers.nats import NatsBroker
from tape.brokers.nats_connection import NatsConnection, environment_login
from tape.brokers.targets import NatsTarget, parse_nats_url
from tape.config import StreamSettings
from tape.errors import BrokerRefused, InvalidArgument
from tape.ports.broker import MaySend, Outgoing

log = logging.getLogger("tape.outbox")


class NatsBusBroker:
    def __init__(
        self, url: str, stream: StreamSettings, *, field: str = "tape.outbox.nats"
    ) -> None:
        """A stream without subjects is left to others to make."""
        check_stream(stream)
        self._stream = stream
        self._broker = NatsBroker(
            NatsTarget(parse_nats_url(url, field=field), ""), on_connected=self._make_ready
        )

    async def prepare(self) -> None:
        await self._broker.connect()

    async def publish(self, messages: Sequence[Outgoing], may_send: MaySend) -> Results:
        results = await self._broker.publish(messages, may_send)
        if any(isinstance(result, BrokerRefused) for result in results):
            await self._broker.close()  # the stream may be gone: the next connection looks
        return results

    async def close(self) -> None:
        await self._broker.close()

    async def _make_ready(self, connection: NatsConnection) -> None:
        if not self._stream.subjects:
            return
        try:
            applied = await apply_stream(connection, self._stream)
        except InvalidArgument as fault:
            log.error("the stream stays as it is: %s", fault)  # noqa: TRY400 - the text says all
        else:
            tell(self._stream, applied)


def tell(stream: StreamSettings, applied: Applied) -> None:
    if applied.outcome != "unchanged":
        changes = ", ".join(f"{c.field} {c.is_now} -> {c.wanted}" for c in applied.changes)
        log.info("stream %s: %s %s", stream.name, applied.outcome, changes)


async def open_connection(url: str, *, field: str, name: str = "tape") -> NatsConnection:
    """A connection to where a URL without subject and login says."""
    hosts = parse_nats_url(url, field=field)
    shown = f"nats://{','.join(hosts)}"
    return await NatsConnection.open(hosts, environment_login(), shown, name=name)
