"""What only a SQLite file shows of tasks: the bell without a poll, and how durable a commit is."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tape.settings import SqliteSettings
from tape.stores.migrations import load_migrations
from tape.stores.sqlite.connection import connect, quick_transaction, transaction
from tape.stores.sqlite.migrate import migrate
from tape.stores.sqlite.store import SqliteStore
from tests.conformance.dead_letters import replaying
from tests.conformance.playing import play
from tests.conformance.reacting import claim, fail, keys_of, queue, register

FULL, NORMAL = 2, 1


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """One that hears of nothing but its own commits."""
    store = await SqliteStore.open(tmp_path / "tape.db", SqliteSettings(poll_s=3600))
    yield store
    await store.close()


async def test_the_bell_rings_for_what_this_process_queues(store: SqliteStore) -> None:
    await register(store, retry_max=0)
    heard = store.tasks.task_bell
    waiting = asyncio.create_task(store.tasks.await_tasks(heard, 60))
    await asyncio.sleep(0)
    await queue(store, [1])
    assert await waiting == heard + 1
    keys = keys_of(await claim(store))
    await fail(store, "a", keys)
    assert store.tasks.task_bell == heard + 1
    await play(store, replaying(keys))
    assert store.tasks.task_bell == heard + 2


async def test_the_bell_is_silent_where_nothing_was_queued(store: SqliteStore) -> None:
    await register(store)
    await queue(store, [1])
    heard = store.tasks.task_bell
    await queue(store, [1])
    await store.tasks.complete_tasks("a", keys_of(await claim(store)))
    assert await store.tasks.await_tasks(heard, 0) == heard


@pytest.fixture
def connection(tmp_path: Path) -> sqlite3.Connection:
    return connect(tmp_path / "tape.db", 1)


def synchronous(connection: sqlite3.Connection) -> int:
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    return int(level)


def test_only_a_quick_transaction_is_less_than_durable(connection: sqlite3.Connection) -> None:
    with contextlib.closing(connection):
        with transaction(connection):
            assert synchronous(connection) == FULL
        with quick_transaction(connection):
            assert synchronous(connection) == NORMAL
        assert synchronous(connection) == FULL
        with pytest.raises(ZeroDivisionError), quick_transaction(connection):
            raise ZeroDivisionError
        assert synchronous(connection) == FULL
        assert not connection.in_transaction


def test_without_the_lock_a_quick_transaction_changes_nothing(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    other = connect(tmp_path / "tape.db", 0)
    with contextlib.closing(connection), contextlib.closing(other), transaction(connection):
        with pytest.raises(sqlite3.OperationalError), quick_transaction(other):
            pass
        assert synchronous(other) == FULL
        assert not other.in_transaction


def test_the_matcher_of_an_old_journal_begins_at_its_end(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = load_migrations("tape.stores.sqlite")
    name = "tape.stores.sqlite.migrate.load_migrations"
    with contextlib.closing(connection), monkeypatch.context() as patch:
        patch.setattr(name, lambda _package: every[:1])
        migrate(connection)
        connection.execute(
            "INSERT INTO tape_journal (kind, subject, payload_json, ts_ms, event_id, "
            "occurred_at_ms) VALUES ('event', '/tape/a', '1', 1, 'e1', 1), "
            "('event', '/tape/a', '1', 1, 'e2', 1)"
        )
        patch.setattr(name, lambda _package: every)
        assert "reactions" in migrate(connection)
        assert connection.execute("SELECT position FROM tape_matcher").fetchall() == [(2,)]
