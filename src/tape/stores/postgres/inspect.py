"""Looking at a Postgres database for its operator, without changing it."""

import time

from tape.settings import PostgresSettings
from tape.stores.migrations import RecordedState, load_migrations, pending
from tape.stores.postgres.connection import connect_writer, translated
from tape.stores.postgres.migrate import applied_migrations, read_sequences

_DURABILITY = ("synchronous_commit", "fsync", "full_page_writes")


async def inspect(url: str, settings: PostgresSettings) -> RecordedState:
    """The settings are as the writer's own sessions have them. `skew_ms` is how far the server's
    clock is ahead of ours."""
    with translated(url):
        connection, _backend = await connect_writer(url, settings)
        try:
            version = connection.get_server_version()
            facts: dict[str, str | int] = {"server": f"Postgres {version.major}.{version.minor}"}
            for name in _DURABILITY:
                facts[name] = await connection.fetchval(f"SHOW {name}")
            facts["bytes"] = await connection.fetchval(
                "SELECT pg_database_size(current_database())"
            )
            before = time.time()
            theirs = await connection.fetchval(
                "SELECT extract(epoch FROM clock_timestamp())::float8"
            )
            facts["skew_ms"] = round((theirs - (before + time.time()) / 2) * 1000)
            applied = await applied_migrations(connection)
            is_current = not pending(
                load_migrations("tape.stores.postgres"), applied, with_post=False
            )
            return RecordedState(
                facts, applied, await read_sequences(connection) if is_current else []
            )
        finally:
            await connection.close()
