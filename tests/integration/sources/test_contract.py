"""The contract over each source, on real systems."""

from pathlib import Path

import pytest

from tests.conformance.source import SourceContract, SourceFarSide, SourceOutageContract
from tests.integration.sources.conftest import LOSSY_PORT
from tests.integration.sources.far_sides import FileSide, KafkaSide, NatsSide, PubSubSide
from tests.servers.kafka import KafkaServer
from tests.servers.nats import NatsServer
from tests.servers.pubsub import PubSubEmulator


class TestNats(SourceContract):
    @pytest.fixture
    async def far_side(self, nats_server: NatsServer) -> NatsSide:
        side = NatsSide(nats_server)
        await side.make()
        return side


class TestNatsKilled(SourceOutageContract):
    @pytest.fixture
    async def far_side(self, own_nats_server: NatsServer) -> NatsSide:
        side = NatsSide(own_nats_server)
        await side.make()
        return side


class TestKafka(SourceContract):
    @pytest.fixture
    def far_side(self, kafka_server: KafkaServer) -> KafkaSide:
        side = KafkaSide(kafka_server, lossy_port=LOSSY_PORT)
        side.make(1)
        return side


@pytest.mark.middle
class TestKafkaKilled(SourceOutageContract):
    @pytest.fixture
    def far_side(self, own_kafka_server: KafkaServer) -> KafkaSide:
        side = KafkaSide(own_kafka_server)
        side.make(1)
        return side


class TestPubSub(SourceContract):
    @pytest.fixture
    async def far_side(self, emulator: PubSubEmulator) -> PubSubSide:
        side = PubSubSide(emulator)
        await side.make()
        return side

    @pytest.mark.middle  # its shortest deadline is ten seconds
    async def test_what_is_in_hand_is_kept(self, far_side: SourceFarSide) -> None:
        await super().test_what_is_in_hand_is_kept(far_side)

    @pytest.mark.middle  # for the same reason
    async def test_acknowledgements_that_are_lost(self, far_side: SourceFarSide) -> None:
        await super().test_acknowledgements_that_are_lost(far_side)


class TestFiles(SourceContract):
    @pytest.fixture
    def far_side(self, tmp_path: Path) -> FileSide:
        return FileSide(tmp_path)
