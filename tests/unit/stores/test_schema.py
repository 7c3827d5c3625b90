"""Both dialects make the same tables, and each table has the columns of its row type, in order."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tape.model.entry import Entry, EntryDraft
from tape.model.move import KNOWN
from tape.model.outbox import OUTBOX, OUTBOX_IDS, OUTBOX_KEYS, OutboxPlace, OutboxRow
from tape.model.task import SOURCES
from tape.settings import Settings
from tape.stores.by_url import open_store
from tape.stores.rows import PLACED_COLUMNS, TABLES

BOOKKEEPING = ("tape_migrations", "tape_schema_steps")
Columns = dict[str, list[tuple[str, bool]]]
Uniques = set[tuple[str, tuple[str, ...]]]


@pytest.fixture
async def sqlite_db(sqlite_url: str, tmp_path: Path) -> Any:
    await (await open_store(sqlite_url, Settings())).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "tape.db")) as db:
        yield db


@pytest.fixture
async def postgres_db(postgres_url: str) -> Any:
    await (await open_store(postgres_url, Settings())).close()
    with psycopg.connect(postgres_url) as db:
        yield db


def tables(db: sqlite3.Connection) -> Iterator[str]:
    for (name,) in db.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
        "AND (name LIKE 'tape@_%' ESCAPE '@' OR name LIKE 'bus@_%' ESCAPE '@')"
    ):
        if name not in BOOKKEEPING:
            yield name


def sqlite_columns(db: sqlite3.Connection) -> Columns:
    """Name and whether it may be NULL; a key of one integer may not, though SQLite says so."""
    return {
        table: [
            (name, not required and not in_key)
            for _, name, _, required, _, in_key in db.execute(f"PRAGMA table_info({table})")
        ]
        for table in tables(db)
    }


def postgres_columns(db: psycopg.Connection[Any]) -> Columns:
    found: Columns = {}
    for table, name, nullable in db.execute(
        "SELECT CASE table_schema WHEN 'bus' THEN 'bus_' ELSE '' END || table_name, column_name, "
        "is_nullable = 'YES' FROM information_schema.columns "
        "WHERE table_schema IN ('public', 'bus') AND NOT table_name = ANY (%s) "
        "ORDER BY table_schema, table_name, ordinal_position",
        (list(BOOKKEEPING),),
    ):
        found.setdefault(table, []).append((name, nullable))
    return found


def sqlite_uniques(db: sqlite3.Connection) -> Uniques:
    # The row number, which is no index.
    found: Uniques = {("tape_journal", ("global_seq",)), ("bus_outbox", ("id",))}
    for table in tables(db):
        for _, index, unique, *_ in db.execute(f"PRAGMA index_list({table})").fetchall():
            columns = tuple(row[2] for row in db.execute(f"PRAGMA index_info({index})"))
            if unique:
                found.add((table, columns))
    return found


def postgres_uniques(db: psycopg.Connection[Any]) -> Uniques:
    rows = db.execute(
        "SELECT replace(i.indrelid::regclass::text, '.', '_'), "
        "array_agg(a.attname::text ORDER BY k.n) "
        "FROM pg_index i CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (column_number, n) "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.column_number "
        "WHERE i.indisunique AND i.indrelid::regclass::text SIMILAR TO '(tape\\_|bus\\.)%%' "
        "AND NOT i.indrelid::regclass::text = ANY (%s) GROUP BY i.indexrelid, i.indrelid",
        (list(BOOKKEEPING),),
    )
    return {(table, tuple(columns)) for table, columns in rows}


def test_both_dialects_have_the_same_tables_and_columns(
    sqlite_db: sqlite3.Connection, postgres_db: psycopg.Connection[Any]
) -> None:
    assert sqlite_columns(sqlite_db) == postgres_columns(postgres_db)


def test_both_dialects_hold_the_same_things_unique(
    sqlite_db: sqlite3.Connection, postgres_db: psycopg.Connection[Any]
) -> None:
    assert sqlite_uniques(sqlite_db) == postgres_uniques(postgres_db)


def test_a_table_has_the_columns_of_its_rows(sqlite_db: sqlite3.Connection) -> None:
    columns = {
        table: [name for name, _ in named] for table, named in sqlite_columns(sqlite_db).items()
    }
    for table in TABLES:
        # Those look at the journal, and a part of the outbox's columns.
        if table not in (KNOWN, SOURCES, OUTBOX, OUTBOX_IDS, OUTBOX_KEYS):
            assert columns[f"tape_{table.name}"] == list(table.row._fields)  # type: ignore[attr-defined]
    assert columns["tape_journal"] == list(Entry._fields)
    assert set(OutboxRow._fields) < set(columns["bus_outbox"])
    assert set(OutboxPlace._fields) < set(columns["bus_outbox"])
    assert set(PLACED_COLUMNS) == set(Entry._fields)
    assert set(EntryDraft._fields) == set(Entry._fields) - {"global_seq", "ts_ms"}


def test_names_on_postgres_compare_by_code_point(postgres_db: psycopg.Connection[Any]) -> None:
    """In a database with a dictionary's collation a prefix would not be a range of subjects."""
    ordered = postgres_db.execute(
        "SELECT DISTINCT i.indrelid::regclass || '.' || a.attname FROM pg_index i "
        "CROSS JOIN unnest(i.indkey) AS k (column_number) "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.column_number "
        "JOIN pg_collation c ON c.oid = a.attcollation "
        "WHERE i.indrelid::regclass::text SIMILAR TO '(tape\\_|bus\\.)%' AND c.collname <> 'C'"
    ).fetchall()
    assert ordered == []
