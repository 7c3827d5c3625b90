"""The relay from a program's transaction to the journal and to a real JetStream."""

import asyncio
import contextlib
import json
import sqlite3

import psycopg
import pytest
from nats.aio.client import Client

from tape.bus import Bus
from tape.stores.by_url import sqlite_path
from tape.telemetry import metrics
from tests.integration.bus.conftest import Publish
from tests.integration.bus.relays import Relays, entries, quick, read_stream, until
from tests.servers.nats import NatsServer


async def nothing_waits(bus: Bus) -> bool:
    return (await bus.outbox.outbox_status()).waiting == 0


async def test_what_was_committed_is_on_the_journal_and_in_the_stream(
    bus: Bus, publish: Publish, relays: Relays, nats_url: str, prefix: str
) -> None:
    ids = [publish([(f"{prefix}.a", {"n": n}), (f"{prefix}.b", n)]) for n in range(25)]
    relays.start()
    stored = await read_stream(nats_url, prefix, 50)
    await until(lambda: nothing_waits(bus))
    events = await entries(bus, "/tape/event/recorded/**")
    assert {message.message_id for message in stored} == {one for pair in ids for one in pair}
    assert len(events) == 50
    for number, token in enumerate("ab"):
        subject = f"{prefix}.{token}"
        wanted = [pair[number] for pair in ids]
        assert [m.message_id for m in stored if m.subject == subject] == wanted
        assert [entry.event_id for entry in events if entry.event_type == subject] == wanted
    first = stored[0]
    (event,) = [entry for entry in events if entry.event_id == first.message_id]
    assert first.headers["ce-tapeseq"] == str(event.global_seq)
    assert first.headers["ce-type"] == event.event_type == first.subject
    assert json.loads(first.payload) == event.payload
    assert (await bus.outbox.outbox_status()).failing == []


async def test_new_rows_are_heard_of(
    publish: Publish, relays: Relays, nats_url: str, prefix: str
) -> None:
    relays.start(idle_poll_s=60.0, active_poll_s=60.0)
    publish([(f"{prefix}.a", 1)])
    await read_stream(nats_url, prefix, 1)
    publish([(f"{prefix}.a", 2)])
    stored = await read_stream(nats_url, prefix, 2)
    assert [message.payload for message in stored] == ["1", "2"]


async def small_messages_only(nats_url: str, prefix: str) -> None:
    client = Client()
    await client.connect(nats_url)
    await client.jetstream().add_stream(
        name=prefix, subjects=[f"{prefix}.>"], max_msg_size=1_000, max_bytes=1 << 24,
        max_age=604_800, duplicate_window=120,
    )  # fmt: skip
    await client.close()


async def test_a_refused_message_holds_up_its_subject_and_no_other(
    bus: Bus, publish: Publish, relays: Relays, nats_url: str, prefix: str
) -> None:
    await small_messages_only(nats_url, prefix)
    _, refused, _, _ = publish(
        [
            (f"{prefix}.a", 1),
            (f"{prefix}.a", "x" * 2_000),
            (f"{prefix}.a", 3),
            (f"{prefix}.b", 4),
        ]
    )
    relays.start()
    stored = await read_stream(nats_url, prefix, 2)
    assert {message.payload for message in stored} == {"1", "4"}

    async def tried_often() -> bool:
        failing = (await bus.outbox.outbox_status()).failing
        return bool(failing) and failing[0].attempts > 2

    await until(tried_often)
    assert metrics.OUTBOX_HELD.value == 1
    publish([(f"{prefix}.b", 5), (f"{prefix}.a", 6)])
    stored = await read_stream(nats_url, prefix, 3)
    assert stored[2].payload == "5"
    (row,) = (await bus.outbox.outbox_status()).failing
    assert row.event_id == refused
    assert "message size exceeds maximum allowed" in row.last_error
    await bus.outbox.skip_outbox_row(row.id, reason="the consumer has it already", by="desk")
    stored = await read_stream(nats_url, prefix, 5)
    assert [m.payload for m in stored if m.subject.endswith(".a")] == ["1", "3", "6"]
    await until(lambda: nothing_waits(bus))
    (told,) = await entries(bus, "/tape/outbox/**")
    assert told.payload["reason"] == "the consumer has it already"
    assert told.payload["event_id"] == refused

    async def let_go() -> bool:
        return metrics.OUTBOX_HELD.value == 0

    await until(let_go)


def put_by_hand(store_url: str, subject: str, payload: str) -> None:
    """Past every check."""
    row = ("01JZ0000000000000000000000", subject, payload)
    columns = "(event_id, subject, payload_json)"
    if store_url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(sqlite_path(store_url))) as file, file:
            file.execute(f"INSERT INTO bus_outbox {columns} VALUES (?, ?, ?)", row)
        return
    with psycopg.connect(store_url) as database:
        database.execute(f"INSERT INTO bus.outbox {columns} VALUES (%s, %s, %s)".encode(), row)


@pytest.mark.parametrize("payload", ["{", "\u00e9" * 2_000_000])
async def test_a_row_that_cannot_be_an_event_holds_up_its_subject_and_no_other(
    bus: Bus, publish: Publish, relays: Relays, store_url: str, nats_url: str, prefix: str,
    payload: str,
) -> None:  # fmt: skip
    put_by_hand(store_url, f"{prefix}.a", payload)
    publish([(f"{prefix}.a", 2), (f"{prefix}.b", 3)])
    relays.start()
    assert [m.payload for m in await read_stream(nats_url, prefix, 1)] == ["3"]

    async def failing() -> bool:
        return len((await bus.outbox.outbox_status()).failing) == 1

    await until(failing)
    (row,) = (await bus.outbox.outbox_status()).failing
    assert row.last_error.startswith("payload_json")
    await bus.outbox.skip_outbox_row(row.id, reason="a slip", by="desk")
    assert [m.payload for m in await read_stream(nats_url, prefix, 2)] == ["3", "2"]


async def test_a_subject_that_is_none_reaches_no_protocol(
    bus: Bus, publish: Publish, relays: Relays, store_url: str, nats_url: str, prefix: str
) -> None:
    put_by_hand(store_url, f"{prefix}.a\r\nPUB {prefix}.forged 2\r\nhi", "1")
    publish([(f"{prefix}.b", 3)])
    relays.start()
    await read_stream(nats_url, prefix, 1)

    async def failing() -> bool:
        return len((await bus.outbox.outbox_status()).failing) == 1

    await until(failing)
    (stored,) = await read_stream(nats_url, prefix, 1)
    assert stored.subject == f"{prefix}.b"


async def test_the_journal_does_not_wait_for_the_broker(
    bus: Bus, publish: Publish, store_url: str, prefix: str
) -> None:
    with NatsServer() as server:
        url = f"nats://{server.address}"
        server.kill()
        relays = Relays(store_url, quick(url, prefix))
        relays.start()
        ids = publish([(f"{prefix}.a", n) for n in range(15)])

        async def promoted() -> bool:
            return (await bus.outbox.outbox_status()).unpromoted == 0

        await until(promoted)
        assert (await bus.outbox.outbox_status()).waiting == 15
        server.start()
        stored = await read_stream(url, prefix, 15)
        assert [message.message_id for message in stored] == ids
        await relays.stop()


async def test_a_leader_whose_broker_is_away_gives_way(
    bus: Bus, publish: Publish, store_url: str, prefix: str
) -> None:
    with NatsServer() as server:
        server.kill()
        relays = Relays(store_url, quick(f"nats://{server.address}", prefix))
        for _ in range(2):
            relays.start(give_way_s=0.3, lead_retry_s=0.5)
        publish([(f"{prefix}.a", 1)])

        async def both_led() -> bool:
            told = await entries(bus, "/tape/relay/elected/nats")
            return len({entry.payload["owner"] for entry in told}) == 2

        await until(both_led)
        resigned = await entries(bus, "/tape/relay/resigned/nats")
        assert resigned[0].payload["reason"] == "the broker has failed for 0.3 s"
        server.start()
        await read_stream(f"nats://{server.address}", prefix, 1)
        await relays.stop()


async def test_a_stopped_leader_lets_the_next_one_lead(
    bus: Bus, publish: Publish, relays: Relays, nats_url: str, prefix: str
) -> None:
    relays.start()
    publish([(f"{prefix}.a", 1)])
    await read_stream(nats_url, prefix, 1)
    relays.start()
    await relays.stop_first()
    publish([(f"{prefix}.a", 2)])
    await read_stream(nats_url, prefix, 2)
    told = await entries(bus, "/tape/relay/**")
    assert [(e.subject.split("/")[3], e.payload["term"]) for e in told] == [
        ("elected", 1), ("resigned", 1), ("elected", 2),
    ]  # fmt: skip
    assert told[1].payload["reason"] == "stopped"


async def test_without_a_broker_rows_go_to_the_journal_alone(bus: Bus, publish: Publish) -> None:
    bus.start_relay(None)

    await asyncio.sleep(0)
    assert await entries(bus, "/tape/**") == []  # nobody uses the outbox: no trace of a relay
    ids = publish([("a.b", 1), ("a.b", 2)])
    await until(lambda: entries(bus, "/tape/event/**"))
    events = await entries(bus, "/tape/event/recorded/a.b/**")
    assert [event.event_id for event in events] == ids
    (told,) = await entries(bus, "/tape/relay/**")
    assert told.subject == "/tape/relay/elected/journal"
    assert (await bus.outbox.outbox_status()).waiting == 2


async def test_published_rows_go_after_a_while(
    bus: Bus, publish: Publish, relays: Relays, store_url: str, prefix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    relays.start(keep_s=0.1)
    publish([(f"{prefix}.a", n) for n in range(12)])

    async def gone() -> bool:
        table = "bus_outbox" if store_url.startswith("sqlite") else "bus.outbox"
        if store_url.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(sqlite_path(store_url))) as file:
                (left,) = file.execute(f"SELECT count(*) FROM {table}").fetchone()
        else:
            with psycopg.connect(store_url) as database:
                (left,) = database.execute(f"SELECT count(*) FROM {table}".encode()).fetchall()[0]
        return bool(left == 0)

    await until(gone)
    assert len(await entries(bus, "/tape/event/**")) == 12
    told = f"keep_s is 0.1, below the duplicate window of the stream {prefix}, which is 120 s"
    assert told in caplog.text  # ids are forgotten sooner than the stream forgets them
