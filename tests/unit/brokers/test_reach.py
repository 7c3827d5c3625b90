"""Where reactions may publish, and to whom this process's logins go."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tape.brokers import reach as reach_module
from tape.brokers.by_target import check_target, open_broker
from tape.brokers.nats import NatsBroker
from tape.brokers.reach import HostPort, Reach, places
from tape.brokers.targets import NatsTarget, WebhookTarget, parse_target
from tape.brokers.webhook import WebhookBroker
from tape.errors import BrokerRefused, BrokerUnavailable, InvalidArgument
from tape.settings import BrokersSettings, OutboxSettings, Settings
from tests.conformance.broker import outgoing

SECRET = "x" * 32
LINK_LOCAL = [
    "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "0xa9.254.0251.254",
    "169.254.43518", "[fe80::1]", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]",
]  # fmt: skip
OWN = ["127.0.0.1", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "localhost", "LOCALHOST.",
       "0.0.0.0", "10.1.2.3", "192.168.0.1", "172.16.0.1", "[fd00::1]", "100.64.0.1"]  # fmt: skip


@pytest.fixture(autouse=True)
def no_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAPE_NATS_USER", "TAPE_NATS_PASSWORD", "TAPE_NATS_CREDENTIALS",
                 "TAPE_KAFKA_CONFIG", "TAPE_WEBHOOK_SECRET", "TAPE_BROKER_HOSTS"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)


def of(*hosts: str, exposed: bool = False) -> Reach:
    return Reach.of(Settings(brokers=BrokersSettings(hosts)), exposed=exposed)


@pytest.mark.parametrize("host", LINK_LOCAL)
@pytest.mark.parametrize("form", ["nats://{}:4222/a", "https://{}/x", "kafka://{}:9092/t"])
def test_link_local_addresses_are_refused_unless_allowed(host: str, form: str) -> None:
    target = form.format(host)
    with pytest.raises(InvalidArgument, match=r"link-local.*tape\.brokers\.hosts") as refused:
        check_target(target, of())
    assert refused.value.field == "publish_target"
    check_target(target, of(host.lower()))


@pytest.mark.parametrize("host", OWN)
def test_own_and_private_addresses_are_refused_where_others_can_reach_the_server(host: str) -> None:
    target = f"nats://{host}:4222/a" if host != "LOCALHOST." else "nats://LOCALHOST.:4222/a"
    check_target(target, of())
    with pytest.raises(InvalidArgument, match="others can register reactions here"):
        check_target(target, of(exposed=True))
    check_target(target, of(host.lower().rstrip("."), exposed=True))


def test_public_addresses_and_names_need_nothing() -> None:
    for target in ("nats://1.1.1.1:4222/a", "https://hooks.example/x", "pubsub://proj/topic",
                   "log:", "https://[2606:4700::1111]/"):  # fmt: skip
        check_target(target, of(exposed=True))


@pytest.mark.parametrize(
    ("entry", "host", "port", "covered"),
    [
        ("nats.internal:4222", "nats.internal", 4222, True),
        ("nats.internal:4222", "nats.internal", 4223, False),
        ("nats.internal", "NATS.Internal", 1, True),
        ("*.example.com", "a.b.example.com", 1, True),
        ("*.example.com", "example.com", 1, False),
        ("*.example.com", "notexample.com", 1, False),
        ("*.example.com", "a.example.com.evil.net", 1, False),
        ("[::1]:4222", "::1", 4222, True),
    ],
)
def test_what_an_entry_covers(entry: str, host: str, port: int, covered: bool) -> None:
    assert of(entry).trusts(HostPort(host, port)) is covered


@pytest.mark.parametrize("entry", ["*", "http://h", "a b", "*.*.com", "h/x", ""])
def test_an_entry_that_is_none(entry: str) -> None:
    with pytest.raises(InvalidArgument, match=r"tape\.brokers\.hosts"):
        of(entry)


@pytest.mark.parametrize(
    ("variable", "target", "login"),
    [
        ("TAPE_NATS_USER", "nats://h.example:4222/a", "the NATS login"),
        ("TAPE_NATS_CREDENTIALS", "nats://h.example:4222/a", "the NATS login"),
        ("TAPE_KAFKA_CONFIG", "kafka://h.example:9092/t", "the Kafka login"),
        ("TAPE_WEBHOOK_SECRET", "https://h.example/x", "the signing secret"),
    ],
)
async def test_a_login_is_for_hosts_that_were_named(
    variable: str, target: str, login: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "kafka"
    config.write_text("sasl.password=hunter2\n")
    check_target(target, of())
    monkeypatch.setenv(variable, str(config) if "KAFKA" in variable else SECRET)
    with pytest.raises(
        InvalidArgument, match=f"{login} of this process may not be sent to h.example"
    ):
        check_target(target, of())
    with pytest.raises(InvalidArgument, match="may not be sent to"):
        await open_broker(target, of())
    for named in ("h.example", "*.example"):
        check_target(target, of(named))
    monkeypatch.setenv("TAPE_BROKER_HOSTS", "a.example, h.example")
    check_target(target, of())


def test_hosts_that_the_settings_and_the_environment_have_a_login_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAPE_NATS_USER", "ada")
    config = tmp_path / "kafka"
    config.write_text("sasl.password=hunter2\nbootstrap.servers=k1:9092, k2:9092\n")
    monkeypatch.setenv("TAPE_KAFKA_CONFIG", str(config))
    here = Reach.of(Settings(outbox=OutboxSettings(nats="nats://bus.internal:4222")))
    check_target("nats://bus.internal:4222/a", here)
    check_target("kafka://k2:9092/t", here)
    with pytest.raises(InvalidArgument):
        check_target("kafka://k3:9092/t", here)


def test_kafka_is_named_where_others_can_reach_the_server() -> None:
    """Its client connects to whatever addresses a cluster tells it."""
    check_target("kafka://k.example:9092/t", of())
    with pytest.raises(InvalidArgument, match="connects to any address that"):
        check_target("kafka://k.example:9092/t", of(exposed=True))


class Names:
    """A resolver: each question is answered with the next answer, the last one for ever."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int, **_options: Any) -> list[Any]:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        kind = socket.AF_INET6 if ":" in answer else socket.AF_INET
        return [(kind, socket.SOCK_STREAM, 6, "", (answer, port))]


@pytest.fixture
def resolves(monkeypatch: pytest.MonkeyPatch) -> Any:
    def to(*answers: str) -> Names:
        names = Names(*answers)
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "getaddrinfo", names)
        return names

    return to


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254"])
async def test_a_name_that_resolves_to_a_link_local_address(address: str, resolves: Any) -> None:
    resolves(address)
    with pytest.raises(BrokerRefused, match=r"link-local.*'rebind.example:443'"):
        await of().resolve(HostPort("rebind.example", 443))
    assert await of("rebind.example").resolve(HostPort("rebind.example", 443)) == [address]


async def test_a_name_that_resolves_to_a_private_address(resolves: Any) -> None:
    resolves("10.0.0.5")
    assert await of().resolve(HostPort("h.example", 1)) == ["10.0.0.5"]
    with pytest.raises(BrokerRefused, match="a private address"):
        await of(exposed=True).resolve(HostPort("h.example", 1))


async def test_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_asked: Any, **_options: Any) -> Any:
        raise socket.gaierror

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    with pytest.raises(BrokerUnavailable, match="its address cannot be resolved"):
        await of().resolve(HostPort("h.example", 1))


class Listener:
    """Notes what is sent to it, answers each request with 204."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    made = Listener()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    await server.wait_closed()


async def test_a_webhook_is_sent_to_the_address_that_was_judged(
    listener: Listener, resolves: Any
) -> None:
    """Asked again, the name would be link-local: nobody asks again."""
    names = resolves("127.0.0.1", "169.254.169.254")
    url = f"http://rebind.example:{listener.port}/x"
    target = WebhookTarget(url, f"http://rebind.example:{listener.port}")
    broker = WebhookBroker(target, secret=SECRET, reach=of())
    assert await broker.publish([outgoing(1)]) == [None]
    assert names.asked == 1
    assert f"host: rebind.example:{listener.port}".encode() in listener.heard[0].lower()
    await broker.close()


async def test_a_webhook_to_a_link_local_address_is_not_sent(resolves: Any) -> None:
    resolves("169.254.169.254")
    broker = WebhookBroker(
        WebhookTarget("https://rebind.example/x", "https://rebind.example"),
        secret=SECRET, reach=of(),
    )  # fmt: skip
    (refused,) = await broker.publish([outgoing(1)])
    assert isinstance(refused, BrokerRefused)
    assert "link-local" in str(refused)
    await broker.close()


class NatsImpostor:
    """Speaks enough of NATS to be told a login."""

    def __init__(self) -> None:
        self.heard = b""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","max_payload":1048576,"auth_required":true}\r\n')
        self.heard += await reader.read(65536)
        writer.write(b"-ERR 'Authorization Violation'\r\n")
        writer.close()


async def test_a_login_is_not_told_to_a_stranger(
    resolves: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    impostor = NatsImpostor()
    server = await asyncio.start_server(impostor.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    resolves("127.0.0.1")
    target = NatsTarget((f"nats.example:{port}",), "a")
    broker = NatsBroker(target, reach=of())
    (away,) = await broker.publish([outgoing(1)])
    assert isinstance(away, BrokerUnavailable)
    assert b"CONNECT" in impostor.heard
    monkeypatch.setenv("TAPE_NATS_USER", "ada")
    monkeypatch.setenv("TAPE_NATS_PASSWORD", "hunter2")
    (refused,) = await broker.publish([outgoing(1)])
    assert isinstance(refused, BrokerRefused)
    assert "the NATS login of this process may not be sent to nats.example" in str(refused)
    assert b"hunter2" not in impostor.heard
    named = NatsBroker(target, reach=of("nats.example"))
    await named.publish([outgoing(1)])
    assert b"hunter2" in impostor.heard
    server.close()
    await server.wait_closed()


def test_what_a_target_connects_to() -> None:
    assert places(parse_target("nats://a,b:1/s")) == [HostPort("a", 4222), HostPort("b", 1)]
    assert places(parse_target("kafka://[::1]/t")) == [HostPort("::1", 9092)]
    assert places(parse_target("https://h.example/x")) == [HostPort("h.example", 443)]
    assert places(parse_target("pubsub://proj/topic")) == []
    assert reach_module.login_of(parse_target("log:")) == ""
