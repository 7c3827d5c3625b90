"""A credential has a current value and maybe the one before: a bad one does not spoil the other."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tape.brokers.credential_fields import read_fields
from tape.brokers.google_account import read_account
from tape.brokers.kafka_config import read_settings
from tape.brokers.nats_login import logins_of, read_nats
from tape.errors import NoCredential, SourceRefused
from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.ports.credentials import OpenedCredential, SecretValue
from tape.sources.credential_fields import read_source_fields
from tape.sources.kafka_settings import kafka_settings
from tape.sources.nats_login import nats_addresses

Read = Callable[[OpenedCredential], Sequence[Any]]
SECRET = "hunter2"
SPEC = SourceSpec(SourceKind.KAFKA, auth="desk", topic="orders", group="tape")
SERVERS = {"bootstrap.servers": "h:1"}
EMULATOR = {"emulator_host": "h:1"}
USES: dict[str, tuple[Read, Any, Any]] = {
    "nats": (logins_of, {"user": "me", "passwort": SECRET}, {"token": SECRET}),
    "nats source": (nats_addresses, {"servers": "h", "user": SECRET}, {"servers": "h"}),
    "kafka": (
        lambda opened: read_fields(opened, "kafka", read_settings),
        {"sasl.password": [SECRET]},
        {"sasl.password": SECRET},
    ),
    "kafka source": (
        lambda opened: kafka_settings(opened, SPEC, "t"), {"sasl.password": SECRET}, SERVERS,
    ),
    "pubsub": (
        lambda opened: read_fields(opened, "pubsub", read_account),
        {"type": "service_account", "private_key": SECRET},
        EMULATOR,
    ),
    "pubsub source": (
        lambda opened: read_source_fields(opened, "pubsub", read_account), SECRET, EMULATOR,
    ),
}  # fmt: skip


def opened(alias: str, *values: Any) -> OpenedCredential:
    return OpenedCredential(alias, 2, [SecretValue(value) for value in values])


@pytest.mark.parametrize("use", USES)
def test_one_that_cannot_be_read_is_left_out_while_another_is_good(
    use: str, caplog: pytest.LogCaptureFixture
) -> None:
    read, bad, good = USES[use]
    for _ in range(3):
        assert len(read(opened(use, bad, good))) == 1
        assert len(read(opened(use, good, bad))) == 1
    (message,) = caplog.messages
    assert f"credential {use!r}, version 2: a value is left out" in message
    assert SECRET not in message
    assert len(read(opened(use, good, good))) == 2
    with pytest.raises((NoCredential, SourceRefused)) as refusal:
        read(opened(use, bad, bad))
    assert SECRET not in str(refusal.value)


def test_no_login_is_shown() -> None:
    (address,) = read_fields(
        opened("desk", {"servers": "h", "user": "me", "password": SECRET}), "nats", read_nats
    )
    assert address.login["password"] == SECRET
    assert repr([address]) == "[NatsAddress(nats://h)]"
    assert SECRET not in f"{address} {address!r} {[address]}"


def test_both_readers_of_nats_know_the_same() -> None:
    tls = {"host": "nats.example", "first": True}
    value = {"servers": ["nats://h:1", "h:2"], "token": SECRET, "tls": tls}
    (login,) = logins_of(opened("desk", value))
    (address,) = nats_addresses(opened("desk", value))
    assert (login["tls"].host, login["tls"].first) == ("nats.example", True)
    assert (address.hosts, address.login["tls"][1:]) == (("h:1", "h:2"), login["tls"][1:])
    for more in ({"tls": True}, {"servers": ["nats://h:1", "tls://h:2"]}):
        (login,) = logins_of(opened("desk", {"token": SECRET, **more}))
        assert login["tls"].context.check_hostname
    (login,) = logins_of(opened("desk", {"token": SECRET, "tls": False, "servers": "h"}))
    assert "tls" not in login
