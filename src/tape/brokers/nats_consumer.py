"""A durable JetStream consumer: what is fetched is delivered again until it is acknowledged.

The durable is made on first attach: explicit acknowledgement, everything the stream still has, no
end to redelivery. From then on JetStream keeps its cursor under its name. One that exists with
another filter or policy is refused, never changed.

While messages are in hand, waiting for their turn or being handled, they are reported as in
progress, so `ack_wait_s` only bounds how long a consumer that is gone keeps them. What was on its
way to a connection that broke comes again after that time, behind later messages, unless the
consumer is `in_order`: then the server sends nothing while a message is unacknowledged.

A connection that is lost is made anew, after 0.5 s and then twice as long each time up to 30 s;
what was in hand may still be acknowledged then, for an acknowledgement belongs to the message and
not to a connection.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Sequence

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NotFoundError

from tape.brokers.nats_bus import open_connection
from tape.brokers.nats_connection import NatsConnection
from tape.errors import BrokerUnavailable, InvalidArgument
from tape.ports.consumer import Delivery
from tape.settings import ConsumerSettings
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.consumer")

FETCH_S = 5.0
ALIVE_S = 2.0
MAX_ACK_PENDING = 1_000  # the server's own default
_AWAY = (NatsError, OSError, TimeoutError, BrokerUnavailable)

Subscription = JetStreamContext.PullSubscription


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
    ) -> None:
        self._url = nats_url
        self._stream = stream
        self._durable = durable
        self._subjects = list(subjects)
        self._settings = settings
        self._in_order = in_order
        self._connection: NatsConnection | None = None
        self._subscription: Subscription | None = None
        self._in_hand: dict[str, None] = {}
        self._progress: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Attach, or refuse. A server or a stream that is not there yet is waited for later."""
        try:
            await self._attach()
        except _AWAY as error:
            log.warning("consumer %s: %s; waiting for it", self._durable, _error_text(error))
        self._progress = asyncio.create_task(self._report(), name="tape-consumer-progress")

    async def close(self) -> None:
        """Let go. What is in hand is given back, for another to get at once."""
        if self._progress is not None:
            self._progress.cancel()
            await asyncio.gather(self._progress, return_exceptions=True)
        for receipt in [*self._in_hand]:
            await self.settle(receipt, Msg.Ack.Nak)
        if self._connection is not None:
            with contextlib.suppress(NatsError, OSError, TimeoutError):
                await self._connection.client.flush(int(ALIVE_S))  # acknowledgements on their way
            await self._connection.close()
            self._connection = None

    async def batches(self) -> AsyncGenerator[list[Delivery], None]:
        """What is to be handled, as it comes, for as long as this goes on."""
        pause_s = self._settings.reconnect_first_s
        retrying = Retrying(log, f"consumer {self._durable}")
        while True:
            try:
                subscription = await self._attached()
                fetched = await self._fetch(subscription)
            except _AWAY as error:
                jittered = pause_s * random.uniform(0.8, 1.0)  # noqa: S311 - only spreads retries
                retrying.failed(BrokerUnavailable(_error_text(error)), round(jittered, 1))
                await self._detach()
                await asyncio.sleep(jittered)
                pause_s = min(2 * pause_s, self._settings.reconnect_most_s)
                continue
            pause_s = self._settings.reconnect_first_s
            retrying.succeeded()
            if fetched:
                self._in_hand.update(dict.fromkeys(message.receipt for message in fetched))
                yield fetched

    async def settle(self, receipt: str, payload: bytes) -> bool:
        """The last word on a message; False if it could not be said, so that it comes again."""
        self._in_hand.pop(receipt, None)
        return await self._send(receipt, payload)

    async def report(self, receipt: str) -> bool:
        """It is still worked at."""
        return await self._send(receipt, Msg.Ack.Progress)

    async def _send(self, receipt: str, payload: bytes) -> bool:
        if self._connection is None or self._connection.lost.is_set():
            return False
        try:
            await self._connection.client.publish(receipt, payload)
        except (NatsError, OSError):
            return False
        return True

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(self._settings.ack_wait_s / 3)
            for receipt in [*self._in_hand]:
                await self.report(receipt)

    async def _fetch(self, subscription: Subscription) -> list[Delivery]:
        connection = self._connection
        assert connection is not None  # noqa: S101 - attached
        fetching = asyncio.ensure_future(
            subscription.fetch(1 if self._in_order else self._settings.fetch, FETCH_S)
        )
        losing = asyncio.ensure_future(connection.lost.wait())
        try:
            await asyncio.wait((fetching, losing), return_when=asyncio.FIRST_COMPLETED)
            if not fetching.done():
                raise BrokerUnavailable("the connection was lost")
            return [_delivery(message) for message in fetching.result()]
        except TimeoutError:
            await connection.client.flush(int(ALIVE_S))  # nothing new, or nobody there?
            return []
        finally:
            fetching.cancel()
            losing.cancel()

    async def _attached(self) -> Subscription:
        if self._subscription is None or self._connection is None:
            await self._attach()
        elif self._connection.lost.is_set():
            raise BrokerUnavailable("the connection was lost")
        assert self._subscription is not None  # noqa: S101 - attached
        return self._subscription

    async def _attach(self) -> None:
        connection = await open_connection(self._url, field="nats_url", name=self._durable)
        try:
            await self._ensure(connection.jetstream)
            self._subscription = await connection.jetstream.pull_subscribe_bind(
                consumer=self._durable, stream=self._stream
            )
        except BaseException:
            await connection.close()
            raise
        self._connection = connection

    async def _detach(self) -> None:
        self._subscription = None
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

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


def _delivery(message: Msg) -> Delivery:
    told = message.metadata
    return Delivery(
        message.subject, message.data, message.headers or {}, message.reply, told.num_delivered,
        told.sequence.stream,
    )  # fmt: skip


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
