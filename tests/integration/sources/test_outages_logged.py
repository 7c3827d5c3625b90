"""While a source is away, a listener says so in a handful of lines, and its client in none."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from tape.model.subscription_spec import SourceSpec
from tape.ports.source import Source
from tape.settings import ListenerSettings
from tape.sources.by_spec import open_source
from tape.subscriptions.listener import OpenForListening
from tests.conformance.source import Sent
from tests.integration.sources.credentials import opened
from tests.integration.sources.far_sides import KafkaSide, NatsSide
from tests.servers.kafka import KafkaServer
from tests.servers.nats import NatsServer
from tests.unit.subscriptions.subscribed import document, listening, subscribed

pytestmark = pytest.mark.timeout(240)

MOST_LINES: Final = 6
EIGHT: Final = 8
SETTINGS: Final = ListenerSettings(lease_s=3, look_s=0.2, grace_s=10)


def opening(side: NatsSide | KafkaSide) -> OpenForListening:
    async def open_side(spec: SourceSpec, name: str) -> Source:
        return await open_source(spec, opened(side.credential), name=name)

    return open_side


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await holds():
            return
        await asyncio.sleep(0.05)


async def away_and_back(
    side: NatsSide | KafkaSide, text: str, url: str, caplog: pytest.LogCaptureFixture
) -> list[logging.LogRecord]:
    """What was logged from the loss of the source until messages come again, which is when the
    outage has lasted for more than five seconds."""
    caplog.set_level(logging.INFO)
    async with subscribed(url) as desk, listening(desk.subscriptions, opening(side), SETTINGS):
        await desk.subscriptions.register_subscription(text)
        await desk.subscriptions.move_subscription("orders", "activate")

        async def accepted(count: int) -> bool:
            view = await desk.subscriptions.get_subscription("orders")
            return view.listener.accepted >= count

        async def has_lasted() -> bool:
            return any(" waits for " in record.getMessage() for record in caplog.records)

        await side.send([Sent(b'{"n": 1}')])
        await until(lambda: accepted(1))
        caplog.clear()
        await side.go_away()
        await until(has_lasted)
        await side.come_back()
        await side.send([Sent(b'{"n": 2}')])
        await until(lambda: accepted(2))
        return list(caplog.records)


def check(records: list[logging.LogRecord], capfd: pytest.CaptureFixture[str]) -> None:
    lines = [f"{record.levelname} {record.name}: {record.getMessage()}" for record in records]
    assert 2 <= len(lines) <= MOST_LINES, "\n".join(lines)
    assert "waits: " in lines[0]
    assert all(record.name.startswith("tape.") for record in records), "\n".join(lines)
    assert not any(record.exc_info for record in records)
    said = capfd.readouterr()
    assert said.err == said.out == ""


async def test_nats_that_is_killed(
    sqlite_url: str,
    own_nats_server: NatsServer,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    side = NatsSide(own_nats_server)
    await side.make()
    text = document(stream=side.stream, consumer="tape")
    check(await away_and_back(side, text, sqlite_url, caplog), capfd)


@pytest.mark.middle
async def test_nats_that_is_away_when_eight_begin_to_listen(
    sqlite_url: str,
    own_nats_server: NatsServer,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    side = NatsSide(own_nats_server)
    await side.make()
    names = [f"d{number}" for number in range(EIGHT)]
    for name in names:
        await side.add_durable(name)
    await side.go_away()
    caplog.set_level(logging.WARNING)

    async with subscribed(sqlite_url) as desk:
        for name in names:
            text = document(name, stream=side.stream, consumer=name)
            await desk.subscriptions.register_subscription(text)
            await desk.subscriptions.move_subscription(name, "activate")

        async def has_lasted() -> bool:
            return any(" waits for " in record.getMessage() for record in caplog.records)

        async def all_listen() -> bool:
            views = await desk.subscriptions.list_subscriptions()
            return all(view.is_held and not view.listener.last_error for view in views)

        async with listening(desk.subscriptions, opening(side), SETTINGS):
            await until(has_lasted)
            await side.come_back()
            await until(all_listen)
    check(caplog.records, capfd)
    assert " goes on after " in caplog.records[-1].getMessage()


@pytest.mark.middle
async def test_kafka_that_is_killed(
    sqlite_url: str,
    own_kafka_server: KafkaServer,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    side = KafkaSide(own_kafka_server)
    side.make()
    of_kafka: dict[str, Any] = {"topic": side.spec.topic, "group": side.spec.group}
    text = document(source="kafka", stream=None, consumer=None, **of_kafka)
    check(await away_and_back(side, text, sqlite_url, caplog), capfd)
