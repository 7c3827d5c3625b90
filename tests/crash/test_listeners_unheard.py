"""Acknowledgements that are lost on their way, or their answers: every message is one run.

A whole listener works behind a line that loses a tenth of what says that something is done. What
was lost comes again, which is counted, and makes no second run.
"""

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from tape.bus import Bus
from tape.client import AsyncTapeClient
from tape.model.subscription import Listener
from tape.subscriptions.operations import SubscriptionView
from tests.conformance.source import Sent
from tests.crash.audited import check_audit
from tests.integration.sources.conftest import LOSSY_PORT
from tests.integration.sources.far_sides import KafkaSide, NatsSide, PubSubSide
from tests.integration.subscriptions.listened import (
    Side,
    activate,
    listening_here,
    opened_here,
    payloads,
    until_view,
)
from tests.servers.kafka import KafkaServer
from tests.servers.lossy_line import KAFKA, NATS, Fate, LossyLine
from tests.servers.nats import NatsServer
from tests.servers.nats_raw import publish_all_raw
from tests.servers.pubsub import PubSubEmulator
from tests.servers.pubsub_front import PubSubFront

SEED = int(os.environ.get("TAPE_SEED", "20261119"))
SIZES = [
    pytest.param(500, id="short"),
    pytest.param(5_000, id="whole", marks=pytest.mark.middle),
]
WHOLE = 5_000
READERS = 2
TOGETHER = 25
"""So many messages are acknowledged at once."""
pytestmark = pytest.mark.timeout(600)


class Behind(NamedTuple):
    """A side whose listener works behind a line."""

    spec: Any
    credential: dict[str, Any]


def numbered(count: int) -> list[Sent]:
    return [Sent(json.dumps({"n": number}).encode()) for number in range(count)]


def tenth_of(name: str, *bad: Fate) -> Callable[[], Fate]:
    """One in ten is bad."""
    chance = random.Random(f"{SEED}/{name}")
    return lambda: chance.choice(bad) if chance.random() < 0.1 else Fate.PASSES


@asynccontextmanager
async def desk(url: str, side: Side) -> AsyncIterator[tuple[Bus, AsyncTapeClient]]:
    async with opened_here(url) as bus:
        client = AsyncTapeClient(bus)
        dispatch = {"playbook": "keep", "batch_dispatch": True, "batch_max": TOGETHER}
        await activate(client, side, "unheard", dispatch=dispatch, runtime={"timeout_ms": 1000})
        yield bus, client


async def expect_one_run_each(client: AsyncTapeClient, count: int) -> Listener:
    numbers = Counter(payload["n"] for payload in await payloads(client, "unheard"))
    assert numbers == Counter(range(count)), f"seed {SEED}"
    listener = (await client.subscription("unheard")).listener
    assert (listener.accepted, listener.deduplicated, listener.dead_lettered) == (count, 0, 0)
    assert listener.redelivered > 0
    return listener


async def until_nothing_waits(client: AsyncTapeClient, count: int) -> None:
    """At the source: everything is acknowledged."""

    def is_done(view: SubscriptionView) -> bool:
        return view.listener.accepted >= count and view.listener.backlog == 0

    await until_view(client, "unheard", is_done)


async def until_accepted(client: AsyncTapeClient, count: int) -> None:
    await until_view(client, "unheard", lambda view: view.listener.accepted >= count)


async def until_redelivered(client: AsyncTapeClient, count: int) -> None:
    await until_view(client, "unheard", lambda view: view.listener.redelivered >= count)


def kafka_credential(address: str) -> dict[str, Any]:
    """Of a reader that gives an answer up after a second."""
    return {
        "bootstrap.servers": address, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 500,
        "socket.timeout.ms": 1_000, "fetch.wait.max.ms": 20,
    }  # fmt: skip


@pytest.mark.parametrize("count", SIZES)
async def test_nats(nats_server: NatsServer, store_url: str, count: int) -> None:
    side = NatsSide(nats_server)
    await side.make()
    bodies = [(b"", message.body) for message in numbered(count)]
    await asyncio.to_thread(publish_all_raw, nats_server.address, f"{side.stream}.any", bodies)
    fate = tenth_of("nats", Fate.IS_LOST)
    async with LossyLine(nats_server.port, NATS, fate=fate) as line:
        behind = Behind(side.spec, {"servers": [f"nats://127.0.0.1:{line.port}"]})
        async with desk(store_url, behind) as (bus, client), listening_here(bus):
            await until_nothing_waits(client, count)
            listener = await expect_one_run_each(client, count)
            assert listener.redelivered >= line.lost >= count * 0.05
            print(f"NATS: {line.lost} lost of {count}, {listener.redelivered} redelivered")
    if count == WHOLE:
        await asyncio.to_thread(check_audit, store_url)


@pytest.mark.middle
async def test_kafka(kafka_server: KafkaServer, sqlite_url: str) -> None:
    """A commit says that everything before it is done, so those that are lost matter where the
    reader changes: each of two readers says the last tenth of its messages into the void."""
    side = KafkaSide(kafka_server, lossy_port=LOSSY_PORT)
    await asyncio.to_thread(side.make)
    messages, sent, redelivered, losing = numbered(WHOLE), 0, 0, Fate.PASSES
    async with LossyLine(
        kafka_server.ports["LOSSY"], KAFKA, LOSSY_PORT, fate=lambda: losing
    ) as line:
        behind = Behind(side.spec, kafka_credential(f"127.0.0.1:{line.port}"))
        async with desk(sqlite_url, behind) as (bus, client):
            for reader in range(READERS):
                share = messages[reader::READERS]
                heard = len(share) * 9 // 10
                async with listening_here(bus):
                    await until_redelivered(client, redelivered)
                    losing = Fate.PASSES
                    await side.send(share[:heard])
                    await until_accepted(client, sent + heard)
                    losing = Fate.IS_UNANSWERED if reader % 2 else Fate.IS_LOST
                    await side.send(share[heard:])
                    sent += len(share)
                    await until_accepted(client, sent)
                # The client says what was lost again and again, until another reader is there.
                before = (await client.subscription("unheard")).listener.redelivered
                redelivered = before + (losing is Fate.IS_LOST)
            losing = Fate.PASSES
            async with listening_here(bus):
                await until_nothing_waits(client, WHOLE)
            listener = await expect_one_run_each(client, WHOLE)
            assert line.lost > 0
            assert line.unanswered > 0
            print(
                f"Kafka: {line.lost} commits and {line.unanswered} answers lost, "
                f"{listener.redelivered} of {WHOLE} redelivered"
            )
    await asyncio.to_thread(check_audit, sqlite_url)


@pytest.mark.middle
async def test_pubsub(emulator: PubSubEmulator, sqlite_url: str) -> None:
    side = PubSubSide(emulator)
    await side.make()
    await side.send(numbered(WHOLE))
    async with PubSubFront(emulator.host) as front:
        front.fate = tenth_of("pub/sub", Fate.IS_LOST, Fate.IS_UNANSWERED)
        behind = Behind(side.spec, {"emulator_host": front.host})
        async with desk(sqlite_url, behind) as (bus, client), listening_here(bus):
            await until_accepted(client, WHOLE)
            front.fate = None
            lost = front.lost[Fate.IS_LOST]
            await until_view(client, "unheard", lambda view: view.listener.redelivered >= lost)
            listener = await expect_one_run_each(client, WHOLE)
            assert lost > 0
            assert front.lost[Fate.IS_UNANSWERED] > 0
            print(
                f"Pub/Sub: {front.lost.total()} calls, {lost} lost, "
                f"{front.lost[Fate.IS_UNANSWERED]} answers lost, "
                f"{listener.redelivered} of {WHOLE} messages redelivered"
            )
    await asyncio.to_thread(check_audit, sqlite_url)
