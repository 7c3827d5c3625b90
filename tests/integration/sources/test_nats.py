"""What is particular to NATS: streams that are made again, limits of a consumer, a server that
hangs."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
import pytest
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy

from tape.brokers.nats_connection import NatsConnection
from tape.errors import SourceRefused, SourceUnavailable
from tape.ports.source import Source
from tape.sources import nats_pull
from tape.sources.by_spec import open_source
from tape.sources.nats import JetStreamSource
from tape.sources.nats_reader import DurableReader
from tests.conformance.source import (
    BOUND_S,
    MIB,
    Sent,
    ack,
    bodies,
    by_place,
    fetch_count,
    fetch_some,
    fetch_until_away,
    numbered,
    opened,
)
from tests.integration.sources.credentials import opened as opened_credential
from tests.integration.sources.far_sides import NatsSide, backlog_becomes
from tests.servers.lossy_line import NATS, LossyLine
from tests.servers.nats import NatsServer
from tests.servers.nats_raw import publish_all_raw
from tests.servers.ports import free_port


@pytest.fixture
async def side(nats_server: NatsServer) -> NatsSide:
    made = NatsSide(nats_server)
    await made.make()
    return made


async def make_anew(side: NatsSide, count: int) -> None:
    """Another stream and durable of those names, with messages whose bodies are other ones."""
    async with side.client() as client:
        await client.jetstream().delete_stream(side.stream)
    await side.make()
    await side.send([Sent(b"new %d" % n) for n in range(count)])


async def test_a_message_says_where_it_was(side: NatsSide) -> None:
    await side.send([Sent(b"1", "k", (("Nats-Msg-Id", b"id-1"), ("X", b"y")))])
    async with opened(side) as source, side.client() as client:
        (found,) = await fetch_count(source, 1)
        info = await client.jetstream().stream_info(side.stream)
        assert info.created is not None
        created_ms = int(info.created.timestamp() * 1000)
        assert found.message.place == f"nats/{side.stream}@{created_ms}/1"
        assert found.message.message_id == "id-1"
        assert found.message.subject == found.message.key == f"{side.stream}.k"


class Counting:
    """Makes connections as the source does, and keeps them."""

    def __init__(self, reader: DurableReader) -> None:
        self._connect = reader._connect
        self.made: list[NatsConnection] = []
        reader._connect = self

    async def __call__(self) -> NatsConnection:
        self.made.append(await self._connect())
        return self.made[-1]


def reader_of(source: Source) -> DurableReader:
    assert isinstance(source, JetStreamSource)
    return source._reader


async def test_who_attaches_together_has_one_connection(side: NatsSide) -> None:
    await side.send(numbered(3))
    async with opened(side) as source:
        reader = reader_of(source)
        made = Counting(reader)
        await reader.detach()
        pulls = await asyncio.gather(*(reader.attach() for _ in range(3)))
        assert len(made.made) == 1
        assert len({id(pull) for pull in pulls}) == 1
        assert bodies(await fetch_count(source, 3)) == [b"0", b"1", b"2"]


async def test_whoever_asks_what_waits_makes_no_connection(side: NatsSide) -> None:
    await side.send(numbered(3))
    async with opened(side) as source:
        made = Counting(reader_of(source))
        connection = reader_of(source).connection
        assert connection is not None
        connection.lost.set()
        for ask in (source.backlog, source.passed):
            with pytest.raises(SourceUnavailable, match="there is no connection"):
                await ask()
        assert not made.made
        await fetch_count(source, 3)  # at once: nothing has failed
        assert await source.backlog() == 3
        assert len(made.made) == 1


@pytest.mark.parametrize("seen", [0, 3, 5])
@pytest.mark.parametrize("count", [3, 8])
async def test_a_stream_that_is_made_again_has_other_places(
    side: NatsSide, seen: int, count: int
) -> None:
    """Its numbers begin at 1: the new messages must not be taken for those of before."""
    await side.send(numbered(5))
    async with opened(side) as source:
        first = await fetch_count(source, seen) if seen else []
        await ack(source, first[:-1])
        await make_anew(side, count)
        again = await fetch_count(source, count)
        assert sorted(bodies(again)) == [b"new %d" % n for n in range(count)]
        assert not by_place(first).keys() & by_place(again).keys()
        await ack(source, first)  # of the messages of before: nothing of the new stream
        assert await source.backlog() == count
        await ack(source, again)
        await backlog_becomes(source, 0)


async def test_a_stream_that_is_made_again_while_another_reads(side: NatsSide) -> None:
    """The other reader takes the deliveries by which this one would see that all is new."""
    await side.send(numbered(4))
    async with opened(side) as source:
        first = await fetch_count(source, 4)
        await ack(source, first)
        await make_anew(side, 12)
        async with opened(side) as other:
            taken = await fetch_count(other, 6)
            found = await fetch_count(source, 6)
        assert sorted(bodies([*taken, *found])) == sorted(b"new %d" % n for n in range(12))
        places = by_place([*taken, *found])
        assert len(places) == 12
        assert not places.keys() & by_place(first).keys()


async def test_a_consumer_that_is_deleted_meanwhile_is_refused(side: NatsSide) -> None:
    async with opened(side) as source, side.client() as client:
        fetching = asyncio.create_task(source.fetch(10, BOUND_S))
        await waiting_for_messages(side)
        await client.jetstream().delete_consumer(side.stream, "tape")
        with pytest.raises(SourceRefused, match="has no consumer tape"):
            await fetching
        with pytest.raises(SourceRefused, match="has no consumer tape"):
            await source.fetch(10, 0.1)
        durable = ConsumerConfig(durable_name="tape", ack_policy=AckPolicy.EXPLICIT)
        await client.jetstream().add_consumer(side.stream, durable)
        await side.send(numbered(1))
        assert bodies(await fetch_count(source, 1)) == [b"0"]


async def waiting_for_messages(side: NatsSide) -> None:
    async with side.client() as client, asyncio.timeout(BOUND_S):
        while not (  # noqa: ASYNC110 - only asking tells
            await client.jetstream().consumer_info(side.stream, "tape")
        ).num_waiting:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_deliver": 3}, "max_deliver 3: a message that was delivered so often"),
        ({"headers_only": True}, "the bodies of messages are empty"),
    ],
)
async def test_a_consumer_that_may_lose_messages_is_told_of(
    nats_server: NatsServer, given: dict[str, Any], said: str
) -> None:
    side = NatsSide(nats_server)
    await side.make(**given)
    async with opened(side) as source:
        (warning,) = source.warnings()
        assert said in warning


async def test_no_more_than_the_consumer_hands_out(nats_server: NatsServer) -> None:
    """At max_ack_pending the server says nothing at all."""
    side = NatsSide(nats_server)
    await side.make(max_ack_pending=5)
    await side.send(numbered(12))
    async with opened(side) as source:
        found = await fetch_count(source, 5)
        assert await source.fetch(100, 0.3) == []
        fetching = asyncio.create_task(source.fetch(100, BOUND_S))
        await ack(source, found)
        found += await fetching
        async with asyncio.timeout(BOUND_S):
            while len(found) < 12:
                await ack(source, found)
                found += await source.fetch(100, 1)
        assert bodies(found) == [b"%d" % n for n in range(12)]


@pytest.mark.parametrize("limit", [{"max_batch": 2}, {"max_expires": 10**8}, {"max_bytes": 1000}])
async def test_limits_of_one_pull_are_kept_to(
    nats_server: NatsServer, limit: dict[str, int]
) -> None:
    """The client's library does not know them, so the server is asked as its own tool asks it."""
    side = NatsSide(nats_server)
    await side.make()
    async with side.client() as client:
        config = {"durable_name": "tight", "ack_policy": "explicit", **limit}
        answer = await client.request(
            f"$JS.API.CONSUMER.CREATE.{side.stream}.tight",
            orjson.dumps({"stream_name": side.stream, "config": config}),
            timeout=5,
        )
        assert b"error" not in answer.data, answer.data
    await side.send(numbered(7))
    source = await side.open(consumer="tight")
    found = await fetch_count(source, 7, most=5)
    assert bodies(found) == [b"%d" % n for n in range(7)]
    await source.close()


async def test_a_message_that_is_larger_than_a_pull(
    side: NatsSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_pull, "PULL_BYTES", 10_000)
    sent = [
        Sent(b"a"),
        Sent(b"x" * MIB),
        Sent(b"b"),
        Sent(b"y" * MIB),
        Sent(b"z" * MIB),
        Sent(b"c"),
    ]
    await side.send(sent)
    async with opened(side) as source:
        found = await fetch_count(source, 6)
        assert bodies(found) == [message.body for message in sent]
        await ack(source, found)
        await backlog_becomes(source, 0)


async def test_a_server_that_hangs_is_away(own_nats_server: NatsServer) -> None:
    side = NatsSide(own_nats_server)
    await side.make()
    await side.send(numbered(30))
    async with opened(side) as source:
        found = await fetch_count(source, 2, most=2)
        own_nats_server.pause()
        try:
            await ack(source, found[:1])
            found += await fetch_until_away(source)
        finally:
            own_nats_server.resume()
        places = by_place(found)
        async with asyncio.timeout(BOUND_S):
            while len(places) < 30:
                places |= by_place(await fetch_some(source))


async def test_what_could_not_be_acknowledged_is_acknowledged_later(
    nats_server: NatsServer,
) -> None:
    """An acknowledgement is of a message and not of a connection."""
    side = NatsSide(nats_server)
    await side.make(ack_wait=60)
    await side.send(numbered(6))
    port = free_port()
    async with LossyLine(nats_server.port, NATS, port):
        credential = opened_credential({"servers": f"127.0.0.1:{port}"})
        source = await open_source(side.spec, credential, name="test")
        found = await fetch_count(source, 6)
    await ack(source, found[:4])
    async with LossyLine(nats_server.port, NATS, port):
        await until(source, lambda: reconnected(source))
        await backlog_becomes(source, 2)
        await ack(source, found[4:])
        await backlog_becomes(source, 0)
        await source.close()


async def reconnected(source: Source) -> bool:
    try:
        await source.fetch(1, 0.1)
    except SourceUnavailable:
        return False
    return True


async def until(_source: Source, holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not await holds():
            pass


async def test_what_is_in_hand_is_not_handed_out_again(own_nats_server: NatsServer) -> None:
    """It is delivered again, as nobody could report its progress; the one in hand still counts."""
    side = NatsSide(own_nats_server)
    await side.make(ack_wait=0.3)
    await side.send(numbered(3))
    async with opened(side) as source:
        found = await fetch_count(source, 3)
        own_nats_server.kill()
        await asyncio.sleep(0.6)  # longer than the consumer waits
        own_nats_server.start()
        await until(source, lambda: reconnected(source))
        assert await source.fetch(10, 1.0) == []
        await ack(source, found)
        await backlog_becomes(source, 0)


async def test_trickles_are_not_waited_for(side: NatsSide) -> None:
    """A batch that is not full is handed out at once, and nothing that comes later is lost."""
    async with opened(side) as source:
        for number in range(5):
            fetching = asyncio.create_task(source.fetch(100, 10 * BOUND_S))
            await waiting_for_messages(side)
            await side.send([Sent(b"%d" % number)])
            async with asyncio.timeout(BOUND_S):
                assert bodies(await fetching) == [b"%d" % number]


async def test_what_is_given_back_at_the_end_comes_again_in_its_order(side: NatsSide) -> None:
    """What nobody has taken yet is behind what is in hand."""
    await side.send(numbered(20))
    reading: Any
    async with opened(side) as reading:
        assert bodies(await fetch_count(reading, 5)) == [b"%d" % n for n in range(5)]
        pull = reading._reader._pull
        await pull._ask(15, BOUND_S)  # as a fetch does that is cancelled then
        async with asyncio.timeout(BOUND_S):
            await pull._over.wait()
        assert len(pull.unseen()) == 15
    async with opened(side) as source:
        found = await fetch_count(source, 20)
        assert bodies(found) == [b"%d" % n for n in range(20)]
        await ack(source, found)


async def test_what_is_given_back_comes_before_what_is_behind_it(nats_server: NatsServer) -> None:
    """The server works at acknowledgements behind what it answers, and has many of them."""
    side = NatsSide(nats_server)
    await side.make(RetentionPolicy.WORK_QUEUE)
    await send_at_once(side, numbered(4_000))
    ends = list(range(900, 4_000, 900))
    async with contextlib.AsyncExitStack() as readers:
        reading = [await readers.enter_async_context(opened(side)) for _ in ends]
        for end, source in zip(ends, reading, strict=True):
            found = await fetch_count(source, 1_000)
            assert bodies(found) == [b"%d" % n for n in range(end - 900, end + 100)]
            await ack(source, found[:900])
            await source.close()


async def test_what_is_on_its_way_at_the_end_comes_again_in_its_order(
    nats_server: NatsServer,
) -> None:
    """The end comes while the server, busy with acknowledgements, is sending."""
    side = NatsSide(nats_server)
    await side.make(RetentionPolicy.WORK_QUEUE)
    await send_at_once(side, numbered(5_600))
    ends = list(range(800, 5_600, 800))
    async with contextlib.AsyncExitStack() as readers:
        reading: list[Any] = [await readers.enter_async_context(opened(side)) for _ in ends]
        for end, source in zip(ends, reading, strict=True):
            found = await fetch_count(source, 800)
            assert bodies(found) == [b"%d" % n for n in range(end - 800, end)]
            await ack(source, found)
            pull = source._reader._pull
            await pull._ask(800, BOUND_S)  # as a fetch does that is cancelled then
            async with asyncio.timeout(BOUND_S):
                while not pull.unseen():
                    pull._stirred.clear()
                    await pull._stirred.wait()
            await source.close()


async def send_at_once(side: NatsSide, sent: Sequence[Sent]) -> None:
    messages = [(b"", message.body) for message in sent]
    subject = f"{side.stream}.any"
    await asyncio.to_thread(publish_all_raw, side.server.address, subject, messages)
