"""Applying migrations to a SQLite file; safe when several processes start at once."""

import contextlib
import sqlite3
import time
from pathlib import Path

from tape.settings import SqliteSettings
from tape.stores.migrations import (
    RECORDS,
    AppliedMigration,
    NumberSequence,
    Upgraded,
    load_migrations,
    log_newer,
    pending,
    record_of,
    refuse_outdated,
    refuse_strays,
)
from tape.stores.sqlite.connection import (
    APPLICATION_ID,
    connect,
    refuse_foreign,
    transaction,
    translated,
)
from tape.stores.sqlite.turn import SQL

_RECORD = """CREATE TABLE IF NOT EXISTS {} (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
  applied_at_ms INTEGER NOT NULL)"""
_INSERT = "INSERT INTO {} (number, name, checksum, applied_at_ms) VALUES (?, ?, ?, ?)"
_READ = "SELECT number, name, checksum FROM {} ORDER BY 1"


def migrate(connection: sqlite3.Connection, *, with_post: bool = False) -> list[str]:
    """Bring the file up to date; the names of what was applied."""
    with transaction(connection):
        return _apply(connection, with_post=with_post)


def check_current(connection: sqlite3.Connection) -> list[str]:
    """Refuse a file that `migrate` would have something to do on; nothing is applied."""
    refuse_outdated(load_migrations("tape.stores.sqlite"), applied_migrations(connection))
    return []


def applied_migrations(connection: sqlite3.Connection) -> list[AppliedMigration]:
    """What is recorded, or a refusal if the file belongs to something else."""
    tables = refuse_foreign(connection)
    applied = [
        AppliedMigration(number, name, checksum, must_be_known)
        for table, must_be_known in RECORDS
        if table in tables
        for number, name, checksum in connection.execute(_READ.format(table))
    ]
    if not any(record.must_be_known for record in applied):
        refuse_strays(tables)
    return applied


def _apply(connection: sqlite3.Connection, *, with_post: bool) -> list[str]:
    applied = applied_migrations(connection)
    known = load_migrations("tape.stores.sqlite")
    todo = pending(known, applied, with_post=with_post)
    log_newer(known, applied)
    if not applied:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for table in {record_of(migration): None for migration in todo}:
        connection.execute(_RECORD.format(table))
    for migration in todo:
        for statement in migration.statements:
            connection.execute(statement)
        connection.execute(
            _INSERT.format(record_of(migration)),
            (migration.number, migration.name, migration.checksum, time.time_ns() // 1_000_000),
        )
    return [migration.name for migration in todo]


def upgrade(path: Path, settings: SqliteSettings, *, with_post: bool) -> Upgraded:
    """Bring the file up to date with nothing else open on it by us."""
    with translated(path), contextlib.closing(connect(path, settings.busy_s)) as connection:
        names = migrate(connection, with_post=with_post)
        with transaction(connection):
            return Upgraded(names, _mend(connection))


def read_sequences(connection: sqlite3.Connection) -> list[NumberSequence]:
    return [NumberSequence(*row) for row in connection.execute(SQL["read_sequences"])]


def _mend(connection: sqlite3.Connection) -> list[NumberSequence]:
    """Have sequences go on after the highest number in use; those that were behind it."""
    behind = [sequence for sequence in read_sequences(connection) if sequence.is_behind]
    for sequence in behind:
        connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (sequence.name,))
        connection.execute(
            "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (sequence.name, sequence.used)
        )
    return behind
