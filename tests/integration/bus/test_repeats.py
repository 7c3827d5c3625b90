"""Keys and ids that were used before: on the stream once, and what was not taken says so."""

import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

import tape
from tape.bus import Bus
from tape.model.outbox import FailingRow
from tape.stores.by_url import sqlite_path
from tape.telemetry import metrics
from tests.integration.bus.relays import Relays, entries, quick, read_stream, until

WINDOW_S = 0.1


@pytest.fixture
async def relays(store_url: str, nats_url: str, prefix: str) -> AsyncIterator[Relays]:
    """With a duplicate window that is over at once."""
    settings = quick(nats_url, prefix)
    stream = replace(settings.stream, duplicate_window_s=WINDOW_S)
    running = Relays(store_url, replace(settings, stream=stream))
    yield running
    await running.stop()


def publish(store_url: str, subject: str, payload: Any, key: str = "") -> str:
    if store_url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(sqlite_path(store_url))) as file, file:
            file.execute("BEGIN")
            return tape.publish_within(file, subject, payload, idempotency_key=key)
    with psycopg.connect(store_url) as database:
        database.execute("SELECT 1")
        return tape.publish_within(database, subject, payload, idempotency_key=key)


def put_by_hand(store_url: str, event_id: str, subject: str, payload: str) -> None:
    statement = "INSERT INTO bus.outbox (event_id, subject, payload_json) VALUES (?, ?, ?)"
    row = (event_id, subject, payload)
    if store_url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(sqlite_path(store_url))) as file, file:
            file.execute(statement.replace("bus.", "bus_"), row)
        return
    with psycopg.connect(store_url) as database:
        database.execute(statement.replace("?", "%s").encode(), row)


async def repeated(bus: Bus, count: int) -> None:
    async def enough() -> bool:
        return (await bus.outbox.outbox_status()).repeated == count

    await until(enough)


async def test_a_key_belongs_to_its_subject_before_and_after_the_duplicate_window(
    bus: Bus, relays: Relays, store_url: str, nats_url: str, prefix: str
) -> None:
    a, b = f"{prefix}.a", f"{prefix}.b"
    before = metrics.OUTBOX_REPEATS.value
    first = publish(store_url, a, 1, "k")
    other = publish(store_url, b, 2, "k")
    early = publish(store_url, a, 3, "k")
    relays.start()
    await read_stream(nats_url, prefix, 2)
    await repeated(bus, 1)
    await until(lambda: window_is_over(bus))
    late = publish(store_url, a, 4, "k")
    last = publish(store_url, a, 5)
    stored = await read_stream(nats_url, prefix, 3)
    assert {(m.subject, m.message_id) for m in stored} == {(a, first), (b, other), (a, last)}
    on_a = [int(m.headers["ce-tapeseq"]) for m in stored if m.subject == a]
    assert on_a == sorted(on_a)
    await repeated(bus, 2)
    status = await bus.outbox.outbox_status()
    assert {row.event_id for row in status.repeats} == {early, late}
    (first_entry,) = [e for e in await entries(bus, "/tape/event/**") if e.event_id == first]
    assert {(r.repeat_of, r.repeat_of_seq) for r in status.repeats} == {
        (first, first_entry.global_seq)
    }
    assert metrics.OUTBOX_REPEATS.value == before + 2


async def window_is_over(bus: Bus) -> bool:
    """For what was published until now."""
    events = await entries(bus, "/tape/event/**")
    return time.time() * 1000 - events[-1].ts_ms > 3 * WINDOW_S * 1000


async def test_a_second_row_with_an_id_is_a_repeat_or_is_held_and_named(
    bus: Bus, relays: Relays, store_url: str, nats_url: str, prefix: str
) -> None:
    event_id = "01JZ0000000000000000000001"
    put_by_hand(store_url, event_id, f"{prefix}.a", "1")
    put_by_hand(store_url, event_id, f"{prefix}.a", "1")
    put_by_hand(store_url, event_id, f"{prefix}.b", "1")
    publish(store_url, f"{prefix}.b", 2)
    publish(store_url, f"{prefix}.c", 3)
    relays.start()
    stored = await read_stream(nats_url, prefix, 2)
    assert {m.payload for m in stored} == {"1", "3"}
    await repeated(bus, 1)

    async def failing() -> list[FailingRow]:
        return (await bus.outbox.outbox_status()).failing

    (row,) = await until(failing)
    assert row.subject == f"{prefix}.b"
    assert f"belongs to another event (row 1, subject {prefix}.a, global_seq" in row.last_error
    await bus.outbox.skip_outbox_row(row.id, reason="the producer's slip", by="desk")
    stored = await read_stream(nats_url, prefix, 3)
    assert stored[2].payload == "2"
