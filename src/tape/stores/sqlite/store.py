"""The journal in a SQLite file.

One thread owns the connection that writes. It takes the file's write lock before it looks, so a
turn is alone across all processes, and numbers entries from SQLite's own AUTOINCREMENT record.
Readers have threads and connections of their own and are never blocked by a writer.
"""

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import orjson

from tape.config import SqliteSettings
from tape.errors import TapeError
from tape.model.entry import Entry
from tape.model.move import Need, Place, State
from tape.model.session import Session, SessionKey, SessionWithEvents, StoredEvent
from tape.model.value import VALUES, Value
from tape.ports.store import Decide, EntryRange, JournalInfo, ReadEntries
from tape.stores.head import Head
from tape.stores.rows import changed_rows, group_needs, numbered_rows, prefix_range
from tape.stores.sqlite.connection import connect, insert_many, translated
from tape.stores.sqlite.migrate import applied_migrations, check_current, migrate
from tape.stores.statements import PREDICATE, load_statements

T = TypeVar("T")

log = logging.getLogger("tape.sqlite")
SQL = load_statements("tape.stores.sqlite")
LIST_LIMIT = 10_000
_PAYLOAD = Entry._fields.index("payload_json")


class SqliteStore:
    def __init__(self, path: Path, settings: SqliteSettings) -> None:
        self._path = path
        self._settings = settings
        self._head = Head()
        self._writing = ThreadPoolExecutor(1, "tape-sqlite-write")
        self._reading = ThreadPoolExecutor(settings.readers, "tape-sqlite-read")
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._poll: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, path: Path, settings: SqliteSettings, *, migrating: bool = True
    ) -> "SqliteStore":
        store = cls(path, settings)
        try:
            await store._in(store._writing, migrate if migrating else check_current)
            store._head.advance(await store._in(store._reading, _read_head))
        except BaseException:
            await store.close()
            raise
        store._poll = asyncio.create_task(store._keep_polling(), name="tape-sqlite-poll")
        return store

    @property
    def head(self) -> int:
        return self._head.global_seq

    async def await_beyond(self, global_seq: int) -> int:
        return await self._head.beyond(global_seq)

    async def commit(self, needs: Iterable[Need], decide: Decide) -> Place:
        keys = group_needs(needs)
        place, last = await self._in(self._writing, lambda db: _turn(db, keys, decide))
        self._head.advance(last)
        return place

    async def read_last_given(self) -> int:
        (last,) = await self._rows(int, "read_last_given")
        return last

    async def read_entries(self, query: ReadEntries) -> EntryRange:
        return await self._in(self._reading, lambda db: _read_entries(db, query))

    async def read_run(self, run_id: str, after_seq: int, limit: int) -> list[Entry]:
        return await self._rows(Entry, "read_run", run_id, after_seq, limit)

    async def read_value_history(
        self, subjects: Sequence[str], after: int, limit: int
    ) -> list[Entry]:
        return await self._rows(
            Entry, "read_value_history", orjson.dumps(subjects).decode(), after, limit
        )

    async def get_value(self, namespace: str, key: str) -> Value | None:
        found = await self._rows(_value, "get_value", namespace, key)
        return found[0] if found else None

    async def list_values(self, namespace: str, after_key: str, limit: int) -> list[Value]:
        return await self._rows(_value, "list_values", namespace, after_key, limit)

    async def get_session(self, key: SessionKey, max_events: int) -> SessionWithEvents | None:
        def read(db: sqlite3.Connection) -> SessionWithEvents | None:
            row = db.execute(SQL["get_session"], key).fetchone()
            if row is None:
                return None
            newest = db.execute(SQL["read_session_events"], (*key, max_events)).fetchall()
            events = [StoredEvent(*event).event for event in reversed(newest)]
            return SessionWithEvents(Session(*row), events)

        return await self._in(self._reading, _as_one_read(read))

    async def list_sessions(self, app_name: str, user_id: str) -> list[SessionWithEvents]:
        found = await self._rows(Session, "list_sessions", app_name, user_id, LIST_LIMIT)
        return [SessionWithEvents(session, []) for session in found]

    async def info(self) -> JournalInfo:
        def read(db: sqlite3.Connection) -> JournalInfo:
            (tail,) = db.execute(SQL["read_tail"]).fetchone()
            number = max((m.number for m in applied_migrations(db)), default=0)
            return JournalInfo("sqlite", tail, _read_head(db), number)

        return await self._in(self._reading, _as_one_read(read))

    async def close(self) -> None:
        self._head.close()
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.gather(self._poll, return_exceptions=True)
        for pool in (self._reading, self._writing):
            await asyncio.to_thread(pool.shutdown)
        for connection in self._opened:
            connection.close()

    async def _rows(self, make: Callable[..., T], name: str, *params: object) -> list[T]:
        def read(db: sqlite3.Connection) -> list[T]:
            return [make(*row) for row in db.execute(SQL[name], params)]

        return await self._in(self._reading, read)

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[sqlite3.Connection], T]) -> T:
        self._head.check_open()
        return await asyncio.get_running_loop().run_in_executor(pool, self._with_connection, work)

    def _with_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with translated(self._path):
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = connect(self._path, self._settings.busy_s)
                self._local.connection = connection
                self._opened.append(connection)
            return work(connection)

    async def _keep_polling(self) -> None:
        """Hear of entries that other processes committed."""
        while True:
            await asyncio.sleep(self._settings.poll_s)
            try:
                self._head.advance(await self._in(self._reading, _read_head))
            except TapeError as error:
                log.warning("polling failed, trying again: %s", error)


def _turn(
    db: sqlite3.Connection, keys: dict[Any, list[tuple[Any, ...]]], decide: Decide
) -> tuple[Place, int]:
    """One turn: take the lock, load, decide, write, commit. Returns the place and the new head."""
    db.execute("BEGIN IMMEDIATE")
    try:
        (head,) = db.execute(SQL["take_turn"]).fetchone()
        state = State(time.time_ns() // 1_000_000, head + 1)
        for table, wanted in keys.items():
            make = _value if table is VALUES else table.row
            rows = db.execute(SQL[f"load_{table.name}"], (orjson.dumps(wanted).decode(),))
            state.put_loaded(table, (make(*row) for row in rows))
        decide(state)
        _write(db, state)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return Place(head + 1, state.now_ms), head + len(state.entries)


def _write(db: sqlite3.Connection, state: State) -> None:
    insert_many(
        db,
        SQL["append_entries"],
        numbered_rows(state.entries, state.next_global_seq, state.now_ms),
    )
    for verb, table, rows in changed_rows(state):
        if verb == "save":
            insert_many(db, SQL[f"save_{table.name}"], rows)
        else:
            db.executemany(SQL[f"delete_{table.name}"], rows)


def _read_entries(db: sqlite3.Connection, query: ReadEntries) -> EntryRange:
    statement, extra = SQL["read_entries"], tuple[object, ...]()
    condition = query.predicate.sql_prefilter("sqlite") if query.predicate else None
    if condition is not None:
        statement = statement.replace(PREDICATE, f"({condition.text}) IS NOT FALSE")
        extra = condition.params
    low, high = prefix_range(query.prefix)
    params = (
        query.after, query.upto, query.limit, low, high, query.kind, query.run_id,
        query.from_ts_ms, *extra,
    )  # fmt: skip
    found: list[Entry] = []
    size = 0
    cursor = db.execute(statement, params)
    for row in cursor:
        found.append(Entry(*row))
        payload: str = row[_PAYLOAD]
        size += len(payload) if payload.isascii() else len(payload.encode())
        if size >= query.max_bytes:
            break
    else:
        if len(found) < query.limit:
            return EntryRange(found, query.upto)
    cursor.close()
    return EntryRange(found, found[-1].global_seq)


def _as_one_read(read: Callable[[sqlite3.Connection], T]) -> Callable[[sqlite3.Connection], T]:
    """Several statements on one snapshot."""

    def reading(db: sqlite3.Connection) -> T:
        db.execute("BEGIN")
        try:
            return read(db)
        finally:
            db.execute("ROLLBACK")

    return reading


def _read_head(db: sqlite3.Connection) -> int:
    (head,) = db.execute(SQL["read_head"]).fetchone()
    return int(head)


def _value(*row: Any) -> Value:
    """SQLite has no booleans."""
    return Value(*row)._replace(deleted=bool(row[-1]))
