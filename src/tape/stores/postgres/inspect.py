"""Looking at a Postgres database without changing it."""

import contextlib
import time
from collections.abc import AsyncIterator

import asyncpg

from tape.config import PostgresSettings
from tape.stores.inspection import Inspection, Setting, steps_of
from tape.stores.migrations import load_migrations
from tape.stores.postgres.connection import connect_writer, translated
from tape.stores.postgres.migrate import applied_migrations

_WANTED = (
    ("fsync", "off loses or corrupts the journal in a crash"),
    ("full_page_writes", "off corrupts pages when the power fails in the middle of a write"),
    ("synchronous_commit", "an acknowledged write could be lost in a crash"),
)


async def inspect(url: str, settings: PostgresSettings) -> Inspection:
    """Asked on a session like the writer's, so that the settings are those that writes have."""
    with translated(url):
        async with _session(url, settings) as db:
            version = db.get_server_version()
            found = [
                Setting(name, await db.fetchval(f"SHOW {name}"), "on", advice)
                for name, advice in _WANTED
            ]
            applied = await applied_migrations(db)
            size = await db.fetchval("SELECT pg_database_size(current_database())")
            before = time.time()
            clock = await db.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
            skew = clock - (before + time.time()) / 2
    steps = steps_of(load_migrations("tape.stores.postgres"), applied)
    server = f"Postgres {version.major}.{version.minor}"
    return Inspection(server, True, found, steps, size, round(skew * 1000), None)


@contextlib.asynccontextmanager
async def _session(url: str, settings: PostgresSettings) -> AsyncIterator[asyncpg.Connection]:
    connection, _backend = await connect_writer(url, settings)
    try:
        yield connection
    finally:
        await connection.close()
