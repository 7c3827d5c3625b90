"""Looking at a SQLite file for its operator, without changing it and without making it."""

import asyncio
import contextlib
import shutil
import sqlite3
from pathlib import Path
from urllib.parse import quote

from tape.errors import StoreUnavailable
from tape.settings import SqliteSettings
from tape.stores.migrations import (
    AppliedMigration,
    RecordedState,
    load_migrations,
    no_store,
    pending,
)
from tape.stores.sqlite.connection import connect, is_read_only, reading_uri, translated
from tape.stores.sqlite.migrate import applied_migrations, read_sequences

FAULTS_TOLD = 5
_SYNCHRONOUS = ("off", "normal", "full", "extra")


async def inspect(path: Path, settings: SqliteSettings) -> RecordedState:
    """The settings are as Tape's own connections have them. A file that is not there yet has none,
    nor has one that can only be read: `reads_only`."""
    return await asyncio.to_thread(_inspect, path, settings)


def _inspect(path: Path, settings: SqliteSettings) -> RecordedState:
    folder = path.absolute().parent
    if not folder.is_dir():
        raise StoreUnavailable(f"cannot open {path}: its folder does not exist")
    facts: dict[str, str | int] = {
        "server": f"SQLite {sqlite3.sqlite_version}",
        "free_bytes": shutil.disk_usage(folder).free,
    }
    if not path.exists():
        return RecordedState(facts, [], [])
    facts["bytes"] = path.stat().st_size
    with translated(path):
        applied = _recorded(path)
        with contextlib.closing(connect(path, settings.busy_s)) as db:
            facts["quick_check"] = _quick_check(db)
            if is_read_only(path):
                facts["reads_only"] = 1
            else:
                (facts["journal_mode"],) = db.execute("PRAGMA journal_mode").fetchone()
                (synchronous,) = db.execute("PRAGMA synchronous").fetchone()
                facts["synchronous"] = _SYNCHRONOUS[synchronous]
            known = load_migrations("tape.stores.sqlite")
            is_current = not pending(known, applied, with_post=False)
            is_readable = is_current and facts["quick_check"] == "ok"
            return RecordedState(facts, applied, read_sequences(db) if is_readable else [])


def _quick_check(db: sqlite3.Connection) -> str:
    """`ok`, or what is wrong with the file."""
    try:
        return "; ".join(fault for (fault,) in db.execute(f"PRAGMA quick_check({FAULTS_TOLD})"))
    except sqlite3.OperationalError:  # it is busy, or cannot be read at all
        raise
    except sqlite3.DatabaseError as error:
        return str(error)


def _recorded(path: Path) -> list[AppliedMigration]:
    """Asked on a plain connection first: ours would switch somebody else's file to WAL."""
    uri = f"file:{quote(str(path.absolute()))}?mode=rw"
    if is_read_only(path):
        uri = reading_uri(path)
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
