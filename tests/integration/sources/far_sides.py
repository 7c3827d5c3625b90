"""The far sides of the sources: how each system is sent to, goes away and comes back.

What is sent is sent by programs that nobody here wrote: NATS's own protocol over TCP, the clients
of Kafka and Google.
"""

import asyncio
import json
import uuid
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from google.auth.credentials import AnonymousCredentials
from google.cloud.pubsub_v1 import PublisherClient  # type: ignore[import-untyped]  # no types
from google.cloud.pubsub_v1.types import PublisherOptions  # type: ignore[import-untyped]  # likewise
from google.pubsub_v1 import (
    PublisherAsyncClient,
    PushConfig,
    SubscriberAsyncClient,
    Subscription,
)
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy

from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.ports.source import Source
from tape.sources.by_spec import open_source
from tests.conformance.source import BOUND_S, Lossy, Sent
from tests.integration.sources.credentials import opened
from tests.servers.kafka import KafkaServer
from tests.servers.kafka_logins import sasl_login
from tests.servers.lossy_line import KAFKA, NATS, LossyLine
from tests.servers.nats import NatsServer
from tests.servers.nats_raw import publish_raw
from tests.servers.ports import free_port
from tests.servers.pubsub import PubSubEmulator
from tests.servers.pubsub_front import PubSubFront

Refused = list[tuple[str, Callable[[], Awaitable[object]]]]


class OnALine:
    """A source, and what stands between it and its system."""

    def __init__(
        self, source: Source, lose: Callable[[bool], None], lost: Callable[[], int]
    ) -> None:
        self.source = source
        self._lose = lose
        self._lost = lost

    def lose(self, loses: bool) -> None:
        self._lose(loses)

    @property
    def lost(self) -> int:
        return self._lost()


class NatsSide:
    silent_s = 3.0
    prefix_acks = False
    whole_headers = True
    tells_backlog = True
    counts_deliveries = True
    one_reader = False

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.stream = f"s{uuid.uuid4().hex[:12]}"
        self.spec = SourceSpec(SourceKind.NATS, auth="desk", stream=self.stream, consumer="tape")

    @property
    def credential(self) -> dict[str, Any]:
        return {"servers": [f"nats://{self.server.address}"]}

    async def make(
        self, retention: RetentionPolicy = RetentionPolicy.LIMITS, **consumer: Any
    ) -> None:
        """The stream, and a durable whose readers may be silent for so long."""
        async with self.client() as client:
            jetstream = client.jetstream()
            await jetstream.add_stream(
                name=self.stream, subjects=[f"{self.stream}.>"], retention=retention
            )
            given: dict[str, Any] = {
                "ack_policy": AckPolicy.EXPLICIT, "ack_wait": self.silent_s, **consumer,
            }  # fmt: skip
            durable = ConsumerConfig(durable_name="tape", **given)
            await jetstream.add_consumer(self.stream, durable)

    async def add_durable(self, name: str) -> None:
        async with self.client() as client:
            durable = ConsumerConfig(durable_name=name, ack_policy=AckPolicy.EXPLICIT)
            await client.jetstream().add_consumer(self.stream, durable)

    async def send(self, messages: Sequence[Sent]) -> None:
        for message in messages:
            headers = b"".join(b"%s: %s\r\n" % (n.encode(), v) for n, v in message.headers)
            subject = f"{self.stream}.{message.key or 'any'}"
            await asyncio.to_thread(
                publish_raw, self.server.address, subject, headers, message.body
            )

    async def open(self, **spec: Any) -> Source:
        return await open_source(
            self.spec._replace(**spec), opened(self.credential), name="contract"
        )

    def lossy(self) -> AbstractAsyncContextManager[Lossy] | None:
        return self._lossy()

    @asynccontextmanager
    async def _lossy(self) -> AsyncIterator[OnALine]:
        async with LossyLine(self.server.port, NATS) as line:
            credential = opened({"servers": [f"127.0.0.1:{line.port}"]})
            source = await open_source(self.spec, credential, name="lossy")
            yield OnALine(source, partial(setattr, line, "loses"), lambda: line.lost)

    async def go_away(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def come_back(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def open_refused(self) -> Refused:
        async with self.client() as client:
            jetstream = client.jetstream()
            for name, given in (
                ("pushed", {"deliver_subject": "x"}),
                ("none", {"ack_policy": AckPolicy.NONE}),
                ("all", {"ack_policy": AckPolicy.ALL}),
            ):
                config: dict[str, Any] = {"ack_policy": AckPolicy.EXPLICIT, **given}
                await jetstream.add_consumer(
                    self.stream, ConsumerConfig(durable_name=name, **config)
                )
        return [
            ("there is no stream nowhere", partial(self.open, stream="nowhere")),
            ("has no consumer nobody", partial(self.open, consumer="nobody")),
            ("is a push consumer", partial(self.open, consumer="pushed")),
            ("has the ack policy none", partial(self.open, consumer="none")),
            ("has the ack policy all", partial(self.open, consumer="all")),
        ]

    async def open_away(self) -> None:
        credential = opened({"servers": f"127.0.0.1:{free_port()}"})
        await open_source(self.spec, credential, name="contract")

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        client = Client()
        await client.connect(f"nats://{self.server.address}", allow_reconnect=False)
        try:
            yield client
        finally:
            await client.close()


async def backlog_becomes(source: Source, count: int) -> None:
    """The server works at acknowledgements behind what it answers."""
    async with asyncio.timeout(BOUND_S):
        while await source.backlog() != count:  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0.01)


class KafkaSide:
    silent_s = 4.0
    prefix_acks = True
    whole_headers = True
    tells_backlog = True
    counts_deliveries = False
    one_reader = False

    def __init__(self, server: KafkaServer, *, lossy_port: int = 0) -> None:
        """`lossy_port` is where a line to its listener LOSSY is expected."""
        self.server = server
        self._lossy_port = lossy_port
        self.topic = f"t-{uuid.uuid4().hex}"
        self.spec = SourceSpec(SourceKind.KAFKA, auth="desk", topic=self.topic, group=self.topic)

    @property
    def credential(self) -> dict[str, Any]:
        return self._at(self.server.address)

    def _at(self, address: str) -> dict[str, Any]:
        limit = int(self.silent_s * 1000)
        return {
            "bootstrap.servers": address, "session.timeout.ms": limit,
            "max.poll.interval.ms": limit, "heartbeat.interval.ms": limit // 4,
            "fetch.wait.max.ms": 20,
        }  # fmt: skip

    def make(self, partitions: int = 4) -> None:
        admin = AdminClient({"bootstrap.servers": self.server.address, "log_level": 0})
        topic = NewTopic(self.topic, partitions, 1, config={"max.message.bytes": "4000000"})
        for made in admin.create_topics([topic], request_timeout=BOUND_S).values():
            made.result(BOUND_S)

    async def send(self, messages: Sequence[Sent]) -> None:
        await asyncio.to_thread(self._send, messages)

    def _send(self, messages: Sequence[Sent]) -> None:
        producer = Producer(
            {"bootstrap.servers": self.server.address, "log_level": 0, "linger.ms": 0,
             "message.max.bytes": 2_000_000}
        )  # fmt: skip
        reports: list[Any] = []
        for message in messages:
            producer.produce(
                self.topic, message.body, message.key.encode() or b"any",
                headers=[*message.headers], on_delivery=lambda error, _: reports.append(error),
            )  # fmt: skip
        assert producer.flush(BOUND_S) == 0
        assert reports == [None] * len(messages)

    async def open(self, credential: dict[str, Any] | None = None, **spec: Any) -> Source:
        return await open_source(
            self.spec._replace(**spec), opened(credential or self.credential), name="contract"
        )

    def lossy(self) -> AbstractAsyncContextManager[Lossy] | None:
        return self._lossy() if self._lossy_port else None

    @asynccontextmanager
    async def _lossy(self) -> AsyncIterator[OnALine]:
        async with LossyLine(self.server.ports["LOSSY"], KAFKA, self._lossy_port) as line:
            source = await self.open(self._at(f"127.0.0.1:{line.port}"))
            yield OnALine(source, partial(setattr, line, "loses"), lambda: line.lost)

    async def go_away(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def come_back(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def open_refused(self) -> Refused:
        refused: Refused = [("there is no topic nowhere", partial(self.open, topic="nowhere"))]
        if "SASL" in self.server.ports:
            wrong = sasl_login(self.server.ports["SASL"], "wrong-one")
            refused.append(("Kafka says _AUTHENTICATION", partial(self.open, wrong)))
        return refused

    async def open_away(self) -> None:
        await self.open(self._at(f"127.0.0.1:{free_port()}"))


class PubSubSide:
    """The clients that send and make things find the emulator by PUBSUB_EMULATOR_HOST."""

    silent_s = 10.0  # the least that the service has
    prefix_acks = False
    whole_headers = False
    tells_backlog = False
    counts_deliveries = False
    one_reader = False

    def __init__(self, emulator: PubSubEmulator) -> None:
        self.emulator = emulator
        self.name = f"tape-{uuid.uuid4().hex}"
        self.topic = f"projects/tape-test/topics/{self.name}"
        self.subscription = f"projects/tape-test/subscriptions/{self.name}"
        self.spec = SourceSpec(SourceKind.PUBSUB, auth="desk", subscription=self.subscription)

    @property
    def credential(self) -> dict[str, Any]:
        return {"emulator_host": self.emulator.host}

    async def make(self) -> None:
        publisher = PublisherAsyncClient(credentials=_nobody())
        await publisher.create_topic(name=self.topic, timeout=BOUND_S)
        await publisher.transport.close()  # type: ignore[no-untyped-call]  # no types there
        await self.subscribe(self.subscription)

    async def subscribe(self, name: str, **more: Any) -> None:
        subscriber = SubscriberAsyncClient(credentials=_nobody())
        subscription = Subscription(
            name=name, topic=self.topic, enable_message_ordering=True,
            ack_deadline_seconds=int(self.silent_s), **more,
        )  # fmt: skip
        await subscriber.create_subscription(subscription, timeout=BOUND_S)
        await subscriber.transport.close()  # type: ignore[no-untyped-call]  # no types there

    async def send(self, messages: Sequence[Sent]) -> None:
        await asyncio.to_thread(self._send, messages)

    def _send(self, messages: Sequence[Sent]) -> None:
        publisher = PublisherClient(
            publisher_options=PublisherOptions(enable_message_ordering=True)
        )
        sent = [
            publisher.publish(
                self.topic, message.body, ordering_key=message.key,
                **{name: value.decode() for name, value in message.headers},
            )
            for message in messages
        ]  # fmt: skip
        for each in sent:
            each.result(BOUND_S)
        publisher.stop()

    async def open(self, credential: Any = None, **spec: Any) -> Source:
        given = opened(credential or self.credential)
        return await open_source(self.spec._replace(**spec), given, name="contract")

    def lossy(self) -> AbstractAsyncContextManager[Lossy] | None:
        return self._lossy()

    @asynccontextmanager
    async def _lossy(self) -> AsyncIterator[OnALine]:
        async with PubSubFront(self.emulator.host) as front:
            source = await self.open({"emulator_host": front.host})

            def lose(loses: bool) -> None:
                front.loses = {"Acknowledge"} if loses else set()

            yield OnALine(source, lose, lambda: front.told.get("Acknowledge", 0))

    async def open_refused(self) -> Refused:
        pushed = f"{self.subscription}-pushed"
        push = PushConfig(push_endpoint="http://127.0.0.1:1/")
        await self.subscribe(pushed, push_config=push)
        nowhere = "projects/tape-test/subscriptions/nowhere"
        account = {"type": "service_account", "private_key": "hunter2", "client_email": "a@b"}
        return [
            ("subscription: Pub/Sub says NotFound", partial(self.open, subscription=nowhere)),
            ("pushes its messages", partial(self.open, subscription=pushed)),
            ("is not as Google wrote it", partial(self.open, account)),
            ("is not service_account", partial(self.open, {"type": "wrong-one"})),
            ("application_default of the", partial(self.open, {"application_default": "no"})),
            ("is a text, and pubsub needs", partial(self.open, "hunter2")),
        ]

    async def open_away(self) -> None:
        await self.open({"emulator_host": f"127.0.0.1:{free_port()}"})


class FileSide:
    silent_s = 0.0
    prefix_acks = False
    whole_headers = True
    tells_backlog = True
    counts_deliveries = False
    one_reader = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = SourceSpec(SourceKind.FILE, folder=str(folder), pattern="*.jsonl")

    async def send(self, messages: Sequence[Sent]) -> None:
        with (self.folder / "a.jsonl").open("ab") as file:
            for message in messages:
                file.write(json.dumps(landed_line(message)).encode() + b"\n")

    async def open(self, **spec: Any) -> Source:
        return await open_source(self.spec._replace(**spec), None, name="contract")

    def lossy(self) -> AbstractAsyncContextManager[Lossy] | None:
        return None

    async def open_refused(self) -> Refused:
        return [
            ("there is no folder", partial(self.open, folder=str(self.folder / "nowhere"))),
            ("is not a pattern", partial(self.open, pattern="../*.jsonl")),
            ("is not a pattern", partial(self.open, pattern="/etc/*")),
        ]

    async def open_away(self) -> None:
        pytest.skip("a folder is there, or is not")


def _nobody() -> AnonymousCredentials:
    return AnonymousCredentials()  # type: ignore[no-untyped-call]  # the library has no types


def landed_line(message: Sent) -> dict[str, Any]:
    line: dict[str, Any] = {"key": message.key, **_encoded("body", message.body)}
    if message.headers:
        line["headers"] = [[name, _header(value)] for name, value in message.headers]
    return line


def _header(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _encoded(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name: b64encode(value).decode(), f"{name}_encoding": "base64"}
