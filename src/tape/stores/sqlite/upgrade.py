"""Applying migrations on request, the `post` ones too."""

import asyncio
import contextlib
from pathlib import Path

from tape.config import SqliteSettings
from tape.stores.sqlite.connection import connect, translated
from tape.stores.sqlite.migrate import migrate


async def upgrade(path: Path, settings: SqliteSettings, *, with_post: bool) -> list[str]:
    """Bring the file up to date; the names of what was applied."""
    return await asyncio.to_thread(_upgrade, path, settings, with_post=with_post)


def _upgrade(path: Path, settings: SqliteSettings, *, with_post: bool) -> list[str]:
    with translated(path), contextlib.closing(connect(path, settings.busy_s)) as db:
        return migrate(db, with_post=with_post)
