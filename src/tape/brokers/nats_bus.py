"""The outbox's broker: NATS JetStream, each message to its own subject, on a stream that is there.

On each new connection the stream is made sure of first. A stream that is otherwise than the
settings say and cannot be changed safely is told of and used as it is: publishing goes on.

A stream drops a message whose id it has seen within its duplicate window, and acknowledges it. The
outbox finds a second event under one id only as long as it knows the first. So it must know ids for
at least as long as the stream does, which is warned of where it is not so.
"""

import logging
from collections.abc import Sequence

from tape.brokers.in_order import Results
from tape.brokers.jetstream import NS, StreamChange, apply_stream, check_stream, read_stream
from tape.brokers.logins import ENVIRONMENT, Logins
from tape.brokers.nats import NatsBroker
from tape.brokers.nats_connection import NatsConnection
from tape.brokers.nats_login import logins_of
from tape.brokers.targets import NatsTarget, parse_nats_url
from tape.errors import BrokerRefused, BrokerUnavailable, InvalidArgument, NotFound
from tape.ports.broker import MaySend, Outgoing
from tape.settings import StreamSettings

log = logging.getLogger("tape.outbox")


class NatsBusBroker:
    def __init__(
        self,
        url: str,
        stream: StreamSettings,
        *,
        keep_s: float,
        field: str = "tape.outbox.nats",
        logins: Logins = ENVIRONMENT,
    ) -> None:
        """A stream without subjects is left to others to make."""
        check_stream(stream)
        self._stream = stream
        self._keep_s = keep_s
        target = NatsTarget(parse_nats_url(url, field=field), "")
        self._broker = NatsBroker(
            target, open_login=logins.of(target), on_connected=self._make_ready
        )

    async def prepare(self) -> None:
        await self._compare_windows(await self._broker.connect())

    async def publish(self, messages: Sequence[Outgoing], may_send: MaySend) -> Results:
        results = await self._broker.publish(messages, may_send)
        if any(isinstance(result, BrokerRefused) for result in results):
            await self._broker.close()  # the stream may be gone: the next connection looks
        return results

    async def close(self) -> None:
        await self._broker.close()

    async def _compare_windows(self, connection: NatsConnection) -> None:
        try:
            info = await read_stream(connection, self._stream.name)
        except (NotFound, BrokerUnavailable):  # it has another name, or may not be looked at
            return
        window_s = info["config"].get("duplicate_window", 0) / NS
        if self._keep_s < window_s:
            log.warning(
                "tape.outbox.keep_s is %g, below the duplicate window of the stream %s, which "
                "is %g s: the stream would silently drop an event whose id the outbox no longer "
                "knows; raise keep_s",
                self._keep_s, self._stream.name, window_s,
            )  # fmt: skip

    async def _make_ready(self, connection: NatsConnection) -> None:
        if not self._stream.subjects:
            return
        try:
            applied = await apply_stream(connection, self._stream)
        except InvalidArgument as fault:
            log.error("the stream was not changed: %s", fault)  # noqa: TRY400 - the text says all
        else:
            log_stream_change(self._stream, applied)


def log_stream_change(stream: StreamSettings, applied: StreamChange) -> None:
    if applied.outcome != "unchanged":
        changes = ", ".join(f"{c.field} {c.is_now} -> {c.wanted}" for c in applied.changes)
        log.info("stream %s: %s %s", stream.name, applied.outcome, changes)


async def open_connection(
    url: str, *, field: str, name: str = "tape", logins: Logins = ENVIRONMENT
) -> NatsConnection:
    """A connection to where a URL without subject and login says."""
    target = NatsTarget(parse_nats_url(url, field=field), "")
    tried = logins_of(await logins.of(target)())
    return await NatsConnection.let_in(target.hosts, tried, target.shown, name=name)
