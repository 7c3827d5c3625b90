"""What is particular to Kafka: changing groups, topics that are made again, what is committed."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tape.errors import SourceRefused, SourceUnavailable
from tape.ports.source import ReceivedMessage, Source
from tape.sources import kafka_group, kafka_topic
from tape.sources.by_spec import open_source
from tape.sources.kafka import KafkaSource
from tape.sources.kafka_topic import find_topic
from tests.conformance.source import (
    BOUND_S,
    Sent,
    ack,
    bodies,
    by_place,
    fetch_count,
    numbered,
    opened,
)
from tests.integration.docs.pages import ROOT
from tests.integration.sources.credentials import opened as opened_credential
from tests.integration.sources.far_sides import KafkaSide
from tests.servers.kafka import KafkaServer
from tests.servers.kafka_logins import PASSWORD, sasl_login
from tests.servers.ports import free_port


@pytest.fixture
def side(kafka_server: KafkaServer) -> KafkaSide:
    made = KafkaSide(kafka_server)
    made.make(4)
    return made


def member(source: Source) -> kafka_group.GroupMember:
    assert isinstance(source, KafkaSource)
    return source._member


def committed(side: KafkaSide) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": side.server.address, "log_level": 0})
    wanted = [TopicPartition(side.topic, number) for number in range(4)]
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(side.topic, wanted)])
    told = asked[side.topic].result(20).topic_partitions
    return {part.partition: part.offset for part in told or [] if part.offset >= 0}


async def test_a_message_says_where_it_was(side: KafkaSide) -> None:
    await side.send([Sent(b"1", "a key"), Sent(b"2", "a key")])
    async with opened(side) as source:
        _, second = await fetch_count(source, 2)
        admin = AdminClient({"bootstrap.servers": side.server.address, "log_level": 0})
        told = admin.describe_topics(TopicCollection([side.topic]))[side.topic].result(20)
        topic_id = str(told.topic_id).translate(str.maketrans("+/", "-_"))
        origin = f"kafka/{side.topic}@{topic_id}"
        assert second.message.place.startswith(f"{origin}/")
        assert second.message.place.endswith("/1")
        assert second.message.key == "a key"


class CountedPolls:
    """A client that counts how many polls are begun while somebody asks what is committed."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._polls = 0
        self.overtaken: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def poll(self, wait_s: float) -> Any:
        self._polls += 1
        return self._consumer.poll(wait_s)

    def committed(self, *asked: Any) -> Any:
        before = self._polls
        try:
            return self._consumer.committed(*asked)
        finally:
            self.overtaken.append(self._polls - before)


async def test_who_asks_is_served_before_the_next_poll(side: KafkaSide) -> None:
    """The client serves one thread at a time, and does not care who came first."""
    async with opened(side) as source:
        counted = CountedPolls(member(source)._consumer)
        member(source)._consumer = counted  # type: ignore[assignment]  # it does the same
        for _ in range(5):
            committed_now = await asyncio.to_thread(member(source).committed)
            assert {*committed_now.values()} == {None}
        assert max(counted.overtaken) <= 1, counted.overtaken  # one may have been about to begin


class Accepted:
    """Messages by place, as a journal would have them, and how often each was fetched."""

    def __init__(self) -> None:
        self.by_place: dict[str, bytes] = {}
        self.fetched = 0

    async def read(self, source: Source, enough: int, stop: asyncio.Event | None = None) -> None:
        while len(self.by_place) < enough and not (stop and stop.is_set()):
            try:
                found = await source.fetch(20, 0.2)
            except SourceUnavailable:
                continue
            self.fetched += len(found)
            self.by_place |= by_place(found)
            await source.ack([received.receipt for received in found])


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
async def test_a_group_that_changes_loses_and_doubles_nothing(
    side: KafkaSide, strategy: str
) -> None:
    credential = {**side.credential, "partition.assignment.strategy": strategy}
    sent = numbered(1_200, keys=40)
    accepted = Accepted()
    await side.send(sent[:400])
    first = await side.open(credential)
    async with asyncio.timeout(BOUND_S):
        await accepted.read(first, 150)
        second = await side.open(credential)  # in the middle
        stop = asyncio.Event()
        reading = [
            asyncio.create_task(accepted.read(each, 1_200, stop)) for each in (first, second)
        ]
        await side.send(sent[400:800])
        while len(accepted.by_place) < 600:  # noqa: ASYNC110 - the tasks tell nobody
            await asyncio.sleep(0.01)
        stop.set()
        await asyncio.gather(*reading)
        await first.close()  # with what it has in hand
        await side.send(sent[800:])
        await accepted.read(second, 1_200)
        await second.close()
    assert sorted(accepted.by_place.values()) == sorted(message.body for message in sent)
    # What was acknowledged was committed before its partition went: little was fetched twice.
    assert accepted.fetched < 1_200 + 200
    assert sum(committed(side).values()) == 1_200


async def test_a_reader_that_is_killed_loses_nothing(side: KafkaSide, tmp_path: Path) -> None:
    sent = numbered(600, keys=40)
    file = tmp_path / "accepted"
    file.touch()
    await side.send(sent[:300])
    accepted = Accepted()

    def killed() -> dict[str, bytes]:
        lines = file.read_text().splitlines()
        return {line.split(" ")[0]: line.split(" ")[1].encode() for line in lines if " " in line}

    for _ in range(2):
        before = len(killed())
        with reader(side, file) as process:
            async with asyncio.timeout(BOUND_S):
                while len(killed()) < before + 40:
                    assert process.poll() is None, "it has ended"
                    await asyncio.sleep(0.01)
    await side.send(sent[300:])
    async with opened(side) as source, asyncio.timeout(BOUND_S):
        while len(accepted.by_place | killed()) < 600:
            found = await source.fetch(50, 0.5)
            accepted.fetched += len(found)
            for place, body in by_place(found).items():
                assert killed().get(place, body) == body
            accepted.by_place |= by_place(found)
            await ack(source, found)
    together = accepted.by_place | killed()
    assert sorted(together.values()) == sorted(message.body for message in sent)


@contextmanager
def reader(side: KafkaSide, file: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that reads until the end of this, where it is killed. It says where it was if that
    comes too early."""
    spec = {"kind": "kafka", "topic": side.topic, "group": side.topic}
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-m",
         "tests.integration.sources.kafka_reader_process",
         json.dumps(spec), json.dumps(side.credential), str(file)],
        cwd=ROOT,
    )  # fmt: skip
    try:
        yield process
    except BaseException:
        process.send_signal(signal.SIGABRT)
        process.wait(30)
        raise
    finally:
        process.kill()
        process.wait(30)


async def test_what_is_lost_is_not_committed(side: KafkaSide) -> None:
    """Who was thought dead must not commit over the one that has its partitions now."""
    await side.send(numbered(8, keys=8))
    async with opened(side) as source:
        found = await fetch_count(source, 8)
        owned = [TopicPartition(side.topic, number) for number in range(4)]
        member(source)._lost(member(source)._consumer, owned)
        await ack(source, found)
        member(source)._revoked(member(source)._consumer, owned)
        assert await source.backlog() == 8
    assert committed(side) == {}


async def made_again(side: KafkaSide) -> None:
    """The topic, with sixty messages. What was read of it is behind most of these."""
    admin = AdminClient({"bootstrap.servers": side.server.address, "log_level": 0})
    for gone in admin.delete_topics([side.topic]).values():
        gone.result(20)
    await asyncio.to_thread(make_once_it_is_gone, side)
    await side.send([Sent(b"new %d" % n, f"key-{n % 8}") for n in range(60)])


async def test_a_topic_that_is_made_again_is_read_from_its_beginning(
    side: KafkaSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's library goes on at its old offsets, and would skip what is before them. What it
    brings before anybody asks for the topic must not have a place in the old one."""
    monkeypatch.setattr(kafka_topic, "AGAIN_S", 2 * BOUND_S)
    await side.send(numbered(4, keys=4))
    async with opened(side) as source:
        first = await fetch_count(source, 4)
        await ack(source, first[:3])
        await made_again(side)
        await ack(source, first)  # of the messages of before
        found: list[ReceivedMessage] = []
        async with asyncio.timeout(BOUND_S):
            while len(set(bodies(found))) < 60:
                some = await source.fetch(100, 1.0)
                found += some
                await ack(source, some)
            while await source.backlog():  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.05)
        assert sorted(bodies(found)) == sorted(b"new %d" % n for n in range(60))
        assert len(by_place(found)) == 60
        assert len({place_topic([each]) for each in found} - {place_topic(first)}) == 1
    assert sum(committed(side).values()) == 60


async def test_what_was_committed_of_a_topic_that_was_deleted_skips_nothing(
    side: KafkaSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the member that did it ended before it knew that the topic was made again."""
    await side.send(numbered(40, keys=8))
    async with opened(side) as source:
        first = await fetch_count(source, 40)
        monkeypatch.setattr(member(source).watch, "poll", lambda: False)  # it never knows
        await made_again(side)
        await ack(source, first)
    assert sum(committed(side).values()) == 40
    async with opened(side) as source:
        assert await source.backlog() == 60
        assert {*(await source.passed()).values()} == {-1}
        found = await fetch_count(source, 60)
        assert sorted(bodies(found)) == sorted(b"new %d" % n for n in range(60))
        await ack(source, found)
    assert sum(committed(side).values()) == 60


async def test_what_is_acknowledged_waits_no_more(side: KafkaSide) -> None:
    """Commits go their own way, and whoever asks between two batches asks once."""
    for first in (0, 50, 100):
        await side.send(numbered(50, keys=8))
        async with opened(side) as source:
            await ack(source, await fetch_count(source, 50))
            assert await source.backlog() == 0
            assert sum(position + 1 for position in (await source.passed()).values()) == first + 50


async def test_a_group_that_was_set_by_hand_is_read_from_there(side: KafkaSide) -> None:
    await side.send(numbered(40, keys=8))
    async with opened(side) as source:
        await ack(source, await fetch_count(source, 40))
    admin = AdminClient({"bootstrap.servers": side.server.address, "log_level": 0})
    back = [TopicPartition(side.topic, number, 1) for number in committed(side)]
    asked = ConsumerGroupTopicPartitions(side.topic, back)
    admin.alter_consumer_group_offsets([asked])[side.topic].result(20)
    async with opened(side) as source:
        assert await source.backlog() == 40 - len(back)
        await fetch_count(source, 40 - len(back))


def place_topic(received: Any) -> str:
    topic: str = received[0].message.place.split("/")[1]
    return topic


def make_once_it_is_gone(side: KafkaSide) -> None:
    while True:
        try:
            side.make(4)
        except Exception as error:
            if "TOPIC_ALREADY_EXISTS" not in str(error):
                raise
        else:
            return


async def test_a_partition_does_not_starve_another(side: KafkaSide) -> None:
    producer = Producer({"bootstrap.servers": side.server.address, "log_level": 0})
    for _ in range(20_000):
        producer.produce(side.topic, b"x" * 300, partition=0)
    assert producer.flush(BOUND_S) == 0
    for number in range(30):
        producer.produce(side.topic, b"%d" % number, partition=1)
    assert producer.flush(BOUND_S) == 0
    async with opened(side) as source, asyncio.timeout(BOUND_S):
        seen, few = 0, 0
        while few < 30:
            found = await source.fetch(100, 1.0)
            seen += len(found)
            few += sum(len(body) < 300 for body in bodies(found))
            await ack(source, found)
        assert seen < 5_000


async def test_who_takes_nothing_stays_in_the_group_and_holds_little(side: KafkaSide) -> None:
    await side.send([Sent(b"x" * 1_000, f"key-{n}") for n in range(4_000)])
    async with opened(side) as source:
        await asyncio.sleep(2 * side.silent_s)  # more than a member may be without a poll
        held = member(source)
        assert held.failure is None
        assert sum(map(len, held._readings)) <= kafka_group.MOST_MESSAGES + kafka_group.CHUNK
        found = await fetch_count(source, 4_000, most=500)
        assert {each.message.deliveries for each in found} == {1}


async def test_a_group_that_changes_while_nobody_takes_goes_on_after_it(side: KafkaSide) -> None:
    """What a member keeps in a cooperative change is as it was: paused, if it was that."""
    await side.send(numbered(2_600, keys=40))
    async with opened(side) as source, asyncio.timeout(BOUND_S):
        while not member(source)._paused:  # noqa: ASYNC110 - its thread tells nobody
            await asyncio.sleep(0.01)
        other = await side.open()
        while len(member(source)._readings) == 4:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.01)
        await side.send([Sent(b"later %d" % n, f"key-{n}") for n in range(40)])
        accepted = Accepted()
        stop = asyncio.Event()
        reading = [
            asyncio.create_task(accepted.read(each, 2_640, stop)) for each in (source, other)
        ]
        await asyncio.gather(*reading)
        await other.close()


async def test_a_source_waits_in_threads_of_its_own(side: KafkaSide) -> None:
    """Those of the process are for everybody: a cluster that does not answer would take them."""
    await side.send(numbered(3))
    may_end = threading.Event()
    everybodys = ThreadPoolExecutor(1)
    everybodys.submit(may_end.wait)
    asyncio.get_running_loop().set_default_executor(everybodys)
    try:
        async with asyncio.timeout(BOUND_S):
            assert await find_topic(opened_credential(side.credential), side.spec)
            async with opened(side) as source:
                await ack(source, await fetch_count(source, 3))
                while await source.backlog():  # noqa: ASYNC110 - only asking tells
                    await asyncio.sleep(0.01)
                assert sum(position + 1 for position in (await source.passed()).values()) == 3
    finally:
        may_end.set()


async def test_only_what_was_committed_by_its_sender_comes(side: KafkaSide) -> None:
    producer = Producer(
        {"bootstrap.servers": side.server.address, "transactional.id": side.topic, "log_level": 0}
    )
    producer.init_transactions(20)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(side.topic, b"%d" % number, partition=0)
        producer.flush(20)
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    async with opened(side) as source:
        found = await fetch_count(source, 3)
        assert bodies(found) == [b"0", b"2", b"4"]
        await ack(source, found)
        assert await source.fetch(10, 0.5) == []


async def test_a_client_that_has_ended_itself_is_made_anew(side: KafkaSide) -> None:
    await side.send(numbered(3))
    async with opened(side) as source:
        first = await fetch_count(source, 3)
        member(source)._failure = SourceUnavailable("fatal")
        again = await fetch_count(source, 3)
        assert by_place(again) == by_place(first)
        await ack(source, first)  # of the member before
        await ack(source, again)
        assert await source.fetch(10, 0.5) == []


async def test_a_member_that_a_fault_has_ended_is_told_of_and_made_anew(
    side: KafkaSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    await side.send(numbered(3))
    async with opened(side) as source:
        first = await fetch_count(source, 3)

        def fail() -> None:
            raise ValueError("sasl.password=hunter2")

        monkeypatch.setattr(member(source), "_step", fail)
        async with asyncio.timeout(BOUND_S):
            with pytest.raises(SourceUnavailable) as told:  # at once, and not when the time is over
                await source.fetch(10, 10 * BOUND_S)
        assert "its reader ended by ValueError at test_kafka.py" in str(told.value)
        assert "hunter2" not in str(told.value)
        again = await fetch_count(source, 3)
        assert by_place(again) == by_place(first)
        await ack(source, again)


async def test_the_right_login_gets_in(kafka_server: KafkaServer) -> None:
    side = KafkaSide(kafka_server)
    side.make(1)
    await side.send(numbered(2))
    right = sasl_login(kafka_server.ports["SASL"])
    wrong = sasl_login(kafka_server.ports["SASL"], "wrong-one")
    away = sasl_login(free_port())
    # The others after a rotation in the wallet alone.
    for values in ([right], [wrong, right], [away, right]):
        source = await open_source(side.spec, opened_credential(*values), name="t")
        found = await fetch_count(source, 2)
        assert bodies(found) == [b"0", b"1"]
        await source.close()


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("plugin.library.paths", "/tmp/hunter2.so", "loads a library"),
        ("sasl.kerberos.kinit.cmd", "hunter2", "runs a program"),
        ("ssl.engine.location", "hunter2", "loads a library"),
        ("test.mock.num.brokers", 3, "makes a cluster that is none"),
        ("group.instance.id", "hunter2", "keeps the partitions"),
        ("group.id", "hunter2", "is decided by the source"),
        ("enable.auto.commit", True, "is decided by the source"),
        ("enable.auto.offset.store", True, "is decided by the source"),
        ("isolation.level", "read_uncommitted", "is decided by the source"),
        ("auto.offset.reset", "latest", "is decided by the source"),
        ("debug", "all", "is not a setting that a credential may have"),
        ("error_cb", "hunter2", "is not a setting that a credential may have"),
        ("logger", "hunter2", "is not a setting that a credential may have"),
        ("default.topic.config", {"a": "hunter2"}, "is not a text, a number, true or false"),
        ("no.such.setting", "hunter2", "no.such.setting is not a setting"),
        ("security.protocol", "hunter2", "security.protocol is not a setting, or not one"),
        ("bootstrap.servers", "", "is not a text"),
    ],
)
async def test_settings_that_no_credential_may_have(
    side: KafkaSide, setting: str, value: Any, said: str
) -> None:
    with pytest.raises(SourceRefused) as refusal:
        await side.open({**side.credential, setting: value})
    assert said in str(refusal.value)
    assert "hunter2" not in str(refusal.value)
    assert PASSWORD not in str(refusal.value)


@pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not here: `make test-programs` installs it"
)
async def test_what_kcat_sends(side: KafkaSide) -> None:
    command = ["kcat", "-P", "-b", side.server.address, "-t", side.topic, "-K", ":"]
    command += ["-H", "X=a", "-H", "X=b"]
    sent = b"k:one\nk:two\n"
    await asyncio.to_thread(subprocess.run, command, input=sent, check=True, timeout=BOUND_S)
    async with opened(side) as source:
        found = await fetch_count(source, 2)
        assert bodies(found) == [b"one", b"two"]
        assert found[0].message.headers == (("X", b"a"), ("X", b"b"))
