"""What a real server delivers, read whole by the client that is installed."""

import uuid

import nats
import pytest

from tape.brokers.nats_connection import NatsConnection
from tape.brokers.nats_headers import header_pairs
from tests.servers.nats import NatsServer
from tests.servers.nats_raw import publish_raw


@pytest.mark.parametrize("ours", [True, False])
async def test_headers_come_whole(nats_server: NatsServer, ours: bool) -> None:
    stream = f"S{uuid.uuid4().hex[:8]}"
    connection = await NatsConnection.open([nats_server.address], {}, "nats")
    client = connection.client if ours else await nats.connect(nats_server.address)
    try:
        jetstream = client.jetstream()
        await jetstream.add_stream(name=stream, subjects=[stream])
        headers = b"X-Route: a\r\nX-Route: b\r\nx-route: c\r\nOdd: \xfe\r\n"
        publish_raw(nats_server.address, stream, headers, b"body")
        pulling = await jetstream.pull_subscribe("", stream=stream, durable="d")
        (message,) = await pulling.fetch(1)
        last = {"X-Route": "b", "x-route": "c", "Odd": "\ufffd"}
        assert message.headers == last
        pairs = header_pairs(message)
        if ours:
            assert pairs == (
                ("X-Route", b"a"), ("X-Route", b"b"), ("x-route", b"c"), ("Odd", b"\xfe"),
            )  # fmt: skip
        else:  # what the library leaves, which is why ours is there
            assert dict(pairs) == {name: text.encode() for name, text in last.items()}
    finally:
        await client.close()
        await connection.close()
