"""A commit whose connection breaks is looked up, never guessed: once, or not at all."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import psycopg
import pytest

from tape.bus import Bus
from tape.errors import OutcomeUnknown, StoreUnavailable
from tape.model.event import NewEvent, Recorded
from tape.programs.connect import open_bus
from tape.settings import PostgresSettings, Settings, WriterSettings
from tape.stores.postgres.store import PostgresStore
from tape.stores.postgres.turn import COPY_FROM, PostgresTurns
from tests.integration.store_faults.load import everything
from tests.integration.store_faults.proxy import Cut, Proxy, line_to
from tests.servers.postgres import PostgresServer

QUICK = Settings(
    postgres=PostgresSettings(
        transaction_s=1, idle_in_transaction_s=0.5, connect_s=20, resolve_s=20, poll_s=0.1
    )
)
CLOSED = "ALTER DATABASE tape_test ALLOW_CONNECTIONS "
MARK = "a-mark-of-its-own"
PLAIN = [NewEvent("a", f'"{MARK}"')]
WAYS = [
    pytest.param(PLAIN, MARK.encode(), id="blind"),
    pytest.param([PLAIN[0]._replace(idempotency_key="k")], b"COMMIT", id="looking"),
    pytest.param([NewEvent("a", f'"{n}"') for n in range(COPY_FROM)], b"COMMIT", id="copied"),
]


@pytest.fixture
async def line(postgres_server: PostgresServer) -> AsyncIterator[Proxy]:
    async with line_to(postgres_server.port) as line:
        yield line


def through(line: Proxy, url: str) -> str:
    host, _, name = url.rpartition("/")
    return f"{host.rpartition(':')[0]}:{line.port}/{name}"


@pytest.fixture
async def bus(line: Proxy, postgres_url: str) -> AsyncIterator[Bus]:
    bus = await open_bus(through(line, postgres_url), QUICK)
    await bus.record_events([NewEvent("warm")])
    yield bus
    await bus.close()


async def record_cut_off(
    bus: Bus, line: Proxy, events: list[NewEvent], message: bytes, how: Cut
) -> list[Recorded]:
    line.cut(message, how)
    recorded = await asyncio.wait_for(bus.record_events(events), 30)
    assert line.happened.is_set()
    return recorded


@pytest.mark.parametrize("how", ["before", "after", "silent"])
@pytest.mark.parametrize(("events", "message"), WAYS)
async def test_a_write_whose_line_is_cut_is_there_once(
    bus: Bus, line: Proxy, how: Cut, events: list[NewEvent], message: bytes
) -> None:
    recorded = await record_cut_off(bus, line, events, message, how)
    entries = [entry for entry in await everything(bus) if entry.event_type == "a"]
    assert [(e.event_id, e.global_seq) for e in entries] == [r[:2] for r in recorded]
    assert not any(r.duplicate for r in recorded)
    (after,) = await bus.record_events([NewEvent("after")])
    assert after.global_seq > entries[-1].global_seq


@pytest.mark.parametrize(("events", "message"), WAYS)
async def test_a_writer_that_only_retries_is_caught(
    bus: Bus,
    line: Proxy,
    events: list[NewEvent],
    message: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check above can fail: without the look-up, the same fault doubles the entries."""

    async def just_retry(_self: object, _entries: object, _head: int, cause: Exception) -> None:
        raise cause

    monkeypatch.setattr(PostgresTurns, "_find", just_retry)
    recorded = await record_cut_off(bus, line, events, message, "after")
    copies = [entry for entry in await everything(bus) if entry.event_type == "a"]
    if events[0].idempotency_key:
        assert recorded[0].duplicate, "only the key saved it, and the caller is told a lie"
    else:
        assert len(copies) == 2 * len(events)


@pytest.mark.parametrize(("how", "copies"), [("before", 0), ("after", 1)])
async def test_what_cannot_be_looked_up_is_unknown_and_not_tried_again(
    line: Proxy, postgres_url: str, how: Cut, copies: int
) -> None:
    impatient = Settings(
        postgres=PostgresSettings(connect_s=20, resolve_s=0.3, poll_s=0.1),
        writer=WriterSettings(retry_for_s=30),
    )
    bus = await open_bus(through(line, postgres_url), impatient)
    await bus.record_events([NewEvent("warm")])
    line.cut(MARK.encode(), how)
    await line.deaf()
    with pytest.raises(OutcomeUnknown, match="look first"):
        await asyncio.wait_for(bus.record_events(PLAIN), 20)
    await line.listen()
    await bus.record_events([NewEvent("after")])
    types = [entry.event_type for entry in await everything(bus)]
    assert types == ["warm", *["a"] * copies, "after"]
    await bus.close()


@pytest.mark.parametrize(
    ("shut", "reopen"),
    [
        (CLOSED + "false", CLOSED + "true"),
        ("ALTER ROLE postgres NOLOGIN", "ALTER ROLE postgres LOGIN"),
    ],
    ids=["database closed", "role locked"],
)
async def test_a_server_that_lets_nobody_in_is_looked_at_later(
    bus: Bus, line: Proxy, postgres_server: PostgresServer, shut: str, reopen: str
) -> None:
    """Any refusal while looking leaves the outcome open; it must not read as "not written"."""
    line.cut(MARK.encode(), "after")
    with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
        admin.execute(shut.encode())
        try:
            recording = asyncio.create_task(bus.record_events(PLAIN))
            await asyncio.wait_for(line.happened.wait(), 10)
            done, _ = await asyncio.wait([recording], timeout=0.5)
            assert not done
        finally:
            admin.execute(reopen.encode())
    (recorded,) = await asyncio.wait_for(recording, 20)
    entries = [entry for entry in await everything(bus) if entry.event_type == "a"]
    assert [entry.event_id for entry in entries] == [recorded.event_id]


async def test_a_session_that_hangs_is_ended_before_its_write_is_looked_for(
    postgres_url: str,
) -> None:
    """It has the write in its hands. Woken after we had looked in vain, it would do it then."""
    impatient = PostgresSettings(transaction_s=0.3, idle_in_transaction_s=0.2, poll_s=0.1)
    store = await PostgresStore.open(postgres_url, impatient)
    bus = Bus(store, Settings())
    await bus.record_events([NewEvent("warm")])
    hung = store._turns._backend.pid
    os.kill(hung, signal.SIGSTOP)
    try:
        recording = asyncio.create_task(bus.record_events(PLAIN))
        done, _ = await asyncio.wait([recording], timeout=2.5)
    finally:
        os.kill(hung, signal.SIGCONT)
    assert not done, "nothing can be known while the session hangs"
    (recorded,) = await asyncio.wait_for(recording, 20)
    entries = [entry for entry in await everything(bus) if entry.event_type == "a"]
    assert [entry.event_id for entry in entries] == [recorded.event_id]
    await bus.close()


async def test_a_line_cut_before_anything_was_sent_is_simply_tried_again(
    bus: Bus, line: Proxy
) -> None:
    line.cut(b"BEGIN", "before")
    keyed = [PLAIN[0]._replace(idempotency_key="k")]
    (recorded,) = await asyncio.wait_for(bus.record_events(keyed), 20)
    assert line.happened.is_set()
    assert not recorded.duplicate


async def test_a_reader_whose_line_is_cut_reads_on_another(bus: Bus, line: Proxy) -> None:
    assert await bus.values.get_value("nowhere", "k") is None
    line.cut(b"nowhere", "before")
    assert await bus.values.get_value("nowhere", "k") is None
    assert line.happened.is_set()


async def test_a_reader_says_that_the_store_is_away(bus: Bus, line: Proxy) -> None:
    assert await bus.values.get_value("nowhere", "k") is None
    line.cut(b"nowhere", "before")
    await line.deaf()
    with pytest.raises(StoreUnavailable):
        await bus.values.get_value("nowhere", "k")
    await line.listen()
    assert await bus.values.get_value("nowhere", "k") is None
