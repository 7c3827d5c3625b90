"""Looking at a SQLite file for its operator, without changing it and without making it."""

import asyncio
import contextlib
import shutil
import sqlite3
from pathlib import Path
from urllib.parse import quote

from tape.config import SqliteSettings
from tape.errors import StoreUnavailable
from tape.stores.migrations import Applied, no_store
from tape.stores.sqlite.connection import connect, translated
from tape.stores.sqlite.migrate import applied_migrations

_SYNCHRONOUS = ("off", "normal", "full", "extra")


async def inspect(
    path: Path, settings: SqliteSettings
) -> tuple[dict[str, str | int], list[Applied]]:
    """Facts by name, with the settings as Tape's own connections have them, and the migrations
    recorded. A file that is not there yet has no settings."""
    return await asyncio.to_thread(_inspect, path, settings)


def _inspect(path: Path, settings: SqliteSettings) -> tuple[dict[str, str | int], list[Applied]]:
    folder = path.absolute().parent
    if not folder.is_dir():
        raise StoreUnavailable(f"cannot open {path}: its folder does not exist")
    facts: dict[str, str | int] = {
        "server": f"SQLite {sqlite3.sqlite_version}",
        "free_bytes": shutil.disk_usage(folder).free,
    }
    if not path.exists():
        return facts, []
    with translated(path):
        applied = _recorded(path)
        with contextlib.closing(connect(path, settings.busy_s)) as db:
            (facts["journal_mode"],) = db.execute("PRAGMA journal_mode").fetchone()
            (synchronous,) = db.execute("PRAGMA synchronous").fetchone()
    facts["synchronous"] = _SYNCHRONOUS[synchronous]
    facts["bytes"] = path.stat().st_size
    return facts, applied


def _recorded(path: Path) -> list[Applied]:
    """Asked on a plain connection first: ours would switch somebody else's file to WAL."""
    uri = f"file:{quote(str(path.absolute()))}?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as db:
        return applied_migrations(db)


def refuse_absent(path: Path) -> None:
    """Refuse a file that is not there, or that has nothing in it."""
    if path.exists():
        # One that cannot be read like this is there; opening it says what is wrong with it.
        with translated(path), contextlib.suppress(sqlite3.OperationalError):
            if not path.is_file() or _recorded(path):
                return
            raise no_store(f"sqlite:{path}")
        return
    raise no_store(f"sqlite:{path}")
