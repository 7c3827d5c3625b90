"""Kafka's client settings: read from a file, ours where a promise hangs on them, never repeated."""

from pathlib import Path

import pytest

from tape.brokers.kafka import KafkaBroker
from tape.brokers.kafka_config import read_config
from tape.brokers.targets import KafkaTarget
from tape.errors import BrokerUnavailable, InvalidArgument
from tests.conformance.broker import outgoing

TARGET = KafkaTarget(("127.0.0.1:1",), "tape")


def test_a_file_of_settings(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# ours\n\nsasl.username = me\nsasl.password=a=b\n")
    assert read_config(str(file)) == {"sasl.username": "me", "sasl.password": "a=b"}
    assert read_config("") == {}


def test_a_file_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kafka.properties"
    monkeypatch.setenv("TAPE_KAFKA_CONFIG", str(file))
    with pytest.raises(InvalidArgument, match="TAPE_KAFKA_CONFIG: cannot be read"):
        KafkaBroker(TARGET)
    file.write_text("hunter2\n")
    with pytest.raises(InvalidArgument, match="line 1 is not name=value") as refusal:
        KafkaBroker(TARGET)
    assert "hunter2" not in str(refusal.value)


def test_promises_are_not_for_configuration() -> None:
    broker = KafkaBroker(TARGET, config={"acks": "0", "enable.idempotence": False})
    assert broker._config["acks"] == "all"
    assert broker._config["enable.idempotence"] is True
    assert broker._config["bootstrap.servers"] == "127.0.0.1:1"


async def test_settings_the_client_does_not_take_are_not_repeated() -> None:
    broker = KafkaBroker(TARGET, config={"security.protocol": "hunter2"})
    (failure,) = await broker.publish([outgoing(1)])
    assert isinstance(failure, BrokerUnavailable)
    assert "bad client settings" in str(failure)
    assert "hunter2" not in str(failure)
    await broker.close()


async def test_a_broker_that_is_not_there_is_given_up_in_time() -> None:
    broker = KafkaBroker(TARGET, reports_s=0.2)
    first, second = await broker.publish([outgoing(1), outgoing(2)])
    assert isinstance(first, BrokerUnavailable)
    assert second is first
    await broker.close()
