"""Messages of NATS that its client's library cannot read: each comes like any other, and holds up
nothing that is fetched with it."""

import asyncio

import pytest

from tape.brokers.nats_connection import NatsConnection
from tests.conformance.source import BOUND_S, NOTHING_S, ack, bodies, fetch_count, opened
from tests.integration.sources.far_sides import NatsSide, backlog_becomes
from tests.servers.nats import NatsServer
from tests.servers.nats_raw import publish_blocks

NO_HEADERS = b"NATS/1.0\r\n\r\n"
ODD_SUBJECTS = [
    (b"odd\xff\xc3", "odd\ufffd\ufffd"),
    (b"odd\x0b1", "odd\x0b1"),
    (b"odd\x0c1", "odd\x0c1"),
    (b"odd\x00\x1c\xc2\x85", "odd\x00\x1c\x85"),
]
ODD_BLOCKS = [b"N", b"NATS/1.0", b"NATS/1.0 ", b"NATS/1.0 \xff\xff\xff \xff\r\n\r\n", b"\xff" * 30]


@pytest.fixture
async def side(nats_server: NatsServer) -> NatsSide:
    """Whose durable waits so long for a message that is not acknowledged that no test sees it come
    again."""
    made = NatsSide(nats_server)
    await made.make(ack_wait=10 * BOUND_S)
    return made


async def send_between(side: NatsSide, subject: bytes, block: bytes) -> None:
    """An odd message between two that are not."""
    within = side.stream.encode() + b"."
    sent = [
        (within + b"even", NO_HEADERS, b"1"),
        (within + subject, block, b"odd"),
        (within + b"even", NO_HEADERS, b"2"),
    ]
    await asyncio.to_thread(publish_blocks, side.server.address, sent)


@pytest.mark.parametrize(("subject", "shown"), ODD_SUBJECTS)
async def test_any_subject_comes(side: NatsSide, subject: bytes, shown: str) -> None:
    await send_between(side, subject, b"NATS/1.0\r\nX: y\r\n\r\n")
    async with opened(side) as source:
        found = await fetch_count(source, 3)
        assert bodies(found) == [b"1", b"odd", b"2"]
        odd = found[1].message
        assert odd.subject == odd.key == f"{side.stream}.{shown}"
        assert odd.headers == (("X", b"y"),)
        assert [each.message.deliveries for each in found] == [1, 1, 1]
        await ack(source, found)
        assert await source.fetch(10, NOTHING_S) == []
        await backlog_becomes(source, 0)


@pytest.mark.parametrize("block", ODD_BLOCKS)
async def test_a_block_that_cannot_be_read_is_no_headers(side: NatsSide, block: bytes) -> None:
    await send_between(side, b"odd", block)
    async with opened(side) as source:
        found = await fetch_count(source, 3)
        assert bodies(found) == [b"1", b"odd", b"2"]
        assert found[1].message.headers == ()
        assert [each.message.deliveries for each in found] == [1, 1, 1]
        await ack(source, found)
        assert await source.fetch(10, NOTHING_S) == []
        await backlog_becomes(source, 0)


async def test_what_is_asked_and_answered_may_have_any_subject(nats_server: NatsServer) -> None:
    """Also the subject that an answer is wanted at."""
    connection = await NatsConnection.open([nats_server.address], {}, "nats")
    try:
        heard = await connection.client.subscribe("heard.>")
        await connection.client.flush()
        host, port = nats_server.address.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"CONNECT {}\r\nPUB heard.\xff answer.\xfe 1\r\n1\r\n")
        await writer.drain()
        message = await heard.next_msg(BOUND_S)
        assert (message.subject, message.reply) == ("heard.\ufffd", "answer.\ufffd")
        writer.close()
    finally:
        await connection.close()
