"""A flush of NATS: when it returns, the server has read what was sent before.

An acknowledgement counts as said after it. nats-py writes its question at once and what was sent
before it a moment later, so that the answer says nothing.
"""

import asyncio

import pytest

pytest.importorskip("nats", reason="needs the extra nats")

from tape.brokers.nats_connection import NatsConnection
from tests.servers.nats import NatsServer

TIMES = 300
BOUND_S = 60.0


async def test_what_was_sent_before_it_has_been_read(nats_server: NatsServer) -> None:
    """Whoever has subscribed gets what another connection publishes after the flush."""
    connection = await NatsConnection.open([nats_server.address], {}, "nats")
    reader, writer = await asyncio.open_connection("127.0.0.1", nats_server.port)
    try:
        writer.write(b'CONNECT {"verbose":false}\r\n')
        inboxes = []
        for number in range(TIMES):
            inboxes.append(await connection.client.subscribe(f"flushed.{number}"))
            await connection.client.flush()
            writer.write(f"PUB flushed.{number} 1\r\n1\r\n".encode())
        writer.write(b"PING\r\n")
        async with asyncio.timeout(BOUND_S):
            while await reader.readline() != b"PONG\r\n":
                pass
        await connection.client.flush()  # what was published has come by then
        assert [inbox.pending_msgs for inbox in inboxes] == [1] * TIMES
    finally:
        writer.close()
        await connection.close()
