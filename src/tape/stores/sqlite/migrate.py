"""Applying migrations to a SQLite file; safe when several processes start at once."""

import contextlib
import sqlite3
import time
from pathlib import Path

from tape.config import SqliteSettings
from tape.stores.migrations import Applied, load_migrations, pending, refuse_outdated, refuse_strays
from tape.stores.sqlite.connection import (
    APPLICATION_ID,
    connect,
    refuse_foreign,
    transaction,
    translated,
)

_RECORD = """CREATE TABLE tape_migrations (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
  applied_at_ms INTEGER NOT NULL)"""


def migrate(connection: sqlite3.Connection, *, with_post: bool = False) -> list[str]:
    """Bring the file up to date; the names of what was applied."""
    with transaction(connection):
        return _apply(connection, with_post=with_post)


def check_current(connection: sqlite3.Connection) -> list[str]:
    """Refuse a file that `migrate` would have something to do on; nothing is applied."""
    refuse_outdated(load_migrations("tape.stores.sqlite"), applied_migrations(connection))
    return []


def applied_migrations(connection: sqlite3.Connection) -> list[Applied]:
    """What is recorded, or a refusal if the file belongs to something else."""
    tables = refuse_foreign(connection)
    if "tape_migrations" in tables:
        rows = connection.execute("SELECT number, name, checksum FROM tape_migrations ORDER BY 1")
        if applied := [Applied(*row) for row in rows]:
            return applied
    refuse_strays(tables)
    return []


def _apply(connection: sqlite3.Connection, *, with_post: bool) -> list[str]:
    applied = applied_migrations(connection)
    todo = pending(load_migrations("tape.stores.sqlite"), applied, with_post=with_post)
    if not applied:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(_RECORD)
    for migration in todo:
        for statement in migration.statements:
            connection.execute(statement)
        connection.execute(
            "INSERT INTO tape_migrations VALUES (?, ?, ?, ?)",
            (migration.number, migration.name, migration.checksum, time.time_ns() // 1_000_000),
        )
    return [migration.name for migration in todo]


def upgrade(path: Path, settings: SqliteSettings, *, with_post: bool) -> list[str]:
    """Bring the file up to date with nothing else open on it by us."""
    with translated(path), contextlib.closing(connect(path, settings.busy_s)) as connection:
        return migrate(connection, with_post=with_post)
