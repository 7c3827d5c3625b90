"""A message is handled once: noted in the transaction of its handling, or not at all."""

import asyncio
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, assert_type

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

import tape
from tape.settings import Settings
from tape.stores.by_url import open_store
from tests.integration.outbox.conftest import Shop
from tests.integration.outbox.handles import Kind, Rollback, awaited


async def test_the_first_time_and_again(kind: Kind, shop: Shop) -> None:
    async with kind.within(shop.url) as program:
        assert await awaited(tape.processed_within(program.tx, "desk", "m-1")) is True
        assert await awaited(tape.processed_within(program.tx, "desk", "m-1")) is False
    async with kind.within(shop.url) as program:
        assert await awaited(tape.processed_within(program.tx, "desk", "m-1")) is False
        assert await awaited(tape.processed_within(program.tx, "desk", "m-2")) is True
        assert await awaited(tape.processed_within(program.tx, "other desk", "m-1")) is True


async def test_what_was_rolled_back_is_not_handled(kind: Kind, shop: Shop) -> None:
    for _ in range(2):
        with suppress(Rollback):
            async with kind.within(shop.url) as program:
                assert await awaited(tape.processed_within(program.tx, "desk", "m-1")) is True
                raise Rollback
    assert shop.read("SELECT * FROM bus@processed") == []


def is_blocked(watcher: psycopg.Connection[Any], pid: int) -> bool:
    """Whether the database itself says that this session waits for another."""
    return watcher.execute("SELECT pg_blocking_pids(%s)", (pid,)).fetchone() != ([],)


@pytest.mark.parametrize("first_commits", [True, False])
async def test_two_at_once_on_postgres(postgres_shop: Shop, first_commits: bool) -> None:
    first, second = [await asyncpg.connect(postgres_shop.url) for _ in range(2)]
    began = first.transaction()
    await began.start()
    assert await tape.processed_within(first, "desk", "m-1") is True
    async with second.transaction():
        waiting = asyncio.ensure_future(tape.processed_within(second, "desk", "m-1"))
        with psycopg.connect(postgres_shop.url) as watcher:
            while not is_blocked(watcher, second.get_server_pid()):
                done, _ = await asyncio.wait([waiting], timeout=0.01)
                assert not done
        await (began.commit() if first_commits else began.rollback())
        assert await waiting is not first_commits
    for connection in (first, second):
        await connection.close()
    assert postgres_shop.read("SELECT consumer, message_id FROM bus@processed") == [("desk", "m-1")]


@pytest.mark.parametrize("first_commits", [True, False])
def test_two_at_once_on_sqlite(sqlite_shop: Shop, first_commits: bool) -> None:
    path = sqlite_shop.url.removeprefix("sqlite:")
    answers: list[bool] = []

    def handle_too() -> None:
        with closing(sqlite3.connect(path, timeout=30)) as second:
            second.execute("BEGIN DEFERRED")
            answers.append(tape.processed_within(second, "desk", "m-1"))
            second.commit()

    with closing(sqlite3.connect(path)) as first:
        first.execute("BEGIN IMMEDIATE")
        assert tape.processed_within(first, "desk", "m-1") is True
        thread = threading.Thread(target=handle_too)
        thread.start()
        first.commit() if first_commits else first.rollback()
        thread.join(30)
    assert answers == [not first_commits]


async def test_a_table_of_its_own(kind: Kind, request: pytest.FixtureRequest) -> None:
    """In a database that is not Tape's, made as often as asked for."""
    url: str = request.getfixturevalue(f"{kind.store}_url")
    with suppress(tape.StoreMismatch):
        async with kind.within(url) as program:
            await awaited(tape.processed_within(program.tx, "desk", "m-1"))
            raise AssertionError("there is a table")
    for is_new in (True, False):
        async with kind.within(url) as program:
            await awaited(tape.create_processed(program.tx))
            assert await awaited(tape.processed_within(program.tx, "desk", "m-1")) is is_new


async def test_a_table_of_its_own_is_made_at_once_by_many(postgres_url: str) -> None:
    async def make() -> None:
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction():
            await tape.create_processed(connection)
        await connection.close()

    await asyncio.gather(*(make() for _ in range(8)))
    # Tape itself may come to that database later.
    await (await open_store(postgres_url, Settings())).close()
    with psycopg.connect(postgres_url) as connection, connection.transaction():
        assert tape.processed_within(connection, "desk", "m-1")


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_table_of_its_own_is_that_of_the_migrations(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    ours, own = request.getfixturevalue(f"{store}_shop"), f"sqlite:{tmp_path / 'own.db'}"
    shape = "SELECT sql FROM sqlite_master WHERE name LIKE 'bus_processed%' ORDER BY name"
    if store == "postgres":
        own = request.getfixturevalue("postgres_url")
        shape = (
            "SELECT column_name, data_type, collation_name, column_default, is_nullable "
            "FROM information_schema.columns WHERE table_name = 'processed' "
            "UNION ALL SELECT indexdef, '', '', '', '' FROM pg_indexes "
            "WHERE tablename = 'processed' ORDER BY 1"
        )
        with psycopg.connect(own) as connection, connection.transaction():
            tape.create_processed(connection)
    else:
        with closing(sqlite3.connect(own.removeprefix("sqlite:"))) as db:
            db.execute("BEGIN")
            tape.create_processed(db)
            db.commit()
    said = [tuple(str(cell).split() for cell in row) for row in Shop(own).read(shape)]
    assert said == [tuple(str(cell).split() for cell in row) for row in ours.read(shape)]
    assert len(said) == (5 if store == "postgres" else 2)


async def test_what_is_old_is_forgotten(kind: Kind, shop: Shop) -> None:
    async with kind.within(shop.url) as program:
        for number in range(5):
            await awaited(tape.processed_within(program.tx, "desk", f"m-{number}"))
        table = "bus_processed" if kind.store == "sqlite" else "bus.processed"
        await program.execute_awaited(
            f"UPDATE {table} SET processed_at_ms = processed_at_ms - 3600000 "
            "WHERE message_id < 'm-3'"
        )
    async with kind.within(shop.url) as program:
        assert await awaited(tape.forget_processed(program.tx, older_than_s=7200)) == 0
        assert await awaited(tape.forget_processed(program.tx, older_than_s=1800)) == 3
    assert len(shop.read("SELECT * FROM bus@processed")) == 2


@pytest.mark.parametrize(
    ("consumer", "message_id", "message"),
    [
        ("", "m-1", "consumer: must not be empty"),
        ("desk", "", "message_id: must not be empty"),
        ("desk", 7, "message_id: must be a text, not int"),
        ("x" * 513, "m-1", "consumer: 513 bytes, the limit is 512"),
        ("desk", "a\0", "message_id at position 1: NUL"),
    ],
)
def test_wrong_names(sqlite_shop: Shop, consumer: Any, message_id: Any, message: str) -> None:
    with closing(sqlite3.connect(sqlite_shop.url.removeprefix("sqlite:"))) as connection:
        connection.execute("BEGIN")
        with pytest.raises(tape.InvalidArgument, match=message):
            tape.processed_within(connection, consumer, message_id)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "1"])
def test_a_wrong_age(sqlite_shop: Shop, seconds: Any) -> None:
    with closing(sqlite3.connect(sqlite_shop.url.removeprefix("sqlite:"))) as connection:
        connection.execute("BEGIN")
        with pytest.raises(tape.InvalidArgument, match="older_than_s: must be a number of seconds"):
            tape.forget_processed(connection, older_than_s=seconds)


async def types_of_the_answers(
    connection: psycopg.Connection[Any],
    cursor: psycopg.Cursor[Any],
    session: Session,
    sa_connection: sa.Connection,
    lite: sqlite3.Connection,
    async_connection: psycopg.AsyncConnection[Any],
    async_cursor: psycopg.AsyncCursor[Any],
    pg: "asyncpg.Connection[Any]",
    pooled: "asyncpg.pool.PoolConnectionProxy[Any]",
    async_session: AsyncSession,
    async_sa: AsyncConnection,
) -> None:
    """For mypy alone: what is to be awaited is so for each kind of handle, and nothing else is."""
    for blocking in (connection, cursor, session, sa_connection, lite):
        assert_type(tape.publish_within(blocking, "a"), str)
        assert_type(tape.processed_within(blocking, "a", "b"), bool)
    assert_type(await tape.publish_within(async_connection, "a"), str)
    assert_type(await tape.publish_within(async_cursor, "a"), str)
    assert_type(await tape.publish_within(pg, "a"), str)
    assert_type(await tape.publish_within(pooled, "a"), str)
    assert_type(await tape.publish_within(async_session, "a"), str)
    assert_type(await tape.publish_within(async_sa, "a"), str)
    assert_type(await tape.processed_within(async_sa, "a", "b"), bool)
