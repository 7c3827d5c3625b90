"""Entries to decide about, and the two databases that decide about them."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
import psycopg
import pytest

from tape.predicates import SqlCondition
from tests.servers.postgres import PostgresServer

TEXTS = ("event_id", "event_type", "entity_type", "entity_id", "caused_by", "source")
NAMES = (
    "global_seq", "run_id", "seq", "kind", "subject", "ts_ms", "schema_version", "trace_id",
    "payload_json", *TEXTS, "idempotency_key",
)  # fmt: skip
COLUMNS = ", ".join(NAMES)


@dataclass(frozen=True)
class Entry:
    payload_json: str = "{}"
    global_seq: int = 7
    run_id: str | None = "run-1"
    seq: int | None = 3
    kind: str = "effect"
    subject: str = "/tape/effect/confirmed/sweep/run-1"
    ts_ms: int = 1_700_000_000_000
    schema_version: int = 1
    trace_id: str = ""
    prev_value_json: str | None = None
    event_id: str = "01J"
    event_type: str = ""
    entity_type: str = ""
    entity_id: str = ""
    caused_by: str = ""
    source: str = ""
    idempotency_key: str | None = None

    @property
    def row(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in NAMES)

    @property
    def envelope(self) -> dict[str, object]:
        envelope: dict[str, object] = {
            "global_seq": self.global_seq,
            "run_id": self.run_id or "",
            "seq": self.seq or 0,
            "kind": self.kind,
            "subject": self.subject,
            "ts_ms": self.ts_ms,
            "schema_version": self.schema_version,
            "payload": orjson.loads(self.payload_json),
            "trace_id": self.trace_id,
            "idempotency_key": self.idempotency_key or "",
            **{name: getattr(self, name) for name in TEXTS},
        }
        if self.prev_value_json is not None:
            envelope["prev_value_json"] = self.prev_value_json
        return envelope


class Engine(Protocol):
    dialect: Any

    def verdicts(self, condition: SqlCondition, entries: list[Entry]) -> list[bool | None]: ...


class SqliteEngine:
    dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute(
            "CREATE TABLE tape_journal (global_seq INTEGER PRIMARY KEY, run_id TEXT, seq INTEGER,"
            " kind TEXT NOT NULL, subject TEXT NOT NULL, ts_ms INTEGER NOT NULL,"
            " schema_version INTEGER NOT NULL, trace_id TEXT NOT NULL, payload_json TEXT NOT NULL,"
            f"{', '.join(f' {name} TEXT NOT NULL' for name in TEXTS)}, idempotency_key TEXT)"
        )

    def verdicts(self, condition: SqlCondition, entries: list[Entry]) -> list[bool | None]:
        with self._connection:
            self._connection.execute("DELETE FROM tape_journal")
            self._connection.executemany(
                f"INSERT INTO tape_journal ({COLUMNS}) VALUES ({', '.join('?' * len(NAMES))})",
                [entry.row for entry in entries],
            )
        found = self._connection.execute(
            f"SELECT ({condition.text}) FROM tape_journal ORDER BY global_seq", condition.params
        )
        return [None if value is None else {0: False, 1: True}[value] for (value,) in found]


class PostgresEngine:
    dialect = "postgres"

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._cursor = psycopg.RawCursor(connection)

    def verdicts(self, condition: SqlCondition, entries: list[Entry]) -> list[bool | None]:
        """Entries travel as arrays before the condition's own parameters, as a caller's would."""
        columns = [list(column) for column in zip(*(entry.row for entry in entries), strict=True)]
        types = ["bigint", "text", "bigint", "text", "text", "bigint", "smallint"]
        types += ["text"] * (len(NAMES) - len(types))
        arrays = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(types, 1))
        own = condition.renumbered(len(columns) + 1)
        self._cursor.execute(
            f"SELECT ({own.text}) FROM unnest({arrays}) AS tape_journal({COLUMNS})"
            " ORDER BY global_seq",
            [*columns, *own.params],
        )
        return [value for (value,) in self._cursor.fetchall()]


@pytest.fixture(scope="session")
def sqlite_engine() -> Iterator[Engine]:
    connection = sqlite3.connect(":memory:")
    yield SqliteEngine(connection)
    connection.close()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with PostgresServer() as server:
        yield server.url()


@pytest.fixture(scope="session")
def postgres_engine(postgres_url: str) -> Iterator[Engine]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield PostgresEngine(connection)


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(f"{request.param}_engine")
    return found


@pytest.fixture(scope="session")
def new_entry() -> type[Entry]:
    return Entry
