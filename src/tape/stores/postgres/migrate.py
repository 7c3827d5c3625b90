"""Applying migrations to a Postgres database; safe when several servers start at once."""

import asyncpg

from tape.config import PostgresSettings
from tape.errors import StoreMismatch
from tape.stores.migrations import Applied, load_migrations, pending, refuse_outdated, refuse_strays
from tape.stores.postgres.connection import OLDEST_SERVER, connect_reader, translated

# Any number that is not the journal's: a starting server must not wait behind a busy writer.
_LOCK = "SELECT pg_advisory_xact_lock(7879, 0)"
_RECORD = """CREATE TABLE tape_migrations (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
  applied_at TIMESTAMPTZ NOT NULL DEFAULT now())"""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"


async def migrate(connection: asyncpg.Connection, *, with_post: bool = False) -> list[str]:
    """Bring the database up to date; the names of what was applied."""
    version = connection.get_server_version().major
    if version < OLDEST_SERVER:
        raise StoreMismatch(f"Postgres {version} is too old: Tape needs {OLDEST_SERVER} or newer")
    async with connection.transaction():
        await connection.execute(_LOCK)
        applied = await applied_migrations(connection)
        todo = pending(load_migrations("tape.stores.postgres"), applied, with_post=with_post)
        if not applied:
            await connection.execute(_RECORD)
        for migration in todo:
            await connection.execute(migration.text)
            await connection.execute(
                "INSERT INTO tape_migrations VALUES ($1, $2, $3)",
                migration.number,
                migration.name,
                migration.checksum,
            )
    return [migration.name for migration in todo]


async def check_current(connection: asyncpg.Connection) -> None:
    """Refuse a database that `migrate` would have something to do on; nothing is applied."""
    refuse_outdated(load_migrations("tape.stores.postgres"), await applied_migrations(connection))


async def applied_migrations(connection: asyncpg.Connection) -> list[Applied]:
    tables = [row[0] for row in await connection.fetch(_TABLES)]
    if "tape_migrations" in tables:
        rows = await connection.fetch(
            "SELECT number, name, checksum FROM tape_migrations ORDER BY 1"
        )
        if rows:
            return [Applied(*row) for row in rows]
    refuse_strays(tables)
    return []


async def upgrade(url: str, settings: PostgresSettings, *, with_post: bool) -> list[str]:
    """Bring the database up to date over a session of its own."""
    with translated(url):
        connection = await connect_reader(url, settings)
        try:
            return await migrate(connection, with_post=with_post)
        finally:
            await connection.close()
