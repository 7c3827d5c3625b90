"""The two ways to read a SQLite file by the column: through ADBC, and through Python's own SQLite.

ADBC is twice as fast, and brings a SQLite of its own. POSIX locks do not hold between two copies of
SQLite in one process: whoever closes the file in one of them takes away the other's locks. So ADBC
is for processes that do not have the file open otherwise, as Spark's Python workers.
"""

import contextlib
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
from adbc_driver_manager import Error, OperationalError
from adbc_driver_sqlite import StatementOptions
from adbc_driver_sqlite import dbapi as adbc

from tape.errors import StoreFailed, StoreMismatch, StoreUnavailable
from tape.stores.scan import READ_S
from tape.stores.sqlite.connection import reading_uri, translated

BATCH_BYTES: Final = 1024 * 1024
_NOT_OURS: Final = re.compile(r"no such (table|column)|file is not a database")


class BulkConnection(Protocol):
    """A connection. All that is read until the next `begin` is of one state of the file."""

    def translated(self) -> contextlib.AbstractContextManager[None]:
        """Driver errors become ours here and nowhere else."""

    def begin(self) -> None: ...

    def rows(self, text: str, *params: object) -> list[tuple[Any, ...]]: ...

    def batches(
        self, text: str, params: Sequence[object], rows: int
    ) -> Iterator[pa.RecordBatch]: ...

    def close(self) -> None: ...


class AdbcDriver:
    """For a process that does not have the file open otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self.translated():
            self._db = adbc.connect(reading_uri(path))
            self.rows(f"PRAGMA busy_timeout = {READ_S * 1000:.0f}")

    def begin(self) -> None:
        self._db.rollback()  # without autocommit the next look begins a transaction

    def rows(self, text: str, *params: object) -> list[tuple[Any, ...]]:
        with self._db.cursor() as cursor:
            cursor.execute(text, params or None)
            return cursor.fetchall()

    def batches(self, text: str, params: Sequence[object], rows: int) -> Iterator[pa.RecordBatch]:
        with self._db.cursor() as cursor:
            cursor.adbc_statement.set_options(**{StatementOptions.BATCH_ROWS.value: str(rows)})
            cursor.execute(text, params or None)
            for batch in cursor.fetch_record_batch():
                if batch.num_rows:
                    yield batch

    def close(self) -> None:
        self._db.close()

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except Error as error:
            if _NOT_OURS.search(str(error)):
                raise StoreMismatch(
                    f"{self._path} is not a journal, or is not up to date"
                ) from error
            kind = StoreUnavailable if isinstance(error, OperationalError) else StoreFailed
            raise kind(f"{self._path} cannot be read: {error}") from error


class PythonDriver:
    """For a process that may have the file open as a store, or as its own database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self.translated():
            self._db = sqlite3.connect(
                reading_uri(path), uri=True, timeout=READ_S, isolation_level=None
            )

    def begin(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._db.execute("BEGIN")

    def rows(self, text: str, *params: object) -> list[tuple[Any, ...]]:
        return self._db.execute(text, params).fetchall()

    def batches(self, text: str, params: Sequence[object], rows: int) -> Iterator[pa.RecordBatch]:
        cursor = self._db.execute(text, params)
        names = [name for name, *_ in cursor.description]
        for group in _grouped(cursor, rows):
            columns = [pa.array(values) for values in zip(*group, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names)

    def close(self) -> None:
        self._db.close()

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        try:
            with translated(self._path):
                yield
        except pa.ArrowException as error:
            raise StoreFailed(f"{self._path} cannot be read by the column: {error}") from error
        except StoreFailed as error:
            if _NOT_OURS.search(str(error)):
                raise StoreMismatch(
                    f"{self._path} is not a journal, or is not up to date"
                ) from error
            raise


def _grouped(rows: Iterable[tuple[Any, ...]], most: int) -> Iterator[list[tuple[Any, ...]]]:
    """Groups of at most so many rows, smaller ones where rows are large."""
    held: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        held.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(held) == most or size >= BATCH_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held
