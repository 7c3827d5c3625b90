"""Opens stores for the contract, each time another one on the same database."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tape.ports.store import Store
from tape.settings import Settings, SqliteSettings
from tape.stores.by_url import open_store as open_by_url
from tape.stores.by_url import sqlite_path
from tests.conformance.contracts import OpenStore
from tests.conformance.outbox import BOUND_S, Appended, AppendRows, RunElsewhere
from tests.conformance.playing import IDS

QUICK = Settings(sqlite=SqliteSettings(poll_s=0.02))


@pytest.fixture
def postgres_url(migrated_postgres_url: str) -> str:
    return migrated_postgres_url


@pytest.fixture
async def open_store(store_url: str) -> AsyncIterator[OpenStore]:
    async with contextlib.AsyncExitStack() as stack:

        async def open_another() -> Store:
            store = await open_by_url(store_url, QUICK)
            stack.push_async_callback(store.close)
            return store

        yield open_another


@pytest.fixture
def append_rows(store_url: str) -> AppendRows:
    """The outbox as a program sees it that knows its table and nothing else of Tape."""
    columns = "(subject, payload_json, event_id, idempotency_key)"

    def append(rows: Sequence[Appended]) -> None:
        named = [row._replace(event_id=row.event_id or next(IDS)) for row in rows]
        if store_url.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(sqlite_path(store_url))) as file, file:
                file.executemany(f"INSERT INTO bus_outbox {columns} VALUES (?, ?, ?, ?)", named)
            return
        insert = f"INSERT INTO bus.outbox {columns} VALUES (%s, %s, %s, %s)"
        with psycopg.connect(store_url) as database:
            database.cursor().executemany(insert.encode(), named)
            database.execute("NOTIFY bus_outbox_appended")

    return append


@pytest.fixture
def run_elsewhere(store_url: str) -> RunElsewhere:
    def run(work: Callable[[Store], Awaitable[None]]) -> None:
        async def with_store() -> None:
            store = await open_by_url(store_url, QUICK)
            try:
                await work(store)
            finally:
                await store.close()

        with ThreadPoolExecutor(1) as threads:
            threads.submit(lambda: asyncio.run(with_store())).result(BOUND_S)

    return run
