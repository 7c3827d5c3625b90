"""A durable JetStream consumer for programs: made on first attach, read for as long as it goes on.

The durable is made with explicit acknowledgement, everything the stream still has, and no end to
redelivery. From then on JetStream keeps its cursor under its name. One that exists with another
filter or policy is refused, never changed.

What is in hand is kept as in every source (`nats_reader.py`). What was on its way to a connection
that broke comes again after `ack_wait_s`, behind later messages, unless the consumer is `in_order`:
then the server sends nothing while a message is unacknowledged.

A connection that is lost is made anew, after 0.5 s and then twice as long each time up to 30 s.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Sequence

from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NotFoundError

from tape.brokers.logins import ENVIRONMENT, Logins
from tape.brokers.nats_bus import open_connection
from tape.brokers.nats_connection import NatsConnection
from tape.errors import BrokerUnavailable, InvalidArgument, SourceRefused
from tape.ports.source import ReceivedMessage
from tape.settings import ConsumerSettings
from tape.sources.nats_reader import AWAY, DurableReader
from tape.sources.next_try import NextTry
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.consumer")

FETCH_S = 5.0
MAX_ACK_PENDING = 1_000  # the server's own default
_NOT_NOW = (*AWAY, SourceRefused)  # refused: the durable was deleted a moment ago, and is made anew


class NatsConsumer:
    def __init__(
        self,
        nats_url: str,
        *,
        stream: str,
        durable: str,
        subjects: Sequence[str],
        settings: ConsumerSettings,
        in_order: bool = False,
        logins: Logins = ENVIRONMENT,
    ) -> None:
        self._url = nats_url
        self._logins = logins
        self._stream = stream
        self._durable = durable
        self._subjects = list(subjects)
        self._settings = settings
        self._in_order = in_order
        self.reader = DurableReader(self._connect, stream, durable)

    async def open(self) -> None:
        """Attach, or refuse. A server or a stream that is not there yet is waited for later."""
        try:
            await self.reader.attach()
        except _NOT_NOW as error:
            log.warning("consumer %s: %s; waiting for it", self._durable, _error_text(error))

    async def close(self) -> None:
        """Let go. What is in hand is given back, for another to get at once."""
        await self.reader.close()

    async def batches(self) -> AsyncGenerator[list[ReceivedMessage], None]:
        """What is to be handled, as it comes, for as long as this goes on."""
        next_try = NextTry(self._settings.reconnect_first_s, self._settings.reconnect_most_s)
        retrying = Retrying(log, f"consumer {self._durable}")
        fetch = 1 if self._in_order else self._settings.fetch
        while True:
            try:
                fetched = await self.reader.fetch(fetch, FETCH_S)
            except _NOT_NOW as error:
                pause_s = next_try.failed()
                retrying.failed(BrokerUnavailable(_error_text(error)), round(pause_s, 1))
                await self.reader.detach()
                await asyncio.sleep(pause_s)
                continue
            next_try.succeeded()
            retrying.succeeded()
            if fetched:
                yield fetched

    async def _connect(self) -> NatsConnection:
        connection = await open_connection(
            self._url, field="nats_url", name=self._durable, logins=self._logins
        )
        try:
            await self._ensure(connection.jetstream)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _ensure(self, jetstream: JetStreamContext) -> None:
        """Make the durable if there is none; InvalidArgument if it is another one."""
        wanted = self._config()
        try:
            info = await jetstream.consumer_info(self._stream, self._durable)
        except NotFoundError as error:
            if error.err_code == 10059:
                raise BrokerUnavailable(
                    f"there is no stream {self._stream}; `tape outbox stream apply` makes one"
                ) from None
            await self._create(jetstream, wanted)
            return
        refuse_other(self._durable, info.config, wanted)

    async def _create(self, jetstream: JetStreamContext, wanted: ConsumerConfig) -> None:
        try:
            await jetstream.add_consumer(self._stream, wanted)
        except APIError as error:
            with contextlib.suppress(NotFoundError):
                info = await jetstream.consumer_info(self._stream, self._durable)
                refuse_other(self._durable, info.config, wanted)
                return  # another process was quicker
            raise InvalidArgument(
                f"the server refuses the consumer: {error.description}", field="durable"
            ) from None

    def _config(self) -> ConsumerConfig:
        one = len(self._subjects) == 1
        return ConsumerConfig(
            durable_name=self._durable,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._settings.ack_wait_s,
            max_deliver=-1,
            max_ack_pending=1 if self._in_order else MAX_ACK_PENDING,
            filter_subject=self._subjects[0] if one else None,
            filter_subjects=None if one else self._subjects,
        )


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


def refuse_other(durable: str, has: ConsumerConfig, wants: ConsumerConfig) -> None:
    """InvalidArgument if a durable is not what was asked for."""
    told = [
        f"{field} is {is_now}, wanted {wanted}"
        for field, is_now, wanted in (
            ("subject", _filters(has), _filters(wants)),
            ("ack_policy", _text(has.ack_policy), _text(wants.ack_policy)),
            ("deliver_policy", _text(has.deliver_policy), _text(wants.deliver_policy)),
            ("max_ack_pending", str(has.max_ack_pending), str(wants.max_ack_pending)),
            ("max_deliver", str(has.max_deliver), str(wants.max_deliver)),
            ("ack_wait_s", f"{has.ack_wait:g}", f"{wants.ack_wait:g}"),
            ("deliver_subject", str(has.deliver_subject or "none"), "none"),
        )
        if is_now != wanted
    ]
    if told:
        raise InvalidArgument(
            f"the consumer {durable} exists with other properties: {'; '.join(told)}. Use the "
            "same properties, or another name; a new name starts at the oldest message that is "
            "kept",
            field="durable",
        )


def _filters(config: ConsumerConfig) -> str:
    named = config.filter_subjects or ([config.filter_subject] if config.filter_subject else [">"])
    return ", ".join(sorted(named))


def _text(policy: object) -> str:
    return str(getattr(policy, "value", policy))
