"""The outbox: from a commit to a durable consumer, and how fast the relay drains a backlog.

Beside both stands JetStream itself: the same messages published by its client to the same stream
and heard by the same kind of consumer, in the same run. The relay is a process of its own with its
default settings; producer and consumer share the benchmark's. NATS syncs every message to the disk.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import orjson
from nats.aio.client import Client
from nats.js.client import JetStreamContext

import tape
from benchmarks.result import Result, compare
from benchmarks.workload import PAYLOAD, on_loop, opened, postgres
from tape.brokers.in_order import one_by_one, publish_by_key
from tape.brokers.nats import IN_FLIGHT
from tape.ports.broker import Outgoing
from tape.programs.consumers import Consumer, Message, consume
from tests.servers.nats import NatsServer
from tests.servers.tape_worker import WorkerProcess

TURNS = 3
SAMPLES = 300
WARM_UP = 20
BACKLOG = 10_000
SUBJECTS = 40
LOST_S = 60.0
PAUSES_S = (0.008, 0.028)
PAD = "x" * 260

Send = Callable[[object], Awaitable[None]]


def run() -> Iterator[Result]:
    with postgres() as server, NatsServer() as nats, TemporaryDirectory() as folder:
        url = server.create_database("outbox")
        on_loop(_migrate(url))
        ours, theirs = _Turns(), _Turns()
        drained: list[float] = []
        published: list[float] = []
        for turn in range(TURNS):
            with _relay(url, nats, Path(folder)):
                ours.add(on_loop(_from_commit(url, nats, turn)))
            theirs.add(on_loop(_from_publish(nats, turn)))
            on_loop(_fill(url))
            drained.append(on_loop(_drain(url, nats, Path(folder))))
            published.append(on_loop(_publish_raw(nats, turn)))
    raw = "JetStream, publish to consumer"
    where = "outbox, commit to consumer {}, Postgres"
    yield compare(where.format("p50"), "ms", ours.p50, raw, theirs.p50, n=SAMPLES)
    yield compare(where.format("p99"), "ms", ours.p99, raw, theirs.p99, n=SAMPLES)
    lanes = f"JetStream, published in {SUBJECTS} lanes"
    yield compare(
        "outbox, relay drains a backlog, Postgres", "messages/s", drained, lanes, published,
        n=BACKLOG,
    )  # fmt: skip


class _Turns:
    """p50 and p99 of each turn, in ms."""

    def __init__(self) -> None:
        self.p50: list[float] = []
        self.p99: list[float] = []

    def add(self, waits: list[float]) -> None:
        in_order = sorted(waits)
        self.p50.append(in_order[len(in_order) // 2] * 1000)
        self.p99.append(in_order[len(in_order) * 99 // 100] * 1000)


async def _migrate(url: str) -> None:
    async with opened(url):
        pass


@contextlib.contextmanager
def _relay(url: str, nats: NatsServer, folder: Path) -> Iterator[WorkerProcess]:
    config = folder / "tape.yaml"
    config.write_text(
        f'tape: {{outbox: {{nats: "nats://{nats.address}", lead_retry_s: 0.1}}, '
        'stream: {name: bench, subjects: ["bench.>"]}}'
    )
    arguments = ("outbox", "relay", "--config", str(config), "--store", url)
    with WorkerProcess("-m", "tape.cli", *arguments, log=folder / "relay.log") as relay:
        yield relay
        relay.stop()


@contextlib.asynccontextmanager
async def _client(nats: NatsServer) -> AsyncIterator[JetStreamContext]:
    client = Client()
    await client.connect(f"nats://{nats.address}")
    jetstream = client.jetstream()
    try:
        yield jetstream
    finally:
        await client.close()


async def _has_stream(jetstream: JetStreamContext) -> bool:
    return "bench" in [info.config.name for info in await jetstream.streams_info()]


async def _await_stream(jetstream: JetStreamContext) -> None:
    async with asyncio.timeout(LOST_S):
        while not await _has_stream(jetstream):  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0.05)


async def _from_commit(url: str, nats: NatsServer, turn: int) -> list[float]:
    """The clock starts when the commit returns."""
    connection = await asyncpg.connect(url)

    async def send(payload: object) -> None:
        async with connection.transaction():
            await tape.publish_within(connection, "bench.latency", payload)

    async with _client(nats) as jetstream:
        await _await_stream(jetstream)
        waits = await _beats(nats, f"ours-{turn}", send)
    await connection.close()
    return waits


async def _from_publish(nats: NatsServer, turn: int) -> list[float]:
    """The clock starts before the publish."""
    async with _client(nats) as jetstream:

        async def send(payload: object) -> None:
            beats_at.append(time.perf_counter())
            await jetstream.publish("bench.latency", orjson.dumps(payload))

        beats_at: list[float] = []
        return await _beats(nats, f"raw-{turn}", send, beats_at)


async def _beats(
    nats: NatsServer, durable: str, send: Send, sent_at: list[float] | None = None
) -> list[float]:
    """One message after another, each when the one before has been heard."""
    heard: dict[str, float] = {}
    arrived = asyncio.Event()

    async def handle(message: Message) -> None:
        heard[message.payload["key"]] = time.perf_counter()
        arrived.set()

    stop = asyncio.Event()
    consumer = Consumer(
        f"nats://{nats.address}", stream="bench", durable=durable, subject="bench.latency"
    )
    consuming = asyncio.create_task(consume(consumer, handle, stop=stop))
    waits: list[float] = []
    for number in range(WARM_UP + SAMPLES):
        await asyncio.sleep(random.uniform(*PAUSES_S))
        key = f"{durable}-{number}"
        await send({"key": key, "note": PAD})
        at = sent_at[-1] if sent_at else time.perf_counter()
        async with asyncio.timeout(LOST_S):
            while key not in heard:
                arrived.clear()
                await arrived.wait()
        waits.append(max(0.0, heard[key] - at))
    stop.set()
    await consuming
    return waits[WARM_UP:]


async def _fill(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("DELETE FROM bus.outbox")
    for start in range(0, BACKLOG, 100):
        async with connection.transaction():
            for number in range(start, start + 100):
                subject = f"bench.drain.s{number % SUBJECTS}"
                await tape.publish_within(connection, subject, orjson.loads(PAYLOAD))
    await connection.close()


async def _drain(url: str, nats: NatsServer, folder: Path) -> float:
    """Messages/s, from the first that is marked to the last."""
    connection = await asyncpg.connect(url)
    left = "SELECT count(*) FROM bus.outbox WHERE NOT published_to_nats"
    span = "SELECT (max(published_at_ms) - min(published_at_ms)) / 1000.0 FROM bus.outbox"
    with _relay(url, nats, folder):
        async with asyncio.timeout(LOST_S):
            while await connection.fetchval(left):  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.2)
    took = float(await connection.fetchval(span))
    await connection.close()
    return BACKLOG / took


async def _publish_raw(nats: NatsServer, turn: int) -> float:
    """The same number of messages by the client alone, each lane one after the other."""
    data = PAYLOAD.encode()
    async with _client(nats) as jetstream:

        async def send(message: Outgoing) -> None:
            headers = {"Nats-Msg-Id": message.message_id}
            await jetstream.publish(message.ordering_key, data, headers=headers)

        messages = [
            Outgoing(None, f"raw-{turn}-{number}", f"bench.drain.s{number % SUBJECTS}")  # type: ignore[arg-type]  # not looked at
            for number in range(BACKLOG)
        ]
        started = time.perf_counter()
        for start in range(0, BACKLOG, 100):
            part = messages[start : start + 100]
            await publish_by_key(part, one_by_one(send), in_flight=IN_FLIGHT)
        return BACKLOG / (time.perf_counter() - started)
