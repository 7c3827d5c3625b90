"""What the database's own defaults must not change."""

import asyncio

import psycopg
import pytest

from tape.bus import Bus
from tape.errors import StoreUnavailable, VersionMismatch
from tape.model.event import NewEvent
from tape.model.value import Author, WriteValue
from tape.settings import PostgresSettings, Settings
from tape.stores.by_url import open_store
from tape.stores.postgres.turn import COPY_FROM
from tests.conformance.playing import IDS, LIMITS, play, read_all, record


def alter(url: str, setting: str) -> None:
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("SET default_transaction_read_only = off")
        database.execute(f"ALTER DATABASE tape_test SET {setting}".encode())


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_a_turn_sees_what_was_committed_before_it_whatever_the_default_isolation(
    postgres_url: str, level: str
) -> None:
    """A snapshot taken before the lock would show a state that is already past."""
    alter(postgres_url, f"default_transaction_isolation = '{level}'")
    stores = [await open_store(postgres_url, Settings()) for _ in range(3)]

    async def write(number: int) -> None:
        for n in range(10):
            await record(stores[number], NewEvent("a", idempotency_key=f"k{n}"))
            author = Author(str(number))
            move = WriteValue(
                "n", f"k{n}", "1", 0, author=author, event_id=next(IDS), limits=LIMITS
            )
            try:
                await play(stores[number], move)
            except VersionMismatch:
                continue

    await asyncio.gather(*map(write, range(3)))
    assert len(await read_all(stores[0])) == 20
    for store in stores:
        await store.close()


@pytest.mark.parametrize(
    "setting",
    ["synchronous_commit = off", "statement_timeout = 1", "lock_timeout = 1", "jit = on"],
)
async def test_defaults_of_the_database_do_not_reach_the_writer(
    postgres_url: str, setting: str
) -> None:
    store = await open_store(postgres_url, Settings())
    alter(postgres_url, setting)
    await record(store, NewEvent("a", idempotency_key="k"))
    assert store._turns._connection is not None  # type: ignore[attr-defined]
    shown = await store._turns._connection.fetchval("SHOW synchronous_commit")  # type: ignore[attr-defined]
    assert shown == "on"
    await store.close()


async def test_a_read_only_database_is_waited_for(postgres_url: str) -> None:
    """As a standby is after a failover, until the writer finds the new primary."""
    store = await open_store(postgres_url, Settings())
    alter(postgres_url, "default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match="read-only"):
        await record(store, NewEvent("a"))
    bus = Bus(store, Settings())
    recording = asyncio.create_task(bus.record_events([NewEvent("a")]))
    await asyncio.sleep(0)
    alter(postgres_url, "default_transaction_read_only = off")
    (recorded,) = await asyncio.wait_for(recording, 10)
    assert [entry.event_id for entry in await read_all(store)] == [recorded.event_id]
    await bus.close()


async def test_a_commit_elsewhere_is_heard_of_and_not_only_polled_for(postgres_url: str) -> None:
    slow = Settings(postgres=PostgresSettings(poll_s=600))
    here, there = await open_store(postgres_url, slow), await open_store(postgres_url, slow)
    await record(here, NewEvent("first"))
    await there.await_beyond(0)  # it listens before it looks, so now it listens
    for events in (
        [NewEvent("a")],
        [NewEvent("a", idempotency_key="k")],
        [NewEvent("a")] * COPY_FROM,
    ):
        head = here.head
        waiting = asyncio.create_task(there.await_beyond(head))
        await record(here, *events)
        assert await asyncio.wait_for(waiting, 10) == here.head
    await here.close()
    await there.close()


async def test_wake_ups_go_on_after_a_poll_has_failed(postgres_url: str) -> None:
    """A listener that gave up would leave every follower of this process waiting for ever."""
    quick = Settings(postgres=PostgresSettings(poll_s=0.05))
    here, there = await open_store(postgres_url, quick), await open_store(postgres_url, quick)
    await record(here, NewEvent("a"))
    await there.await_beyond(0)
    # Not by a call that blocks the loop: a poll of ours may be under way, and hold a lock.
    database = await psycopg.AsyncConnection.connect(postgres_url, autocommit=True)
    async with database:
        await database.execute("ALTER TABLE tape_journal RENAME TO hidden")
        await database.execute("CREATE VIEW tape_journal AS SELECT 1 / 0 AS global_seq")
        waiting = asyncio.create_task(there.await_beyond(1))
        listening = there._listen  # type: ignore[attr-defined]
        done, _ = await asyncio.wait([listening], timeout=0.3)
        assert not done
        await database.execute("DROP VIEW tape_journal")
        await database.execute("ALTER TABLE hidden RENAME TO tape_journal")
    await record(here, NewEvent("b"))
    assert await asyncio.wait_for(waiting, 10) == 2
    await here.close()
    await there.close()


async def test_a_notification_by_somebody_else_moves_no_cursor(postgres_url: str) -> None:
    """Whoever may connect may notify: a false number must not let a follower step over entries."""
    store = await open_store(postgres_url, Settings())
    with psycopg.connect(postgres_url, autocommit=True) as somebody:
        somebody.execute(
            "SELECT pg_notify('tape_journal_' || 'tape_journal'::regclass::oid, '1000000')"
        )
    other = await open_store(postgres_url, Settings())
    await record(other, NewEvent("a"))
    assert await store.await_beyond(0) == 1
    await store.close()
    await other.close()
