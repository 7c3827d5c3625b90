"""Applying migrations on request, the `post` ones too."""

from tape.config import PostgresSettings
from tape.stores.postgres.connection import connect_reader, translated
from tape.stores.postgres.migrate import migrate


async def upgrade(url: str, settings: PostgresSettings, *, with_post: bool) -> list[str]:
    """Bring the database up to date; the names of what was applied."""
    with translated(url):
        connection = await connect_reader(url, settings)
        try:
            return await migrate(connection, with_post=with_post)
        finally:
            await connection.close()
