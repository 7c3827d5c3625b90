"""The server's max_payload: what is larger than that, headers counted, is held alone and shown."""

import asyncio

import pytest

from tape.brokers.nats import NatsBroker, header_bytes
from tape.brokers.targets import NatsTarget
from tape.bus import Bus
from tape.errors import BrokerRefused
from tape.model.outbox import FailingRow
from tape.wire.cloudevents import cloud_event, text_headers
from tests.conformance.broker import outgoing
from tests.integration.bus.conftest import Publish
from tests.integration.bus.relays import BOUND_S, Relays, quick, read_stream, until
from tests.servers.nats import NatsServer

MAX_PAYLOAD = 1 << 20  # NATS's own default


async def one_failing(bus: Bus) -> FailingRow:
    async def failing() -> list[FailingRow]:
        return (await bus.outbox.outbox_status()).failing

    (row,) = await until(failing)
    return row


async def test_a_message_over_max_payload_holds_up_its_subject_and_no_other(
    bus: Bus, publish: Publish, relays: Relays, nats_url: str, prefix: str
) -> None:
    large = "x" * (MAX_PAYLOAD - 200)  # fits, but for the headers
    publish([(f"{prefix}.a", 1), (f"{prefix}.a", large), (f"{prefix}.a", 3), (f"{prefix}.b", 4)])
    relays.start()
    stored = await read_stream(nats_url, prefix, 2)
    assert {message.payload for message in stored} == {"1", "4"}
    row = await one_failing(bus)
    assert row.subject == f"{prefix}.a"
    assert (
        "headers, and the server's max_payload is 1048576: raise max_payload, or" in row.last_error
    )
    publish([(f"{prefix}.b", 5)])
    assert (await read_stream(nats_url, prefix, 3))[2].payload == "5"
    await bus.outbox.skip_outbox_row(row.id, reason="the file is on the share", by="desk")
    stored = await read_stream(nats_url, prefix, 4)
    assert [m.payload for m in stored if m.subject.endswith(".a")] == ["1", "3"]


async def test_a_limit_that_is_changed_is_known_at_once_or_on_the_next_connection(
    bus: Bus, publish: Publish, store_url: str, prefix: str
) -> None:
    with NatsServer() as server:
        relays = Relays(store_url, quick(f"nats://{server.address}", prefix))
        publish([(f"{prefix}.a", 0)])
        relays.start()
        await read_stream(f"nats://{server.address}", prefix, 1)
        server.configure("max_payload: 3000\n")  # the relay's connection does not hear of it
        publish([(f"{prefix}.a", "x" * 4_000), (f"{prefix}.b", 1)])
        stored = await read_stream(f"nats://{server.address}", prefix, 2)
        assert stored[1].payload == "1"
        row = await one_failing(bus)
        assert "max_payload is 3000" in row.last_error
        server.configure("max_payload: 5000\n")
        stored = await read_stream(f"nats://{server.address}", prefix, 3)
        assert stored[2].payload == f'"{"x" * 4_000}"'
        await relays.stop()


ACCOUNT = """
accounts {
  A { jetstream: enabled, users: [{user: a, password: b}], limits: {max_payload: 3000} }
}
"""


async def test_a_limit_that_nobody_tells_holds_up_one_subject_too(
    bus: Bus, publish: Publish, store_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closes the connection, as if it were away, whenever it gets the message."""
    monkeypatch.setenv("TAPE_NATS_USER", "a")
    monkeypatch.setenv("TAPE_NATS_PASSWORD", "b")
    with NatsServer(ACCOUNT) as server:
        url = f"nats://{server.address}"
        relays = Relays(store_url, quick(url, prefix))
        publish([(f"{prefix}.a", "x" * 4_000), (f"{prefix}.a", 1)])
        publish([(f"{prefix}.b", n) for n in range(5)])
        relays.start()
        row = await one_failing(bus)
        assert "the connection was lost again as soon as this message was sent" in row.last_error
        publish([(f"{prefix}.b", 5)])

        async def only_the_held_wait() -> bool:
            return (await bus.outbox.outbox_status()).waiting == 2

        await until(only_the_held_wait)
        await bus.outbox.skip_outbox_row(row.id, reason="too large", by="desk")
        login = f"nats://a:b@{server.address}"
        stored = await read_stream(login, prefix, 7)
        assert [m.payload for m in stored if m.subject.endswith(".a")] == ["1"]
        await relays.stop()


@pytest.mark.parametrize("attempt", [1, 2])
async def test_at_the_limit_and_one_byte_over(attempt: int) -> None:
    """As the server counts: one byte more than we let through, and it closes the connection."""
    with NatsServer("max_payload: 2000\n") as server:
        broker = NatsBroker(NatsTarget((server.address,), "tape.limit"))
        await broker.connect()
        connection = broker._connection
        assert connection is not None
        await connection.jetstream.add_stream(name="limit", subjects=["tape.limit"])
        small = outgoing(1, payload="1")
        headers = {**text_headers(cloud_event(small)), "Nats-Msg-Id": small.message_id}
        room = 2_000 - header_bytes(headers)
        exact = outgoing(1, payload=f'"{"x" * (room - 2)}"', attempt=attempt)
        over = outgoing(2, payload=f'"{"x" * (room - 1)}"', attempt=attempt)
        taken, refused = await broker.publish([exact, over._replace(ordering_key="j")])
        assert taken is None
        assert isinstance(refused, BrokerRefused)
        assert f"has 2001 bytes, {2_000 - room} of them headers" in str(refused)
        assert not connection.lost.is_set()
        server.configure("max_payload: 4000\n")
        async with asyncio.timeout(BOUND_S):
            while (await broker.publish([over]))[0] is not None:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.02)
        await broker.close()
