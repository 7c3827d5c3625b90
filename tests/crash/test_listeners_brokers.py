"""Brokers that are killed, or stand still, while a listener works: every message is one run.

NATS and Kafka keep on disk what they have confirmed to its sender. Pub/Sub's emulator keeps nothing
there, so it is stopped and goes on.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from nats.aio.client import Client

from tape.client import AsyncTapeClient
from tests.conformance.source import Sent
from tests.integration.sources.far_sides import KafkaSide, NatsSide, PubSubSide
from tests.integration.subscriptions.listened import (
    BOUND_S,
    activate,
    listening_here,
    opened_here,
    payloads,
    until_view,
)
from tests.servers.kafka import KafkaServer
from tests.servers.nats import NatsServer
from tests.servers.pubsub import PubSubEmulator

AWAY_S = 5.0
MOST_LINES = 8
"""Of warnings about one outage: a handful, by whoever finds it out."""
pytestmark = pytest.mark.timeout(600)


class Kills(NamedTuple):
    times: int
    messages: int
    """Between two kills."""
    away_s: float = AWAY_S
    """In the outage whose log is read."""


NATS_KILLS = [
    pytest.param(Kills(1, 100, away_s=0.2), id="short"),
    pytest.param(Kills(10, 500), id="whole", marks=pytest.mark.middle),
]
KAFKA_KILLS = [
    pytest.param(Kills(2, 500), id="short", marks=pytest.mark.middle),
    pytest.param(Kills(10, 500), id="whole", marks=pytest.mark.long),
]


class Broken:
    """A desk that accepts what it is sent while the way there breaks."""

    def __init__(self, client: AsyncTapeClient, caplog: pytest.LogCaptureFixture) -> None:
        self._client = client
        self._caplog = caplog
        self.sent = 0

    def numbered(self, count: int) -> list[bytes]:
        """The next messages."""
        first, self.sent = self.sent, self.sent + count
        return [json.dumps({"n": number}).encode() for number in range(first, self.sent)]

    async def until_accepted(self, count: int) -> None:
        await until_view(self._client, "broken", lambda view: view.listener.accepted >= count)

    async def until_noticed(self) -> None:
        """By the listener: it says so where people look."""
        await until_view(self._client, "broken", lambda view: view.listener.last_error)

    async def expect_quiet(self, outage: Callable[[], Awaitable[None]]) -> None:
        """No more is logged of it than people can read. Right after another one and a short while
        it may be nothing."""
        self._caplog.clear()
        with self._caplog.at_level(logging.WARNING):
            await outage()
        said = [record.getMessage() for record in self._caplog.records]
        print(f"{len(said)} lines: {said}")
        assert len(said) <= MOST_LINES, said

    async def expect_all(self, *, redelivered: int = 0) -> str:
        """Each message has one run, and is acknowledged; so many at least came again."""
        await self.until_accepted(self.sent)
        view = await until_view(self._client, "broken", lambda view: view.listener.backlog <= 0)
        numbers = Counter(payload["n"] for payload in await payloads(self._client, "broken"))
        assert numbers == Counter(range(self.sent))
        assert (view.listener.accepted, view.listener.dead_lettered) == (self.sent, 0)
        assert view.listener.redelivered >= redelivered
        return f"{view.listener.accepted} accepted, {view.listener.redelivered} redelivered"


@pytest.mark.parametrize("kills", NATS_KILLS)
async def test_nats_is_killed(
    own_nats_server: NatsServer, store_url: str, kills: Kills, caplog: pytest.LogCaptureFixture
) -> None:
    side = NatsSide(own_nats_server)
    await side.make()
    async with opened_here(store_url) as bus:
        client = AsyncTapeClient(bus)
        desk = Broken(client, caplog)
        await activate(client, side, "broken", runtime={"batch": 20})
        async with listening_here(bus):
            for _ in range(kills.times):
                before = desk.sent
                await publish_surely(side, desk.numbered(kills.messages))
                await desk.until_accepted(before + kills.messages // 10)
                await side.go_away()
                await desk.until_noticed()
                await side.come_back()
            await desk.until_accepted(desk.sent)

            async def outage() -> None:
                await side.go_away()
                await asyncio.sleep(kills.away_s)  # so long it lasts
                await side.come_back()
                await publish_surely(side, desk.numbered(10))
                await desk.until_accepted(desk.sent)

            await desk.expect_quiet(outage)
            # Of many kills some take acknowledgements with them that were on their way.
            print("NATS:", await desk.expect_all(redelivered=int(kills.times > 1)))


async def publish_surely(side: NatsSide, bodies: list[bytes]) -> None:
    """Until the server has confirmed each. What it has twice has the same id: it keeps one."""
    client = Client()
    await client.connect(f"nats://{side.server.address}", allow_reconnect=False)
    jetstream = client.jetstream()
    try:
        async with asyncio.timeout(BOUND_S):
            for body in bodies:
                headers = {"Nats-Msg-Id": body.decode()}
                await jetstream.publish(f"{side.stream}.any", body, headers=headers)
    finally:
        await client.close()


@pytest.mark.parametrize("kills", KAFKA_KILLS)
async def test_kafka_is_killed(
    own_kafka_server: KafkaServer, sqlite_url: str, kills: Kills, caplog: pytest.LogCaptureFixture
) -> None:
    side = KafkaSide(own_kafka_server)
    side.silent_s = 2.0  # less than a broker takes to start
    await asyncio.to_thread(side.make)
    async with opened_here(sqlite_url) as bus:
        client = AsyncTapeClient(bus)
        desk = Broken(client, caplog)
        await activate(client, side, "broken", runtime={"batch": 20})
        async with listening_here(bus):
            for _ in range(kills.times):
                before = desk.sent
                await produce_surely(side, desk.numbered(kills.messages))
                await desk.until_accepted(before + kills.messages // 10)
                await side.go_away()
                await desk.until_noticed()
                await side.come_back()
            await desk.until_accepted(desk.sent)

            async def outage() -> None:
                await side.go_away()
                await asyncio.sleep(AWAY_S)  # so long it lasts
                await side.come_back()
                await produce_surely(side, desk.numbered(10))
                await desk.until_accepted(desk.sent)

            await desk.expect_quiet(outage)
            # The broker is away for longer than its group waits for a member. What the client had
            # read before is accepted meanwhile, and nobody takes its commit: it comes again.
            print("Kafka:", await desk.expect_all(redelivered=kills.times))


async def produce_surely(side: KafkaSide, bodies: list[bytes]) -> None:
    """Until the broker has confirmed each, once: the producer numbers what it sends again."""

    def produce() -> None:
        producer = Producer(
            {"bootstrap.servers": side.server.address, "log_level": 0, "enable.idempotence": True}
        )
        for body in bodies:
            producer.produce(side.topic, body, body)
        assert producer.flush(BOUND_S) == 0

    await asyncio.to_thread(produce)


@pytest.mark.middle
async def test_pubsub_stands_still(
    emulator: PubSubEmulator, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    side = PubSubSide(emulator)
    await side.make()
    async with opened_here(sqlite_url) as bus:
        client = AsyncTapeClient(bus)
        desk = Broken(client, caplog)
        await activate(client, side, "broken", runtime={"batch": 20})
        async with listening_here(bus):

            async def outage() -> None:
                before = desk.sent
                await side.send([Sent(body) for body in desk.numbered(500)])
                await desk.until_accepted(before + 50)
                emulator.pause()
                try:
                    await asyncio.sleep(AWAY_S)  # so long it lasts
                finally:
                    emulator.resume()
                await desk.until_accepted(desk.sent)

            for _ in range(3):
                await outage()
            # None need come again: while the emulator stands still nobody's deadline passes, and
            # what could not be acknowledged meanwhile is acknowledged when it goes on.
            print("Pub/Sub:", await desk.expect_all())
