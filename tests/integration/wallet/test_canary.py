"""A secret is looked for byte by byte wherever it could have been left, and is nowhere."""

import asyncio
import base64
import contextlib
import json
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from nats.js.api import AckPolicy, ConsumerConfig

import tape
from tape.errors import CredentialDamaged, TapeError
from tape.ports.credentials import OpenedCredential, SecretValue
from tape.programs.connect import open_operations
from tape.programs.opening_credentials import opening_credentials
from tape.settings import Settings
from tape.sources.nats_login import connect_nats, nats_addresses
from tests.integration.cli.command import TAPE, clean_environment
from tests.integration.wallet.tap import Tap
from tests.servers.collector import SpanReceiver
from tests.servers.kafka import KafkaServer, KafkaUnavailable, kafka_classpath
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.postgres import PostgresServer
from tests.servers.tape_server import ServerProcess

pytestmark = pytest.mark.timeout(300)


def needles(secret: bytes) -> list[bytes]:
    """A secret as it is, in base64 wherever it begins there, and in hexadecimal."""
    found = [secret, secret.hex().encode()]
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + secret)
        found.append(encoded[4 if shift else 0 : -4])  # what depends on the neighbours is left out
    return found


class Search:
    """Looks for secrets, and says where they are."""

    def __init__(self, *secrets_: bytes) -> None:
        self._needles = [needle for secret in secrets_ for needle in needles(secret)]

    def has(self, data: bytes) -> bool:
        return any(needle in data for needle in self._needles)

    def files(self, folder: Path) -> list[str]:
        """Files below a folder in which one is."""
        found = []
        for path in folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # a server may be at work there
                if path.is_file() and self.has(path.read_bytes()):
                    found.append(str(path))
        return found


@contextlib.contextmanager
def watching_arguments() -> Iterator[set[bytes]]:
    """The arguments of every process there is meanwhile."""
    seen: set[bytes] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    seen.add(process.read_bytes())
            stop.wait(0.01)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


class RawSpans(SpanReceiver):
    """Keeps spans as they came, with the exceptions that were recorded on them."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = b""

    def __enter__(self) -> "RawSpans":
        super().__enter__()
        return self

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name of the RPC
        self.raw += request.SerializeToString()
        return super().Export(request, context)


CERTS = Path(__file__).parents[1] / "grpc" / "certs"
CERTIFICATE, PRIVATE_KEY = (CERTS / "cert.pem").read_text(), (CERTS / "key.pem").read_text()
DOCUMENT = """\
apiVersion: tape/v1
kind: Subscription
metadata: {name: orders, path: subscriptions/orders}
spec:
  source: nats
  mode: pull
  activation: continuous
  auth: broker
  stream: ORDERS
  consumer: tape
  dispatch: {playbook: place_order}
"""
KAFKA_DOCUMENT = """\
apiVersion: tape/v1
kind: Subscription
metadata: {name: orders, path: subscriptions/orders}
spec:
  source: kafka
  mode: pull
  activation: continuous
  auth: broker
  topic: orders
  group: tape
  dispatch: {playbook: place_order}
"""
TRACED = """
import sys
from contextlib import suppress
from opentelemetry import trace
import tape
from tape.telemetry.tracing import export_spans

secret, send = sys.stdin.read(), export_spans("traced")
tracer = trace.get_tracer("traced")
with tape.connect() as client, tracer.start_as_current_span("putting"):
    client.put_credential("traced", {"password": secret})
    client.record("credential.changed")
    with suppress(tape.TapeError), tracer.start_as_current_span("refused"):
        client.put_credential("traced", secret, form="object")
send()
"""
"""A program with spans around what it puts; the exception of the last is recorded on its span."""


class Desk:
    """A server, a wallet, and whatever has come out of them so far."""

    def __init__(self, store: str, folder: Path, spans: SpanReceiver) -> None:
        self.canary = f"canary {secrets.token_hex(16)}"
        self.key = folder / "wallet.key"
        self.values = folder / "values"
        self.values.mkdir()
        self.out: list[str] = []
        self.environment = {
            "TAPE_WALLET_KEY_FILE": str(self.key),
            "OTEL_EXPORTER_OTLP_ENDPOINT": spans.endpoint,
            "TAPE_TOKENS": "admin:owner",
            "TAPE_TOKEN": "owner",
        }
        self.run("wallet", "init")
        self.server = ServerProcess(store, "--verbose", env=self.environment)
        self.search = Search(
            self.canary.encode(),
            self.canary.split()[1].encode(),  # what is left where a text is cut at its space
            base64.b64decode(self.key.read_text().splitlines()[1]),
            PRIVATE_KEY.encode().splitlines()[2],
        )

    def run(self, *arguments: str, stdin: str = "", **env: str) -> int:
        done = subprocess.run(
            [*TAPE, *arguments], input=stdin, capture_output=True, text=True, check=False,
            env=clean_environment(**self.environment, **env), cwd=self.key.parent, timeout=60,
        )  # fmt: skip
        self.out += [done.stdout, done.stderr]
        return done.returncode

    @property
    def login(self) -> dict[str, str]:
        return {"user": "tape", "password": self.canary}

    def by_command_line(self) -> None:
        where = {"TAPE_URL": self.server.url}
        file = self.values / "login.json"
        file.write_text(json.dumps(self.login))
        assert self.run("wallet", "put", "typed", stdin=self.canary, **where) == 0
        assert self.run("wallet", "rotate", "typed", "--file", str(file), **where) == 0
        for command in (("list",), ("list", "--json"), ("rewrap",)):
            assert self.run("wallet", *command, **where) == 0
        refused = f'{{"password": "{self.canary}'
        assert self.run("wallet", "rotate", "none", "--verbose", stdin=refused, **where) != 0
        long = self.canary * 5_000
        assert self.run("wallet", "put", "long", "--verbose", stdin=long, **where) != 0

    async def used_at_a_broker(self, nats: NatsServer) -> None:
        """A relay and a listener log in over TLS, each with a certificate of the wallet."""
        login: dict[str, Any] = {"servers": [f"tls://localhost:{nats.port}"], **self.login}
        login["tls"] = {"ca": CERTIFICATE, "cert": CERTIFICATE, "key": PRIVATE_KEY}
        where = {"TAPE_URL": self.server.url}
        assert self.run("wallet", "put", "broker", stdin=json.dumps(login), **where) == 0
        opened = OpenedCredential("broker", 1, [SecretValue(login)])
        connection = await connect_nats(nats_addresses(opened))
        stream = connection.jetstream
        await stream.add_stream(name="ORDERS", subjects=["orders"])
        await stream.add_stream(name="ENTRIES", subjects=["entries"])
        durable = ConsumerConfig(durable_name="tape", ack_policy=AckPolicy.EXPLICIT)
        await stream.add_consumer("ORDERS", durable)
        await stream.publish("orders", b"1")
        sink = f"nats://localhost:{nats.port}/entries#credential=broker"
        assert self.run("relay", "--sink", sink, "--no-follow", "--verbose", **where) == 0
        assert (await stream.stream_info("ENTRIES")).state.messages > 0
        await self.accept_one(DOCUMENT)
        await connection.close()

    async def accept_one(self, document: str) -> None:
        """Have the server listen until it has accepted a message."""
        where = {"TAPE_URL": self.server.url}
        file = self.key.with_name("orders.yaml")
        file.write_text(document)
        assert self.run("subscriptions", "register", str(file), **where) == 0
        assert self.run("subscriptions", "activate", "orders", **where) == 0
        async with (
            asyncio.timeout(60),
            tape.connect_async(self.server.url, token="owner") as client,
        ):
            while (await client.subscription("orders")).listener.accepted == 0:  # noqa: ASYNC110 - it is asked
                await asyncio.sleep(0.05)

    async def used_at_kafka(self, kafka: KafkaServer) -> None:
        """A relay and a listener log in by SASL."""
        login: dict[str, Any] = {
            "bootstrap.servers": kafka.address, "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN", "sasl.username": "tape", "sasl.password": self.canary,
        }  # fmt: skip
        topics = [NewTopic(name, 1, 1) for name in ("orders", "entries")]
        admin = AdminClient(login)
        for made in admin.create_topics(topics).values():
            made.result(60)
        producer = Producer(login)
        producer.produce("orders", b"1")
        assert producer.flush(60) == 0
        where = {"TAPE_URL": self.server.url}
        assert self.run("wallet", "put", "broker", stdin=json.dumps(login), **where) == 0
        sink = f"kafka://{kafka.address}/entries#credential=broker"
        assert self.run("relay", "--sink", sink, "--no-follow", "--verbose", **where) == 0
        await self.accept_one(KAFKA_DOCUMENT)

    def by_a_traced_program(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", TRACED], input=self.canary, capture_output=True, text=True,
            env=clean_environment(**self.environment, TAPE_URL=self.server.url), check=True,
            timeout=60,
        )  # fmt: skip
        self.out += [done.stdout, done.stderr]

    async def over_http(self) -> None:
        headers = {"authorization": "Bearer owner"}
        async with httpx.AsyncClient(
            base_url=f"http://{self.server.http}", headers=headers, timeout=60
        ) as http:
            asked: list[tuple[str, str, Any]] = [
                ("PUT", "/api/wallet/web", {"value": self.login}),
                ("POST", "/api/wallet/web/rotate", {"value": self.canary}),
                ("POST", "/api/wallet/none/rotate", {"value": self.canary}),
                ("PUT", "/api/wallet/web", {"value": [self.canary]}),
                ("PUT", "/api/wallet/web", {"values": self.canary}),
                ("PUT", "/api/wallet/web", {"value": "x", "password": self.canary}),
                ("PUT", "/api/wallet/", {"value": self.canary}),
                ("GET", "/api/wallet", None),
                ("GET", "/api/events/recent", None),
                ("GET", "/metrics", None),
                ("GET", "/openapi.json", None),
            ]
            for method, path, body in asked:
                answer = await http.request(method, path, json=body)
                self.out += [answer.text, repr(answer.headers)]

    async def over_grpc(self, url: str) -> None:
        async with tape.connect_async(url, token="owner") as client:
            await client.put_credential("rpc", self.login)
            await client.rotate_credential("rpc", self.canary)
            self.out.append(repr(await client.credentials()))
            for refused in (
                client.put_credential("rpc", self.canary, form="object"),
                client.put_credential("", self.canary),
                client.rotate_credential("none", self.canary),
                client.put_credential("rpc", self.canary, form=self.canary[:7]),
            ):
                with pytest.raises(TapeError) as refusal:
                    await refused
                self.out += [str(refusal.value), repr(refusal.value), repr(vars(refusal.value))]
            self.out += [repr(entry) async for entry in client.follow(live=False)]

    async def opened_elsewhere(self, url: str, store: str) -> None:
        operations = await open_operations(url, "owner", Settings())
        async with opening_credentials(operations) as open_credential:
            opened = await open_credential("rpc")
            assert opened.current.text == self.canary
            self.out += [repr(opened), str(opened), repr(opened.values), repr(open_credential)]
            self.out.append(repr(await operations.wallet.get_sealed_credential("rpc")))
            alter(store, "UPDATE tape_credential_versions SET version = version + 7")
            with pytest.raises(CredentialDamaged) as refusal:
                await open_credential("typed")
            self.out += [str(refusal.value), repr(refusal.value)]
        await operations.close()


def alter(store: str, change: str) -> None:
    if store.startswith("sqlite:"):
        import sqlite3

        with contextlib.closing(sqlite3.connect(store.removeprefix("sqlite:"))) as db, db:
            db.execute(change)
        return
    with psycopg.connect(store) as postgres:
        postgres.execute(change.encode())


def log_of(store: str) -> bytes:
    """The write-ahead log that a server on SQLite has left."""
    return Path(f"{store.removeprefix('sqlite:')}-wal").read_bytes()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.middle)])
async def test_a_secret_is_nowhere_but_where_it_is_used(
    kind: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store: str = request.getfixturevalue(f"{kind}_url")
    folder = tmp_path / "desk"
    folder.mkdir()
    with RawSpans() as spans:
        desk = Desk(store, folder, spans)
        search = desk.search
        monkeypatch.setenv("TAPE_WALLET_KEY_FILE", str(desk.key))
        with watching_arguments() as arguments, caplog.at_level("DEBUG"), desk.server as server:
            desk.by_command_line()
            if nats_server_program() is not None:
                with NatsServer(
                    f'\nauthorization {{ user: tape, password: "{desk.canary}" }}\n'
                    f'tls {{ cert_file: "{CERTS}/cert.pem", key_file: "{CERTS}/key.pem", '
                    f'ca_file: "{CERTS}/cert.pem", verify: true }}\n'
                ) as nats:
                    await desk.used_at_a_broker(nats)
                assert desk.run("subscriptions", "pause", "orders", TAPE_URL=server.url) == 0
            desk.by_a_traced_program()
            await desk.over_http()
            tap = Tap(server.url.removeprefix("tape://"))
            async with tap as tapped:
                await desk.over_grpc(f"tape://{tapped}")
            away = Tap(server.url.removeprefix("tape://"))
            async with away as tapped:
                await desk.opened_elsewhere(f"tape://{tapped}", store)
            server.kill()  # what is in the write-ahead log stays there
            if kind == "sqlite":
                wal = log_of(store)
                assert b"rotated/rpc" in wal
                assert not search.has(wal)
            server.start()
        spans.wait_for("putting", "refused", "record credential.changed")
    logged = capfd.readouterr()

    # What is searched is what there is: each place shows something that it must have.
    assert desk.canary.encode() in tap.sent
    assert search.files(desk.values) == [str(desk.values / "login.json")]
    assert any(b"wallet\0put\0typed" in each for each in arguments)
    assert '"alias":"rpc"' in "".join(desk.out)
    assert "tape_wallet_opened" in "".join(desk.out)

    assert not search.has(tap.received)
    assert not search.has(away.sent + away.received)
    assert not any(map(search.has, arguments))
    assert [text for text in desk.out if search.has(text.encode())] == []
    assert b"is not a JSON object" in spans.raw
    assert not search.has(spans.raw)
    assert not search.has((logged.out + logged.err + caplog.text).encode())
    desk.key.unlink()
    (desk.values / "login.json").unlink()
    if kind == "sqlite":
        assert Search(b"rotated/rpc").files(tmp_path) != []
        assert search.files(tmp_path) == []
    else:
        server_of_store: PostgresServer = request.getfixturevalue("postgres_server")
        with psycopg.connect(store, autocommit=True) as postgres:
            postgres.execute("CHECKPOINT")
        data = server_of_store._folder
        assert Search(b"rotated/rpc").files(data) != []
        assert search.files(data) == []


@pytest.mark.middle
async def test_a_login_to_kafka_is_nowhere_but_where_it_is_used(
    sqlite_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        kafka_classpath()
    except KafkaUnavailable as reason:
        pytest.skip(f"needs a real Kafka: {reason}")
    folder = tmp_path / "desk"
    folder.mkdir()
    with RawSpans() as spans:
        desk = Desk(sqlite_url, folder, spans)
        with (
            watching_arguments() as arguments,
            KafkaServer({"tape": desk.canary}) as kafka,
            desk.server as server,
        ):
            await desk.used_at_kafka(kafka)
            server.kill()
            wal = log_of(sqlite_url)
    logged = capfd.readouterr()
    assert b"put/broker" in wal
    assert any(b"relay\0--sink\0kafka://" in each for each in arguments)
    assert "orders is active" in "".join(desk.out)
    assert not desk.search.has(wal)
    assert not any(map(desk.search.has, arguments))
    assert [text for text in desk.out if desk.search.has(text.encode())] == []
    assert not desk.search.has(spans.raw)
    assert not desk.search.has((logged.out + logged.err).encode())
    desk.key.unlink()
    assert desk.search.files(tmp_path) == []
