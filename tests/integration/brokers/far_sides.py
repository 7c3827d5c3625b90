"""The far sides of the brokers: how each system shows what it took, goes away and comes back."""

import asyncio
import io
import json
import uuid
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient, Subscription
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, DeliverPolicy

from tape.brokers.kafka import KafkaBroker
from tape.brokers.log import LogBroker
from tape.brokers.nats import NatsBroker
from tape.brokers.pubsub import PubSubBroker
from tape.brokers.targets import (
    KafkaTarget,
    NatsTarget,
    PubSubTarget,
    WebhookTarget,
    parse_target,
)
from tape.brokers.webhook import WebhookBroker
from tape.ports.broker import Broker, Outgoing
from tests.conformance.broker import BOUND_S, Received
from tests.servers.kafka import KafkaServer, MockKafka
from tests.servers.nats import NatsServer
from tests.servers.pubsub import PubSubEmulator
from tests.servers.webhook import SECRET, Delivery, WebhookReceiver

MIB = 1 << 20


def enlarged(message: Outgoing, size: int) -> Outgoing:
    return message._replace(entry=message.entry._replace(payload_json=f'"{"x" * size}"'))


class NatsFarSide:
    drops_repeats = True

    def __init__(self, server: NatsServer, login: str = "") -> None:
        self.server = server
        self.subject = f"tape.{uuid.uuid4().hex}"
        self.target = f"nats://{login}{server.address}/{self.subject}"
        self._login = login

    async def make_stream(self) -> None:
        client = await self._client()
        try:
            name = self.subject.replace(".", "-")
            await client.jetstream().add_stream(name=name, subjects=[self.subject])
        finally:
            await client.close()

    async def open(self) -> Broker:
        target = parse_target(self.target)
        assert isinstance(target, NatsTarget)
        return NatsBroker(target)

    async def received(self, count: int) -> list[Received]:
        found: list[Received] = []
        client = await self._client()
        try:
            subscription = await client.jetstream().pull_subscribe(
                self.subject, config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
            )
            async with asyncio.timeout(BOUND_S):
                while True:
                    pending = (await subscription.consumer_info()).num_pending or 0
                    if not pending and len(found) >= count:
                        return found
                    if pending:
                        for message in await subscription.fetch(min(pending, 500), timeout=10):
                            await message.ack()
                            found.append(_with_headers("ce-", message.headers or {}, message.data))
        finally:
            await client.close()

    def unwelcome(self, message: Outgoing) -> Outgoing | None:
        return enlarged(message, 3 * MIB)

    async def go_away(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def come_back(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def _client(self) -> Client:
        client = Client()
        url = f"nats://{self._login}{self.server.address}"
        await client.connect(url, allow_reconnect=False)
        return client


class KafkaFarSide:
    drops_repeats = False

    def __init__(self, server: KafkaServer | MockKafka, reports_s: float = 30.0) -> None:
        self.server = server
        self.topic = f"tape-{uuid.uuid4().hex}"
        self.target = f"kafka://{server.address}/{self.topic}"
        self._reports_s = reports_s

    def make_topic(self) -> None:
        if not self.server.real:
            return  # the mock cluster makes topics when they are asked for, and only then
        admin = AdminClient({"bootstrap.servers": self.server.address, "log_level": 0})
        topic = NewTopic(self.topic, 4, 1)
        for made in admin.create_topics([topic], request_timeout=BOUND_S).values():
            made.result(BOUND_S)

    async def open(self) -> Broker:
        target = parse_target(self.target)
        assert isinstance(target, KafkaTarget)
        return KafkaBroker(target, reports_s=self._reports_s)

    async def received(self, count: int) -> list[Received]:
        async with asyncio.timeout(BOUND_S):
            return await asyncio.to_thread(self._read, count)

    def _read(self, count: int) -> list[Received]:
        consumer = Consumer(
            {"bootstrap.servers": self.server.address, "group.id": uuid.uuid4().hex,
             "enable.auto.commit": False, "log_level": 0, "fetch.wait.max.ms": 20}
        )  # fmt: skip
        found: list[Received] = []
        try:
            consumer.assign([TopicPartition(self.topic, number, 0) for number in range(4)])
            ends = {}
            for number in range(4):
                at = TopicPartition(self.topic, number)
                ends[number] = consumer.get_watermark_offsets(at, timeout=20)[1]
            wanted = max(count, sum(ends.values()))
            while len(found) < wanted:
                for message in consumer.consume(wanted - len(found), timeout=5):
                    if message.error() is None:
                        headers = {n: _text(v) for n, v in dict(message.headers() or {}).items()}
                        found.append(_with_headers("ce_", headers, _bytes(message.value())))
        finally:
            consumer.close()
        return found

    def unwelcome(self, message: Outgoing) -> Outgoing | None:
        return enlarged(message, 2 * MIB) if self.server.real else None

    async def go_away(self) -> None:
        if isinstance(self.server, KafkaServer):
            await asyncio.to_thread(self.server.kill)

    async def come_back(self) -> None:
        if isinstance(self.server, KafkaServer):
            await asyncio.to_thread(self.server.start)


class PubSubFarSide:
    drops_repeats = False

    def __init__(self, emulator: PubSubEmulator) -> None:
        self.emulator = emulator
        self.name = f"tape-{uuid.uuid4().hex}"
        self.target = f"pubsub://tape-test/{self.name}"
        self.topic = f"projects/tape-test/topics/{self.name}"
        self.subscription = f"projects/tape-test/subscriptions/{self.name}"
        self.found: list[Received] = []

    async def make_topic(self) -> None:
        publisher = PublisherAsyncClient(credentials=_nobody())
        subscriber = SubscriberAsyncClient(credentials=_nobody())
        subscription = Subscription(
            name=self.subscription, topic=self.topic, enable_message_ordering=True
        )
        try:
            async with asyncio.timeout(BOUND_S):
                while True:
                    try:
                        await publisher.create_topic(name=self.topic, timeout=5, retry=None)
                        await subscriber.create_subscription(subscription, timeout=5, retry=None)
                    except (exceptions.ServiceUnavailable, exceptions.DeadlineExceeded):
                        continue
                    return
        finally:
            await _closed(publisher)
            await _closed(subscriber)

    async def open(self) -> Broker:
        target = parse_target(self.target)
        assert isinstance(target, PubSubTarget)
        return PubSubBroker(target)

    async def received(self, count: int) -> list[Received]:
        subscriber = SubscriberAsyncClient(credentials=_nobody())
        try:
            async with asyncio.timeout(BOUND_S):
                while len(self.found) < count:
                    await self.pull(subscriber)
        finally:
            await _closed(subscriber)
        return self.found

    async def pull(self, subscriber: SubscriberAsyncClient) -> None:
        answer = await subscriber.pull(
            subscription=self.subscription, max_messages=1000, timeout=10
        )
        if answer.received_messages:
            await subscriber.acknowledge(
                subscription=self.subscription,
                ack_ids=[message.ack_id for message in answer.received_messages],
                timeout=10,
            )
        for got in answer.received_messages:
            attributes = dict(got.message.attributes)
            self.found.append(_with_headers("ce-", attributes, got.message.data))

    def unwelcome(self, message: Outgoing) -> Outgoing | None:
        return enlarged(message, 11 * MIB)

    async def go_away(self) -> None:
        await asyncio.to_thread(self.emulator.kill)

    async def come_back(self) -> None:
        await asyncio.to_thread(self.emulator.start)
        await self.make_topic()


class WebhookFarSide:
    drops_repeats = False

    def __init__(self) -> None:
        self.receiver = WebhookReceiver()
        self.target = self.receiver.target
        self.taken: list[Delivery] = []
        self.receiver.fail = lambda delivery: 422 if delivery.event["data"] == "bad" else None

    async def open(self) -> Broker:
        target = parse_target(self.target)
        assert isinstance(target, WebhookTarget)
        return WebhookBroker(target, secret=SECRET)

    async def received(self, count: int) -> list[Received]:
        taken = [*self.taken, *self.receiver.taken]
        assert len(taken) >= count  # an answer of 2xx came after it was taken
        return [_structured(delivery.event, delivery.body) for delivery in taken]

    def unwelcome(self, message: Outgoing) -> Outgoing | None:
        return message._replace(entry=message.entry._replace(payload_json='"bad"'))

    async def go_away(self) -> None:
        self.taken += self.receiver.taken
        await asyncio.to_thread(self.receiver.__exit__)

    async def come_back(self) -> None:
        fail = self.receiver.fail
        self.receiver = WebhookReceiver(port=self.receiver.port)
        self.receiver.fail = fail
        self.receiver.__enter__()


class _Stream(io.StringIO):
    full = False

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


class LogFarSide:
    drops_repeats = False

    def __init__(self) -> None:
        self.stream = _Stream()

    async def open(self) -> Broker:
        return LogBroker(self.stream)

    async def received(self, count: int) -> list[Received]:
        lines = self.stream.getvalue().splitlines()
        assert len(lines) >= count
        return [_structured(json.loads(line), line.encode()) for line in lines]

    def unwelcome(self, _message: Outgoing) -> Outgoing | None:
        return None

    async def go_away(self) -> None:
        self.stream.full = True

    async def come_back(self) -> None:
        self.stream.full = False


def _structured(event: dict[str, Any], body: bytes) -> Received:
    data = body[body.index(b'"data":') + len(b'"data":') : -1]
    return Received(event["id"], event["partitionkey"], event.get("tapeattempt", 1), data)


def _with_headers(prefix: str, headers: dict[str, str], data: bytes) -> Received:
    key = headers[f"{prefix}partitionkey"].replace("%20", " ")
    return Received(headers[f"{prefix}id"], key, int(headers.get(f"{prefix}tapeattempt", 1)), data)


def _text(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _nobody() -> AnonymousCredentials:
    return AnonymousCredentials()  # type: ignore[no-untyped-call]  # the library has no types


async def _closed(client: PublisherAsyncClient | SubscriberAsyncClient) -> None:
    await client.transport.close()  # type: ignore[no-untyped-call]  # the library has no types
