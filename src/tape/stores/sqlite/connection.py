"""Opening a SQLite file the way a journal needs it, and its errors in our words."""

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from tape.errors import StoreFailed, StoreFull, StoreMismatch, StoreUnavailable, TapeError

APPLICATION_ID = 0x54415045  # "TAPE", in the file's header
STATEMENT_CACHE = 256
CHECKPOINT_PAGES = 4000  # 16 MB of log; the default of 4 MB makes a busy writer sync twice as often
READ_CACHE_KIB = 2_000  # SQLite's own default
WRITE_CACHE_KIB = 16_000  # what 500 new runs change, each on pages of its own
# Few sizes, so that few statements are kept prepared; few statements, so that a batch seldom waits
# for the interpreter lock.
ROWS_PER_INSERT = (1000, 250, 50, 10, 2, 1)

_VALUES = re.compile(r"VALUES (\([?, ]+\))")

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NOT_OURS = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def is_read_only(path: Path) -> bool:
    """Whether a file is there that we can only read: by its mode, or by its file system."""
    if not path.exists():
        return False
    log, index = _beside(path)
    can_write_beside = os.access(path.absolute().parent, os.W_OK) or (
        os.access(log, os.W_OK) and os.access(index, os.W_OK)
    )
    return not (os.access(path, os.W_OK) and can_write_beside)


def reading_uri(path: Path) -> str:
    """Opens a file for reading.

    Where nothing can be written, SQLite reads the log beside the file through an index that has to
    be there. Without a log nobody has the file open, and it is read as it is.
    """
    log, index = _beside(path)
    has_log = log.exists() and (index.exists() or log.stat().st_size > 0)
    how = "immutable=1" if is_read_only(path) and not has_log else "mode=ro"
    return f"file:{quote(str(path.absolute()))}?{how}"


def _beside(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def connect(path: Path, busy_s: float, *, cache_kib: int = READ_CACHE_KIB) -> sqlite3.Connection:
    """A connection in WAL mode whose commits are on the disk when they return. To a file that can
    only be read, one that reads."""
    reads_only = is_read_only(path)
    if not reads_only:
        _create_for_owner(path)
    connection = sqlite3.connect(
        reading_uri(path) if reads_only else path,
        uri=reads_only,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENT_CACHE,
    )
    try:
        refuse_foreign(connection)  # before the first PRAGMA that would change somebody else's file
        if reads_only:
            return connection
        with retry_while_busy(busy_s) as attempt:
            attempt(lambda: connection.execute("PRAGMA journal_mode = WAL"))
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    except BaseException:
        connection.close()
        raise
    return connection


def _create_for_owner(path: Path) -> None:
    """A new file is its owner's alone; SQLite gives its log and index the same mode."""
    with contextlib.suppress(OSError):  # it is there, or SQLite says why it cannot be
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def refuse_foreign(connection: sqlite3.Connection) -> list[str]:
    """The tables of a file that is ours or new; a refusal if it belongs to something else."""
    # In this order: whoever makes the tables marks the file in the same transaction.
    tables = [
        n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application not in (0, APPLICATION_ID) or (application == 0 and tables):
        raise StoreMismatch(
            "this SQLite file belongs to another application; give Tape its own file"
        )
    return tables


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Take the file's write lock before looking, commit at the end, leave nothing on a fault."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk ends it by itself
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def quick_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One that a power loss may undo, for what is then simply done again.

    The log keeps its order: whatever is committed durably later takes this along.
    """
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        with transaction(connection):
            yield
    finally:
        connection.execute("PRAGMA synchronous = FULL")


@contextlib.contextmanager
def retry_while_busy(busy_s: float) -> Iterator[Callable[[Callable[[], object]], None]]:
    """SQLite does not call its busy handler for a change of journal mode, so several processes
    that open a new file at once need this."""
    give_up = time.monotonic() + busy_s

    def attempt(action: Callable[[], object]) -> None:
        while True:
            try:
                action()
            except sqlite3.OperationalError as error:
                if _primary(error) not in _BUSY or time.monotonic() > give_up:
                    raise
                time.sleep(0.01)
            else:
                return

    yield attempt


def insert_many(
    connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[object, ...]]
) -> None:
    """Insert with many rows to a statement.

    `executemany` lets go of the interpreter lock at every row and, beside a busy thread, waits for
    it again each time: 1,000 rows/s where this makes 50,000, and 1.4 times slower even when alone.
    """
    if len(rows) == 1:
        connection.execute(statement, rows[0])
        return
    start = 0
    for size in ROWS_PER_INSERT:
        while len(rows) - start >= size:
            values = list(chain.from_iterable(rows[start : start + size]))
            connection.execute(_widened(statement, size), values)
            start += size


@cache
def _widened(statement: str, rows: int) -> str:
    return _VALUES.sub(lambda match: "VALUES " + ", ".join([match[1]] * rows), statement)


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Driver errors become ours here and nowhere else."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, path) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise StoreFailed(f"SQLite cannot hold this value: {error}") from error


def _cannot_open_or_write(code: int, path: Path) -> TapeError:
    if code == sqlite3.SQLITE_READONLY:
        return StoreFailed(
            f"{path} can only be read: it, its folder or its file system is read-only; nothing "
            "was written"
        )
    if is_read_only(path):
        return StoreUnavailable(
            f"cannot read {path} where nothing can be written: it has a log (-wal) without its "
            "index (-shm); copy both files to a folder that can be written"
        )
    return StoreUnavailable(
        f"cannot open {path}: does its folder exist, and may this process write there?"
    )


def _primary(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _translate(error: sqlite3.Error, path: Path) -> TapeError:
    code = _primary(error)
    if code in _BUSY:
        return StoreUnavailable(f"{path}: another process has been writing for too long ({error})")
    if code in _NOT_OURS:
        return StoreMismatch(f"{path} is not a usable SQLite database: {error}")
    # No room for the file's shared memory, as it happens when the disk was full before we came.
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE:
        code = sqlite3.SQLITE_FULL
    match code:
        case sqlite3.SQLITE_FULL:
            return StoreFull(f"{path}: the disk is full; nothing was written")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN:
            return _cannot_open_or_write(code, path)
        case sqlite3.SQLITE_IOERR:
            return StoreUnavailable(f"{path}: input/output error; nothing was written ({error})")
    return StoreFailed(f"{path}: {error}")
