"""Sinks for `run_journal_relay`: each takes the journal to one broker.

The order is kept within a run, and within a subject for entries outside any run. An entry that is
sent again keeps its id and says so: `tapeattempt` of its CloudEvents form counts from 2.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TextIO

from tape.brokers.by_target import check_client, open_broker
from tape.brokers.log import LogBroker
from tape.brokers.logins import ENVIRONMENT, NO_ALIASES, Logins, alias_of
from tape.brokers.targets import KafkaTarget, WebhookTarget, parse_target
from tape.errors import BrokerRefused, InvalidArgument
from tape.model.entry import Entry
from tape.ports.broker import Broker, Outgoing
from tape.ports.sink import Sink
from tape.programs.file_sink import FileSink
from tape.settings import CredentialSettings

__all__ = [
    "FileSink", "KafkaSink", "LogSink", "NatsSink", "PubSubSink", "Sink", "WebhookSink", "sink_for",
]  # fmt: skip


class BrokerSink:
    """Send entries to a broker.

    It remembers which entries of a failed `send` were acknowledged and which were tried. So the
    relay's next `send` of the same entries repeats few of them, and marks those.
    """

    def __init__(self, open_it: Callable[[], Awaitable[Broker]]) -> None:
        self._open = open_it
        self.logins = ENVIRONMENT
        self._broker: Broker | None = None
        self._tried: dict[str, int] = {}
        self._acknowledged: set[str] = set()

    async def send(self, entries: Sequence[Entry]) -> None:
        broker = await self._opened()
        messages = [
            Outgoing(
                entry,
                entry.event_id,
                entry.run_id or entry.subject,
                self._tried.get(entry.event_id, 0) + 1,
            )
            for entry in entries
            if entry.event_id not in self._acknowledged
        ]
        self._tried = {message.message_id: message.attempt for message in messages}
        results = await broker.publish(messages)
        answered = list(zip(messages, results, strict=True))
        failures = [(message, result) for message, result in answered if result is not None]
        if failures:
            self._acknowledged.update(message.message_id for message, r in answered if r is None)
            self._acknowledged &= {entry.event_id for entry in entries}
            for message, failure in failures:
                if isinstance(failure, BrokerRefused):
                    raise _held_up(message.entry, failure)
            raise failures[0][1]
        self._tried.clear()
        self._acknowledged.clear()

    async def log_in_with(self, logins: Logins) -> None:
        """Use these logins; refuse if a credential cannot be opened. A relay says so before it
        sends anything."""
        self.logins = logins
        await self._opened()

    async def _opened(self) -> Broker:
        if self._broker is None:
            self._broker = await self._open()
        return self._broker

    def expect_repeats(self, entries: Sequence[Entry]) -> None:
        """These may have been sent by an earlier relay."""
        for entry in entries:
            self._tried.setdefault(entry.event_id, 1)

    async def close(self) -> None:
        if self._broker is not None:
            await self._broker.close()
            self._broker = None


class TargetSink(BrokerSink):
    """Send entries to a publish target."""

    def __init__(self, target: str) -> None:
        check_client(target)
        super().__init__(lambda: open_broker(target, logins=self.logins))


class NatsSink(TargetSink):
    """Send entries to a JetStream stream: `nats://HOST:PORT/SUBJECT`."""

    def __init__(self, target: str) -> None:
        _require("nats", target)
        super().__init__(target)


class KafkaSink(BrokerSink):
    """Send entries to a topic: `kafka://HOST:PORT/TOPIC`.

    `config` has client settings such as SASL and TLS; by default they are in a credential, or in
    the file that TAPE_KAFKA_CONFIG names.
    """

    def __init__(
        self, target: str, *, config: Mapping[str, str | int | bool] | None = None
    ) -> None:
        _require("kafka", target)

        async def open_it() -> Broker:
            if config is None:
                return await open_broker(target, logins=self.logins)
            from tape.brokers.kafka import KafkaBroker

            parsed = parse_target(target)
            assert isinstance(parsed, KafkaTarget)  # noqa: S101 - by its scheme
            return KafkaBroker(parsed, config=dict(config))

        super().__init__(open_it)


class PubSubSink(TargetSink):
    """Send entries to a topic of Google Pub/Sub, with the run's id as ordering key."""

    def __init__(self, project: str, topic: str) -> None:
        target = f"pubsub://{project}/{topic}"
        _require("pubsub", target)
        super().__init__(target)


class WebhookSink(BrokerSink):
    """Send entries as signed POSTs to an `https://` URL, with `X-Tape-Event-Id: run_id/seq`.

    The secret is TAPE_WEBHOOK_SECRET unless one is given, or the URL ends in #credential=ALIAS.
    """

    def __init__(self, url: str, *, secret: str | None = None) -> None:
        from tape.brokers.webhook import WebhookBroker

        parsed = parse_target(url)
        if not isinstance(parsed, WebhookTarget):
            raise InvalidArgument("is not the URL of a webhook", field="publish_target")
        if secret is None and parsed.credential:
            super().__init__(lambda: open_broker(url, logins=self.logins))
            return
        broker = WebhookBroker(parsed, secret=secret)

        async def open_it() -> Broker:
            return broker

        super().__init__(open_it)


class LogSink(BrokerSink):
    """Write one line of CloudEvents JSON per entry, to standard output or to `out`."""

    def __init__(self, out: TextIO | None = None) -> None:
        async def open_it() -> Broker:
            return LogBroker(out)

        super().__init__(open_it)


def sink_for(target: str, credentials: CredentialSettings = NO_ALIASES) -> Sink:
    """The sink of a publish target. What it needs and lacks is found out here, but for a credential
    of the wallet, which the relay looks up."""
    parsed = parse_target(target)
    if isinstance(parsed, WebhookTarget) and not alias_of(parsed, credentials):
        return WebhookSink(target)
    return TargetSink(target)


def _held_up(entry: Entry, refused: BrokerRefused) -> BrokerRefused:
    seq = entry.global_seq
    return BrokerRefused(
        f"entry {seq} ({entry.subject}) is refused, and no later entry is relayed: {refused}. "
        f"Correct the cause, or relay without the entry: --where 'global_seq != {seq}'"
    )


def _require(scheme: str, target: str) -> None:
    check_client(target)
    if target.partition(":")[0] != scheme:
        raise InvalidArgument(f"does not start with {scheme}://", field="publish_target")
