"""Fetched and acknowledged per second, from each source, beside its client alone in this process.

The client alone does what the source has to: it reads each message whole, with its headers, and
says that it is done. What the source adds is its place, and what is in hand.
"""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from confluent_kafka import Consumer, Producer
from google.auth.credentials import AnonymousCredentials
from google.pubsub_v1 import (
    PublisherAsyncClient,
    PubsubMessage,
    SubscriberAsyncClient,
    Subscription,
)
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig

from benchmarks.result import Result, compare
from benchmarks.workload import PAYLOAD, REPETITIONS, on_loop
from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.ports.credentials import OpenedCredential, SecretValue
from tape.sources.by_spec import open_source
from tests.integration.sources.far_sides import KafkaSide
from tests.servers.kafka import KafkaServer
from tests.servers.nats import NatsServer
from tests.servers.pubsub import PubSubEmulator

BATCH = 100
NATS_MESSAGES = 20_000
KAFKA_MESSAGES = 50_000
PUBSUB_MESSAGES = 10_000
LINES = 50_000
HEADERS = {"Kind": "price.changed", "traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}
AT_LEAST = 0.8


def run() -> Iterator[Result]:
    yield _nats()
    yield _kafka()
    yield _pubsub()
    yield _files()


async def _drain(spec: SourceSpec, value: Any, count: int) -> float:
    """Messages per second, from the first that comes."""
    credential = None if value is None else OpenedCredential("bench", 1, [SecretValue(value)])
    source = await open_source(spec, credential, name="bench")
    try:
        first = await source.fetch(1, 30)
        await source.ack([received.receipt for received in first])
        done, started = len(first), time.perf_counter()
        while done < count:
            found = await source.fetch(BATCH, 10)
            await source.ack([received.receipt for received in found])
            done += len(found)
        return (count - 1) / (time.perf_counter() - started)
    finally:
        await source.close()


def _nats() -> Result:
    ours, theirs = [], []
    with NatsServer() as server:
        url = f"nats://{server.address}"
        on_loop(fill_nats(url))
        for turn in range(REPETITIONS):
            on_loop(add_durables(url, f"ours-{turn}", f"theirs-{turn}"))
            spec = SourceSpec(SourceKind.NATS, stream="bench", consumer=f"ours-{turn}")
            ours.append(on_loop(_drain(spec, {"servers": url}, NATS_MESSAGES)))
            theirs.append(on_loop(nats_alone(url, f"theirs-{turn}")))
    return compare(
        "fetch and ack, NATS", "messages/s", ours, "nats-py alone", theirs, n=NATS_MESSAGES,
        at_least=AT_LEAST,
    )  # fmt: skip


async def fill_nats(url: str) -> None:
    client = Client()
    await client.connect(url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name="bench", subjects=["bench.>"])
    for _ in range(NATS_MESSAGES // 500):
        published = [
            jetstream.publish("bench.a", PAYLOAD.encode(), headers=HEADERS) for _ in range(500)
        ]
        await asyncio.gather(*published)
    await client.close()


async def add_durables(url: str, *names: str) -> None:
    client = Client()
    await client.connect(url)
    for name in names:
        durable = ConsumerConfig(durable_name=name, ack_policy=AckPolicy.EXPLICIT)
        await client.jetstream().add_consumer("bench", durable)
    await client.close()


async def nats_alone(url: str, durable: str) -> float:
    client = Client()
    await client.connect(url)
    pulling = await client.jetstream().pull_subscribe_bind(consumer=durable, stream="bench")
    (first,) = await pulling.fetch(1, 30)
    await first.ack()
    done, started = 1, time.perf_counter()
    while done < NATS_MESSAGES:
        for message in await pulling.fetch(BATCH, 10):
            _read = message.data, message.headers, message.metadata
            await message.ack()
            done += 1
    await client.flush()
    elapsed = time.perf_counter() - started
    await client.close()
    return (NATS_MESSAGES - 1) / elapsed


def _kafka() -> Result:
    ours, theirs = [], []
    with KafkaServer() as server:
        side = KafkaSide(server)
        side.make(4)
        producer = Producer({"bootstrap.servers": server.address})
        for number in range(KAFKA_MESSAGES):
            producer.produce(side.topic, PAYLOAD, str(number % 50), headers=[*HEADERS.items()])
            producer.poll(0)
        producer.flush(60)
        settings = {"bootstrap.servers": server.address}
        for turn in range(REPETITIONS):
            spec = side.spec._replace(group=f"ours-{turn}")
            ours.append(on_loop(_drain(spec, settings, KAFKA_MESSAGES)))
            theirs.append(_kafka_alone({**settings, "group.id": f"theirs-{turn}"}, side.topic))
    return compare(
        "fetch and ack, Kafka", "messages/s", ours, "confluent-kafka alone", theirs,
        n=KAFKA_MESSAGES, at_least=AT_LEAST,
    )  # fmt: skip


def _kafka_alone(settings: dict[str, Any], topic: str) -> float:
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while (message := consumer.poll(1)) is None:
        pass
    consumer.commit(message=message, asynchronous=False)
    done, started = 1, time.perf_counter()
    while done < KAFKA_MESSAGES:
        found = consumer.consume(min(BATCH, KAFKA_MESSAGES - done), 10)
        for message in found:
            _read = (
                message.error(), message.topic(), message.partition(), message.offset(),
                message.key(), message.value(), message.headers(), message.timestamp(),
            )  # fmt: skip
        done += len(found)
        consumer.commit(asynchronous=True)
    consumer.commit(asynchronous=False)
    elapsed = time.perf_counter() - started
    consumer.close()
    return (KAFKA_MESSAGES - 1) / elapsed


def _pubsub() -> Result:
    ours, theirs = [], []
    with PubSubEmulator() as emulator, _environment("PUBSUB_EMULATOR_HOST", emulator.host):
        for turn in range(REPETITIONS):
            topic = f"projects/tape-bench/topics/turn-{turn}"
            names = [f"projects/tape-bench/subscriptions/{w}-{turn}" for w in ("ours", "theirs")]
            on_loop(_fill_pubsub(topic, names))
            spec = SourceSpec(SourceKind.PUBSUB, subscription=names[0])
            value = {"emulator_host": emulator.host}
            ours.append(on_loop(_drain(spec, value, PUBSUB_MESSAGES)))
            theirs.append(on_loop(_pubsub_alone(names[1])))
    return compare(
        "fetch and ack, Pub/Sub emulator", "messages/s", ours, "google-cloud-pubsub alone", theirs,
        n=PUBSUB_MESSAGES, at_least=AT_LEAST,
    )  # fmt: skip


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def _nobody() -> AnonymousCredentials:
    return AnonymousCredentials()  # type: ignore[no-untyped-call]  # the library has no types


async def _fill_pubsub(topic: str, subscriptions: list[str]) -> None:
    publisher = PublisherAsyncClient(credentials=_nobody())
    subscriber = SubscriberAsyncClient(credentials=_nobody())
    await publisher.create_topic(name=topic)
    for name in subscriptions:
        await subscriber.create_subscription(Subscription(name=name, topic=topic))
    message = PubsubMessage(data=PAYLOAD.encode(), attributes=HEADERS)
    for _ in range(PUBSUB_MESSAGES // 1_000):
        await publisher.publish(topic=topic, messages=[message] * 1_000)
    for client in (publisher, subscriber):
        await client.transport.close()  # type: ignore[no-untyped-call]  # likewise


async def _pubsub_alone(subscription: str) -> float:
    subscriber = SubscriberAsyncClient(credentials=_nobody())
    done, started = 0, time.perf_counter()
    while done < PUBSUB_MESSAGES:
        answer = await subscriber.pull(subscription=subscription, max_messages=BATCH)
        for got in answer.received_messages:
            _read = got.message.data, dict(got.message.attributes), got.message.message_id
        ack_ids = [got.ack_id for got in answer.received_messages]
        await subscriber.acknowledge(subscription=subscription, ack_ids=ack_ids)
        done += len(ack_ids)
    elapsed = time.perf_counter() - started
    await subscriber.transport.close()  # type: ignore[no-untyped-call]  # likewise
    return PUBSUB_MESSAGES / elapsed


def _files() -> Result:
    ours, theirs = [], []
    for _ in range(REPETITIONS):
        with TemporaryDirectory() as folder:
            line = json.dumps({"headers": HEADERS, "key": "k", "body": PAYLOAD})
            path = Path(folder) / "a.jsonl"
            path.write_text(f"{line}\n" * LINES)
            spec = SourceSpec(SourceKind.FILE, folder=folder)
            ours.append(on_loop(_drain(spec, None, LINES)))
            theirs.append(_lines_alone(path))
    return compare(
        "fetch and ack, files", "lines/s", ours, "lines parsed, position on the disk", theirs,
        n=LINES,
    )  # fmt: skip


def _lines_alone(path: Path) -> float:
    """Each hundred lines the position is written and flushed to the disk."""
    started = time.perf_counter()
    with path.open("rb") as file, path.with_suffix(".at").open("wb") as kept:
        for number, line in enumerate(file, 1):
            _read = orjson.loads(line)
            if number % BATCH == 0:
                kept.write(b"%d\n" % number)
                kept.flush()
                os.fsync(kept.fileno())
    return LINES / (time.perf_counter() - started)
