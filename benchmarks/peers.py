"""The other side: the raw limit of each database, and a peer library, at their best."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore

from benchmarks.workload import PAYLOAD
from tape.stores.rows import PLACED_COLUMNS
from tape.stores.sqlite.turn import SQL as SQLITE

Row = tuple[Any, ...]
TABLE = "raw_journal"


def journal_rows(count: int, first: int = 1) -> list[Row]:
    """Rows of the journal as our writer would write them, in PLACED_COLUMNS order."""
    now = time.time_ns() // 1_000_000
    return [
        (
            first + i, now, f"01ARZ3NDEKTSV4RRFFQ{i:07d}", "event",
            f"/tape/event/recorded/price.changed/asset/{i}", PAYLOAD, None, None, 1, "", "", "",
            "price.changed", "asset", str(i), "", "bench", now, None,
        )
        for i in range(count)
    ]  # fmt: skip


async def make_raw_table(url: str) -> None:
    """A twin of the journal, indexes and all, that nothing of ours writes to."""
    async with _connect(url) as connection:
        await connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
        await connection.execute(f"CREATE TABLE {TABLE} (LIKE tape_journal INCLUDING ALL)")


async def copy_batches(url: str, rows: Sequence[Row], size: int) -> float:
    """Rows/s by COPY, one durable commit per batch, on one connection."""
    async with _connect(url) as connection:
        started = time.perf_counter()
        for start in range(0, len(rows), size):
            await connection.copy_records_to_table(
                TABLE, records=rows[start : start + size], columns=PLACED_COLUMNS
            )
        return len(rows) / (time.perf_counter() - started)


async def commit_singly(url: str, rows: Sequence[Row], connections: int) -> float:
    """Rows/s when each connection commits one row at a time, with no lock and no order."""
    holes = ", ".join(f"${i + 1}" for i in range(len(PLACED_COLUMNS)))
    insert = f"INSERT INTO {TABLE} ({', '.join(PLACED_COLUMNS)}) VALUES ({holes})"
    opened = await asyncio.gather(*(asyncpg.connect(url) for _ in range(connections)))

    async def produce(connection: asyncpg.Connection, part: Sequence[Row]) -> None:
        for row in part:
            await connection.execute(insert, *row)

    started = time.perf_counter()
    await asyncio.gather(*(produce(c, rows[k::connections]) for k, c in enumerate(opened)))
    elapsed = time.perf_counter() - started
    await asyncio.gather(*(c.close() for c in opened))
    return len(rows) / elapsed


async def read_raw(url: str, count: int, page: int) -> float:
    """Rows/s of a bare ranged SELECT, pages like ours, rows left as the driver makes them."""
    query = "SELECT * FROM tape_journal WHERE global_seq > $1 ORDER BY global_seq LIMIT $2"
    async with _connect(url) as connection:
        await connection.execute("SET enable_sort = off")
        seen = cursor = 0
        started = time.perf_counter()
        while seen < count and (rows := await connection.fetch(query, cursor, page)):
            seen, cursor = seen + len(rows), rows[-1]["global_seq"]
        return seen / (time.perf_counter() - started)


def executemany(path: Path, rows: Sequence[Row]) -> float:
    """Rows/s by executemany into the journal itself, all in one durable transaction."""
    with closing(_sqlite(path)) as db:
        started = time.perf_counter()
        db.execute("BEGIN IMMEDIATE")
        db.executemany(SQLITE["append_entries"], rows)
        db.execute("COMMIT")
        return len(rows) / (time.perf_counter() - started)


def read_raw_sqlite(path: Path, count: int, page: int) -> float:
    query = "SELECT * FROM tape_journal WHERE global_seq > ? ORDER BY global_seq LIMIT ?"
    with closing(_sqlite(path)) as db:
        seen = cursor = 0
        started = time.perf_counter()
        while seen < count and (rows := db.execute(query, (cursor, page)).fetchall()):
            seen, cursor = seen + len(rows), rows[-1][0]
        return seen / (time.perf_counter() - started)


class EventSourcing:
    """The `eventsourcing` library's recorder; `functions` lets it insert by a stored function."""

    def __init__(self, url: str, *, functions: bool) -> None:
        parts = urlsplit(url)
        self._datastore = PostgresDatastore(
            parts.path.strip("/"), "127.0.0.1", parts.port or 5432, "postgres", "",
            enable_db_functions=functions,
        )  # fmt: skip
        table = "es_functions" if functions else "es_plain"
        self._recorder = PostgresApplicationRecorder(self._datastore, events_table_name=table)
        self._recorder.create_table()

    def append(self, count: int, size: int) -> float:
        state = PAYLOAD.encode()
        work = []
        for _ in range(count // size):
            origin = uuid4()
            work.append([StoredEvent(origin, i + 1, "bench:Price", state) for i in range(size)])
        started = time.perf_counter()
        for batch in work:
            self._recorder.insert_events(batch)
        return count / (time.perf_counter() - started)

    def close(self) -> None:
        self._datastore.close()


def _sqlite(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    return db


@asynccontextmanager
async def _connect(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()
