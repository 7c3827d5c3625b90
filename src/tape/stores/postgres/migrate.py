"""Applying migrations to a Postgres database; safe when several servers start at once."""

import asyncpg

from tape.errors import StoreMismatch
from tape.settings import PostgresSettings
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
from tape.stores.postgres.connection import OLDEST_SERVER, connect_reader, translated
from tape.stores.postgres.turn import SQL

# Any number that is not the journal's: a starting server must not wait behind a busy writer.
_LOCK = "SELECT pg_advisory_xact_lock(7879, 0)"
_RECORD = """CREATE TABLE IF NOT EXISTS {} (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
  applied_at TIMESTAMPTZ NOT NULL DEFAULT now())"""
_INSERT = "INSERT INTO {} (number, name, checksum) VALUES ($1, $2, $3)"
_READ = "SELECT number, name, checksum FROM {} ORDER BY 1"
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"


async def migrate(connection: asyncpg.Connection, *, with_post: bool = False) -> list[str]:
    """Bring the database up to date; the names of what was applied."""
    version = connection.get_server_version().major
    if version < OLDEST_SERVER:
        raise StoreMismatch(f"Postgres {version} is too old: Tape needs {OLDEST_SERVER} or newer")
    async with connection.transaction():
        await connection.execute(_LOCK)
        applied = await applied_migrations(connection)
        known = load_migrations("tape.stores.postgres")
        todo = pending(known, applied, with_post=with_post)
        log_newer(known, applied)
        for table in {record_of(migration): None for migration in todo}:
            await connection.execute(_RECORD.format(table))
        for migration in todo:
            await connection.execute(migration.text)
            await connection.execute(
                _INSERT.format(record_of(migration)),
                migration.number,
                migration.name,
                migration.checksum,
            )
    return [migration.name for migration in todo]


async def check_current(connection: asyncpg.Connection) -> None:
    """Refuse a database that `migrate` would have something to do on; nothing is applied."""
    refuse_outdated(load_migrations("tape.stores.postgres"), await applied_migrations(connection))


async def applied_migrations(connection: asyncpg.Connection) -> list[AppliedMigration]:
    tables = [row[0] for row in await connection.fetch(_TABLES)]
    applied = [
        AppliedMigration(number, name, checksum, must_be_known)
        for table, must_be_known in RECORDS
        if table in tables
        for number, name, checksum in await connection.fetch(_READ.format(table))
    ]
    if not any(record.must_be_known for record in applied):
        refuse_strays(tables)
    return applied


async def upgrade(url: str, settings: PostgresSettings, *, with_post: bool) -> Upgraded:
    """Bring the database up to date over a session of its own."""
    with translated(url):
        connection = await connect_reader(url, settings)
        try:
            names = await migrate(connection, with_post=with_post)
            return Upgraded(names, await _mend(connection))
        finally:
            await connection.close()


async def read_sequences(connection: asyncpg.Connection) -> list[NumberSequence]:
    return [NumberSequence(*row) for row in await connection.fetch(SQL["read_sequences"])]


async def _mend(connection: asyncpg.Connection) -> list[NumberSequence]:
    """Have sequences go on after the highest number in use; those that were behind it."""
    async with connection.transaction():
        await connection.execute("SELECT tape_take_turn()")  # keeps writers out until it is done
        behind = [sequence for sequence in await read_sequences(connection) if sequence.is_behind]
        for sequence in behind:
            await connection.execute("SELECT setval($1, $2)", sequence.name, sequence.used)
    return behind
