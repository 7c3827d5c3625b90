"""The broker contract over NATS, Kafka, the Pub/Sub emulator, a webhook and the log."""

from collections.abc import Iterator

import pytest

from tests.conformance.broker import BrokerContract, FarSide
from tests.integration.brokers.far_sides import (
    KafkaFarSide,
    LogFarSide,
    NatsFarSide,
    PubSubFarSide,
    WebhookFarSide,
)
from tests.servers.kafka import KafkaServer, MockKafka
from tests.servers.nats import NatsServer
from tests.servers.pubsub import PubSubEmulator


class TestNats(BrokerContract):
    @pytest.fixture
    async def far_side(self, nats_server: NatsServer) -> FarSide:
        far_side = NatsFarSide(nats_server)
        await far_side.make_stream()
        return far_side


@pytest.mark.middle
class TestKafka(BrokerContract):
    @pytest.fixture
    def far_side(self, kafka_server: KafkaServer) -> FarSide:
        far_side = KafkaFarSide(kafka_server, reports_s=8.0)
        far_side.make_topic()
        return far_side


class TestMockKafka(BrokerContract):
    """What the stand-in can show, where the real one cannot be had."""

    @pytest.fixture
    def far_side(self, mock_kafka: MockKafka) -> FarSide:
        far_side = KafkaFarSide(mock_kafka)
        far_side.make_topic()
        return far_side

    @pytest.mark.skip(reason="the mock cluster cannot be stopped")
    async def test_while_away_and_once_back(self, far_side: FarSide) -> None: ...

    @pytest.mark.skip(reason="the mock cluster cannot be stopped")
    async def test_closing_takes_no_time_even_while_away(self, far_side: FarSide) -> None: ...


class TestPubSub(BrokerContract):
    @pytest.fixture
    async def far_side(self, emulator: PubSubEmulator) -> FarSide:
        far_side = PubSubFarSide(emulator)
        await far_side.make_topic()
        return far_side


class TestWebhook(BrokerContract):
    @pytest.fixture
    def far_side(self) -> Iterator[FarSide]:
        far_side = WebhookFarSide()
        far_side.receiver.__enter__()
        yield far_side
        far_side.receiver.__exit__()


class TestLog(BrokerContract):
    @pytest.fixture
    def far_side(self) -> FarSide:
        return LogFarSide()
