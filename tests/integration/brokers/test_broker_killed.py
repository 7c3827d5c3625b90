"""The broker dies with kill -9 while thousands of entries are relayed, and comes back."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tape.errors import BrokerError
from tape.ports.broker import Broker, Outgoing
from tape.programs.sinks import BrokerSink, KafkaSink, NatsSink, WebhookSink
from tests.conformance.broker import ids_by_key
from tests.integration.brokers.far_sides import KafkaFarSide, NatsFarSide, PubSubFarSide
from tests.integration.brokers.receiver_process import ReceiverProcess
from tests.integration.brokers.relaying import check_arrival, make_journal, relay_with_kills
from tests.servers.kafka import KafkaServer
from tests.servers.nats import NatsServer
from tests.servers.pubsub import PubSubEmulator
from tests.servers.webhook import SECRET

LONG_ENTRIES = 30_000
WEBHOOK_ENTRIES = 2_000


async def kill_and_start(far_side: NatsFarSide | KafkaFarSide) -> None:
    await far_side.go_away()
    await far_side.come_back()


@pytest.mark.parametrize("count", [2_500, pytest.param(LONG_ENTRIES, marks=pytest.mark.long)])
async def test_nats(nats_server: NatsServer, sqlite_url: str, tmp_path: Path, count: int) -> None:
    far_side = NatsFarSide(nats_server)
    await far_side.make_stream()
    entries = await make_journal(sqlite_url, count)

    async def kill() -> None:
        await kill_and_start(far_side)

    kills = [(through, kill) for through in range(500, count, count // 3)]
    await relay_with_kills(sqlite_url, tmp_path / "cursor", NatsSink(far_side.target), kills)
    assert check_arrival(entries, await far_side.received(count)) == 0  # dropped by message id
    assert (tmp_path / "cursor").read_text() == f'{{"last_global_seq":{count}}}\n'


@pytest.mark.middle
@pytest.mark.parametrize("count", [2_500, pytest.param(LONG_ENTRIES, marks=pytest.mark.long)])
async def test_kafka(
    kafka_server: KafkaServer, sqlite_url: str, tmp_path: Path, count: int
) -> None:
    far_side = KafkaFarSide(kafka_server)
    far_side.make_topic()
    entries = await make_journal(sqlite_url, count)

    async def kill() -> None:
        await kill_and_start(far_side)

    kills = [(500, kill)] if count < LONG_ENTRIES else [(n, kill) for n in (500, 9_000, 20_000)]
    await relay_with_kills(sqlite_url, tmp_path / "cursor", KafkaSink(far_side.target), kills)
    check_arrival(entries, await far_side.received(count))


@pytest.mark.middle
async def test_webhook(sqlite_url: str, tmp_path: Path) -> None:
    entries = await make_journal(sqlite_url, WEBHOOK_ENTRIES)
    with ReceiverProcess(tmp_path / "deliveries") as receiver:

        async def kill() -> None:
            await asyncio.to_thread(receiver.kill)
            await asyncio.to_thread(receiver.start)

        sink = WebhookSink(receiver.target, secret=SECRET)
        kills = [(500, kill), (1_000, kill)]
        await relay_with_kills(sqlite_url, tmp_path / "cursor", sink, kills)
        check_arrival(entries, receiver.received())


class Noting:
    """A broker that keeps what was acknowledged, and says when something failed. Whoever has its
    `turn` keeps the others from publishing."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.acknowledged: set[str] = set()
        self.failed = asyncio.Event()
        self.turn = asyncio.Lock()

    async def publish(self, messages: Sequence[Outgoing]) -> list[BrokerError | None]:
        async with self.turn:
            results = await self._broker.publish(messages)
        for message, result in zip(messages, results, strict=True):
            if result is None:
                self.acknowledged.add(message.message_id)
        if any(results):
            self.failed.set()
        return results

    async def close(self) -> None:
        await self._broker.close()


async def test_pubsub(emulator: PubSubEmulator, sqlite_url: str, tmp_path: Path) -> None:
    """The emulator forgets everything when it dies. So this shows that each entry was acknowledged
    before, or arrived after, in the order of its key; not that the emulator keeps messages."""
    far_side = PubSubFarSide(emulator)
    await far_side.make_topic()
    entries = await make_journal(sqlite_url)
    noting = Noting(await far_side.open())
    before: set[str] = set()

    async def kill() -> None:
        await far_side.go_away()
        await noting.failed.wait()
        async with noting.turn:  # what comes between topic and subscription nobody would see
            before.update(noting.acknowledged)
            await far_side.come_back()

    async def open_it() -> Broker:
        return noting

    await relay_with_kills(sqlite_url, tmp_path / "cursor", BrokerSink(open_it), [(1_000, kill)])
    after = await far_side.received(len(entries) - len(before))
    assert 0 < len(before) < len(entries)
    assert before | {message.event_id for message in after} == {e.event_id for e in entries}
    for key, ids in ids_by_key(after).items():
        wanted = [entry.event_id for entry in entries if entry.subject == key]
        assert ids == wanted[-len(ids) :]
    again = [message for message in after if message.event_id in before]
    assert all(message.attempt > 1 for message in again)
