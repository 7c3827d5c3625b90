"""Durable consumers: everything at least once, across failures of handlers and of NATS."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerInfo
from nats.js.client import JetStreamContext

from tape.errors import InvalidArgument
from tape.programs.consumers import Consumer, Handler, Message, consume
from tests.integration.bus.relays import BOUND_S, CONSUMERS
from tests.servers.nats import NatsServer
from tests.servers.nats_raw import publish_blocks


@pytest.fixture
async def stream(nats_url: str, prefix: str) -> AsyncIterator[JetStreamContext]:
    client = Client()
    await client.connect(nats_url)
    await client.jetstream().add_stream(name=prefix, subjects=[f"{prefix}.>"])
    yield client.jetstream()
    await client.close()


async def send(stream: JetStreamContext, subject: str, *payloads: int) -> None:
    for payload in payloads:
        await stream.publish(
            subject,
            str(payload).encode(),
            headers={"Nats-Msg-Id": f"id-{payload}", "ce-tapeseq": str(1000 + payload)},
        )


NewConsumer = Callable[..., Consumer]


@pytest.fixture
def new(nats_url: str, prefix: str) -> NewConsumer:
    def make(durable: str = "desk-a", **options: Any) -> Consumer:
        options = {"subject": f"{prefix}.>", "settings": CONSUMERS, **options}
        return Consumer(nats_url, stream=prefix, durable=durable, **options)

    return make


async def handle_until(
    consumer: Consumer, handler: Handler, enough: Callable[[], bool], **options: Any
) -> None:
    """Consume until it is enough after a message was settled."""
    stop = asyncio.Event()
    task = asyncio.create_task(consume(consumer, handler, stop=stop, **options))
    async with asyncio.timeout(BOUND_S):
        while not enough():
            await asyncio.sleep(0.01)
            if task.done():
                break
    stop.set()
    await task


async def until_consumer(
    stream: JetStreamContext, prefix: str, is_so: Callable[[ConsumerInfo], bool]
) -> None:
    """Wait until it is so: the server delivers behind a publish, and is not asked for an answer to
    an acknowledgement."""
    async with asyncio.timeout(BOUND_S):
        while not is_so(  # noqa: ASYNC110 - only asking tells
            await stream.consumer_info(prefix, "desk-a")
        ):
            await asyncio.sleep(0.01)


async def test_all_that_is_kept_first_and_then_on_from_there(
    stream: JetStreamContext, new: NewConsumer, prefix: str
) -> None:
    await send(stream, f"{prefix}.a", *range(150))
    got: list[Message] = []

    async def handle(message: Message) -> None:
        got.append(message)

    await handle_until(new(), handle, lambda: len(got) == 150)
    assert [message.payload for message in got] == list(range(150))
    first = got[0]
    assert (first.subject, first.message_id, first.global_seq) == (f"{prefix}.a", "id-0", 1000)
    assert (first.deliveries, first.stream_seq, first.trace) == (1, 1, "")
    await send(stream, f"{prefix}.a", 150, 151)
    del got[:]
    await handle_until(new(), handle, lambda: len(got) == 2)
    assert [message.payload for message in got] == [150, 151]
    await until_consumer(stream, prefix, lambda info: info.num_ack_pending == info.num_pending == 0)
    info = await stream.consumer_info(prefix, "desk-a")
    assert info.config.ack_wait == 30
    assert info.config.max_deliver == -1


async def test_what_is_on_its_way_to_a_consumer_that_closes_is_given_back(
    stream: JetStreamContext, new: NewConsumer, prefix: str
) -> None:
    async with new() as closing:
        waiting = asyncio.ensure_future(anext(aiter(closing)))
        await until_consumer(stream, prefix, lambda info: bool(info.num_waiting))
        waiting.cancel()
        await asyncio.wait((waiting,))
        await send(stream, f"{prefix}.a", 1)
        await until_consumer(stream, prefix, lambda info: info.num_ack_pending == 1)
    got: list[Message] = []

    async def handle(message: Message) -> None:
        got.append(message)

    await handle_until(new(), handle, lambda: len(got) == 1)  # and not after ack_wait_s
    assert [message.payload for message in got] == [1]


async def test_a_message_that_nobody_can_read_holds_up_no_other(
    stream: JetStreamContext, new: NewConsumer, prefix: str, nats_url: str
) -> None:
    even, odd, none = f"{prefix}.a".encode(), prefix.encode() + b".\xff", b"NATS/1.0\r\n\r\n"
    sent = [(even, none, b"1"), (odd, none, b"2"), (odd, b"N", b"3"), (even, none, b"4")]
    await asyncio.to_thread(publish_blocks, nats_url, sent)
    got: list[Message] = []

    async def handle(message: Message) -> None:
        got.append(message)

    await handle_until(new(), handle, lambda: len(got) == 4)
    assert [message.payload for message in got] == [1, 2, 3, 4]
    assert [message.deliveries for message in got] == [1, 1, 1, 1]
    assert got[1].subject == f"{prefix}.\ufffd"


async def test_a_filter_and_a_handler_that_is_not_asynchronous(
    stream: JetStreamContext, new: NewConsumer, prefix: str
) -> None:
    await send(stream, f"{prefix}.a", 1, 2)
    await send(stream, f"{prefix}.b", 3)
    got: list[tuple[int, bool]] = []
    loop_thread = threading.get_ident()

    def handle(message: Message) -> None:
        got.append((message.payload, threading.get_ident() == loop_thread))

    await handle_until(new(subject=f"{prefix}.b"), handle, lambda: len(got) == 1)
    assert got == [(3, False)]


async def test_a_message_whose_handler_fails_comes_again_and_is_told_of(
    stream: JetStreamContext, new: NewConsumer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    await send(stream, f"{prefix}.a", 1, 2, 3)
    got: list[tuple[int, int]] = []

    async def handle(message: Message) -> None:
        got.append((message.payload, message.deliveries))
        if message.payload == 2 and message.deliveries < 4:
            raise RuntimeError("not today")

    with caplog.at_level(logging.ERROR, "tape.consumer"):
        await handle_until(new(), handle, lambda: (2, 4) in got)
    assert sorted(got) == [(1, 1), (2, 1), (2, 2), (2, 3), (2, 4), (3, 1)]
    assert len(caplog.records) == 3
    assert "message id-2 of" in caplog.text
    delays = [record.args[-1] for record in caplog.records if isinstance(record.args, tuple)]
    assert delays == [0.05, 0.1, 0.2]


async def test_in_order_nothing_passes_a_message_that_failed(
    stream: JetStreamContext, new: NewConsumer, prefix: str
) -> None:
    await send(stream, f"{prefix}.a", 1, 2, 3)
    got: list[tuple[int, int]] = []

    async def handle(message: Message) -> None:
        got.append((message.payload, message.deliveries))
        if message.payload == 2 and message.deliveries < 3:
            raise RuntimeError("not today")

    await handle_until(new(in_order=True), handle, lambda: len(got) == 5, concurrency=4)
    assert got == [(1, 1), (2, 1), (2, 2), (2, 3), (3, 1)]


async def test_what_is_in_hand_is_not_delivered_again_however_long_it_takes(
    stream: JetStreamContext, new: NewConsumer, prefix: str
) -> None:
    """Another process with the same durable would get whatever is thought to be abandoned."""
    await send(stream, f"{prefix}.a", 1, 2, 3)
    settings = replace(CONSUMERS, ack_wait_s=3.0)
    async with new(settings=settings) as slow, new(settings=settings) as idle:
        in_hand, others = aiter(slow), aiter(idle)
        messages = [await anext(in_hand)]  # the other two wait for their turn
        waiting = asyncio.ensure_future(anext(others))
        done, _ = await asyncio.wait((waiting,), timeout=2 * settings.ack_wait_s)
        assert not done
        messages += [await anext(in_hand), await anext(in_hand)]
        assert [(m.payload, m.deliveries) for m in messages] == [(1, 1), (2, 1), (3, 1)]
        for message in messages:
            assert await message.ack()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await in_hand.aclose()
        await others.aclose()


async def test_one_at_a_time_unless_more_are_wanted(
    stream: JetStreamContext, new: NewConsumer, prefix: str
) -> None:
    await send(stream, f"{prefix}.a", *range(6))
    for concurrency in (1, 3):
        busy, most, done = 0, 0, 0
        together = asyncio.Barrier(concurrency)

        async def handle(_message: Message) -> None:
            nonlocal busy, most, done
            busy += 1
            most = max(most, busy)
            await together.wait()  # noqa: B023 - of this turn
            await asyncio.sleep(0.02)  # in which another one would begin
            busy -= 1
            done += 1

        await handle_until(
            new(f"desk-{concurrency}"), handle, lambda: done == 6, concurrency=concurrency  # noqa: B023
        )  # fmt: skip
        assert most == concurrency


async def test_what_was_fetched_and_not_handled_is_given_back_at_once(
    stream: JetStreamContext, new: NewConsumer, prefix: str
) -> None:
    await send(stream, f"{prefix}.a", 1, 2, 3)
    async with asyncio.timeout(BOUND_S):
        async with new() as consumer:
            messages = aiter(consumer)
            await (await anext(messages)).ack()
            await messages.aclose()
        async with new() as consumer:
            messages = aiter(consumer)
            found = [await anext(messages), await anext(messages)]
            assert sorted(message.payload for message in found) == [2, 3]
            await messages.aclose()


async def test_what_was_not_acknowledged_comes_again(
    stream: JetStreamContext, new: NewConsumer, prefix: str
) -> None:
    await send(stream, f"{prefix}.a", 1, 2)
    settings = replace(CONSUMERS, ack_wait_s=3.0)
    async with asyncio.timeout(BOUND_S):
        async with new(settings=settings) as consumer:
            messages = aiter(consumer)
            first, second = await anext(messages), await anext(messages)
            assert await first.ack()
            assert not await first.ack()  # once is enough
            assert (first.is_settled, second.is_settled) == (True, False)
            await messages.aclose()
        async with new(settings=settings) as consumer:
            messages = aiter(consumer)
            again = await anext(messages)
            assert (again.payload, again.deliveries) == (2, 2)
            assert await again.nak()
            again = await anext(messages)
            assert (again.payload, again.deliveries) == (2, 3)
            assert await again.in_progress()
            await again.ack()
            await messages.aclose()


async def test_nats_is_killed_and_comes_back(prefix: str) -> None:
    got: list[int] = []

    async def handle(message: Message) -> None:
        got.append(message.payload)

    with NatsServer() as server:
        url = f"nats://{server.address}"

        async def produce(*payloads: int) -> None:
            client = Client()
            await client.connect(url)
            await client.jetstream().add_stream(name=prefix, subjects=[f"{prefix}.>"])
            await send(client.jetstream(), f"{prefix}.a", *payloads)
            await client.close()

        await produce(1, 2)
        consumer = Consumer(
            url, stream=prefix, durable="d", subject=f"{prefix}.a", settings=CONSUMERS
        )
        stop = asyncio.Event()
        task = asyncio.create_task(consume(consumer, handle, stop=stop))

        async def wait_for(*wanted: int) -> None:
            async with asyncio.timeout(BOUND_S):
                while not set(wanted) <= set(got):  # noqa: ASYNC110 - asked, not told
                    await asyncio.sleep(0.01)

        await wait_for(1, 2)
        for number in (3, 4):
            server.kill()
            await asyncio.sleep(0.1)
            server.start()
            await produce(number)
            await wait_for(number)
        stop.set()
        await task
        assert list(dict.fromkeys(got)) == [1, 2, 3, 4]


async def test_a_durable_that_is_otherwise_is_refused(
    stream: JetStreamContext, new: NewConsumer, prefix: str
) -> None:
    async with new(subject=f"{prefix}.a"):
        pass
    with pytest.raises(InvalidArgument, match=f"subject is {prefix}.a, wanted {prefix}.b"):
        async with new(subject=f"{prefix}.b"):
            pass
    with pytest.raises(InvalidArgument, match="ack_wait_s is 30, wanted 7"):
        async with new(subject=f"{prefix}.a", settings=replace(CONSUMERS, ack_wait_s=7.0)):
            pass
    info = await stream.consumer_info(prefix, "desk-a")
    assert info.config.filter_subject == f"{prefix}.a"


async def test_a_stream_that_is_not_there_yet_is_told_of_and_waited_for(
    nats_url: str, new: NewConsumer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[int] = []
    noted = asyncio.Event()

    async def handle(message: Message) -> None:
        got.append(message.payload)
        noted.set()

    client = Client()
    await client.connect(nats_url)
    stop = asyncio.Event()
    task = asyncio.create_task(consume(new(), handle, stop=stop))
    async with asyncio.timeout(BOUND_S):
        while f"there is no stream {prefix}" not in caplog.text:  # noqa: ASYNC110 - logs tell nobody
            await asyncio.sleep(0.01)
        await client.jetstream().add_stream(name=prefix, subjects=[f"{prefix}.>"])
        await send(client.jetstream(), f"{prefix}.a", 1)
        await noted.wait()
    stop.set()
    await task
    await client.close()
    assert got == [1]


@pytest.mark.parametrize("name", ["Desk", "desk_a", "desk-", "", "a.b", "desk a", "d" * 129])
def test_names_that_are_no_durables(name: str) -> None:
    with pytest.raises(InvalidArgument, match="The name identifies the cursor") as refusal:
        Consumer("nats://127.0.0.1:4222", stream="s", durable=name, subject="a.b")
    assert refusal.value.field == "durable"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"nats_url": "nats://me:secret@host:4222"}, "nats_url"),
        ({"nats_url": "http://host"}, "nats_url"),
        ({"subject": "a.B"}, "subject"),
        ({"subject": []}, "subject"),
        ({"stream": "a b"}, "stream"),
    ],
)
def test_what_no_consumer_can_be(options: dict[str, Any], field: str) -> None:
    given = {"nats_url": "nats://h:4222", "stream": "s", "durable": "d", "subject": "a", **options}
    with pytest.raises(InvalidArgument) as refusal:
        Consumer(given.pop("nats_url"), **given)
    assert refusal.value.field == field
    assert "secret" not in str(refusal.value)
