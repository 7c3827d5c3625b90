"""Looking at a SQLite file without changing it, and without making it."""

import asyncio
import contextlib
import shutil
import sqlite3
from pathlib import Path
from urllib.parse import quote

from tape.config import SqliteSettings
from tape.errors import StoreUnavailable
from tape.stores.inspection import Inspection, Setting, steps_of
from tape.stores.migrations import Applied, load_migrations
from tape.stores.sqlite.connection import connect, translated
from tape.stores.sqlite.migrate import applied_migrations

_WAL = "without WAL readers block the writer; is the file on a network file system?"
_FULL = "an acknowledged write could be lost when the power fails"
_SYNCHRONOUS = ("off", "normal", "full", "extra")


async def inspect(path: Path, settings: SqliteSettings) -> Inspection:
    return await asyncio.to_thread(_inspect, path, settings)


def _inspect(path: Path, settings: SqliteSettings) -> Inspection:
    folder = path.absolute().parent
    if not folder.is_dir():
        raise StoreUnavailable(f"cannot open {path}: its folder does not exist")
    known = load_migrations("tape.stores.sqlite")
    server = f"SQLite {sqlite3.sqlite_version}"
    free = shutil.disk_usage(folder).free
    if not path.exists():
        return Inspection(server, False, [], steps_of(known, []), 0, None, free)
    with translated(path):
        steps = steps_of(known, _recorded(path))
        with contextlib.closing(connect(path, settings.busy_s)) as db:
            (journal,) = db.execute("PRAGMA journal_mode").fetchone()
            (synchronous,) = db.execute("PRAGMA synchronous").fetchone()
    found = [
        Setting("journal_mode", journal, "wal", _WAL),
        Setting("synchronous", _SYNCHRONOUS[synchronous], "full", _FULL),
    ]
    return Inspection(server, True, found, steps, _size(path), None, free)


def _recorded(path: Path) -> list[Applied]:
    """Asked on a plain connection first: ours would switch somebody else's file to WAL."""
    uri = f"file:{quote(str(path.absolute()))}?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as db:
        return applied_migrations(db)


def _size(path: Path) -> int:
    wal = path.with_name(path.name + "-wal")
    return path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)
