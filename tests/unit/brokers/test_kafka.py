"""Kafka's client settings: read from a file, ours where a promise hangs on them, never repeated."""

from pathlib import Path

import pytest

from tape.brokers.kafka import KafkaBroker
from tape.brokers.kafka_config import read_config
from tape.brokers.targets import KafkaTarget
from tape.errors import BrokerUnavailable, InvalidArgument, SourceRefused
from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.ports.credentials import OpenedCredential, SecretValue
from tape.sources.kafka_settings import kafka_settings
from tests.conformance.broker import outgoing

SPEC = SourceSpec(SourceKind.KAFKA, auth="desk", topic="orders", group="tape")
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
    settings = KafkaBroker(TARGET)._with_promises({"acks": "0", "enable.idempotence": False})
    assert settings["acks"] == "all"
    assert settings["enable.idempotence"] is True
    assert settings["bootstrap.servers"] == "127.0.0.1:1"


async def test_settings_the_client_does_not_take_are_not_repeated() -> None:
    broker = KafkaBroker(TARGET, config={"security.protocol": "hunter2"})
    (failure,) = await broker.publish([outgoing(1)])
    assert isinstance(failure, BrokerUnavailable)
    assert "bad client settings" in str(failure)
    assert "hunter2" not in str(failure)
    await broker.close()


async def test_a_broker_that_is_not_there_is_given_up_in_time() -> None:
    broker = KafkaBroker(TARGET, reports_s=2.0)
    first, second = await broker.publish([outgoing(1), outgoing(2)])
    assert isinstance(first, BrokerUnavailable)
    assert str(first).endswith(": no server answers")
    assert second is first
    await broker.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("plugin.library.paths", "loads a library"),
        ("ssl.engine.location", "loads a library"),
        ("sasl.kerberos.kinit.cmd", "runs a program"),
        ("test.mock.num.brokers", "makes a cluster that is none"),
        ("debug", "is not a setting that a credential may have"),
        ("log_level", "is not a setting that a credential may have"),
        ("oauth_cb", "is not a setting that a credential may have"),
        ("logger", "is not a setting that a credential may have"),
    ],
)
async def test_settings_that_no_credential_may_have(name: str, said: str) -> None:
    """Who may put a credential may not run what he likes, whether it publishes or listens."""
    credential = OpenedCredential("desk", 1, [SecretValue({name: "hunter2"})])

    async def open_login() -> OpenedCredential:
        return credential

    broker = KafkaBroker(TARGET, open_login=open_login)
    (failure,) = await broker.publish([outgoing(1)])
    assert isinstance(failure, BrokerUnavailable)
    assert f"{name} of the kafka credential desk {said}" in str(failure)
    assert "hunter2" not in str(failure)
    await broker.close()
    servers = {"bootstrap.servers": "127.0.0.1:1", name: "hunter2"}
    with pytest.raises(SourceRefused, match=said) as refusal:
        kafka_settings(OpenedCredential("desk", 1, [SecretValue(servers)]), SPEC, "t")
    assert "hunter2" not in str(refusal.value)
