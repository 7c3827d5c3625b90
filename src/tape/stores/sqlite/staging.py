"""Staging in a SQLite file from Spark's Python workers.

Through ADBC like their reads: one process may not hold a file open through two copies of SQLite
(see `bulk`), and a worker that writes may have read from the same file before.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from adbc_driver_manager import Error
from adbc_driver_sqlite.dbapi import Connection, connect

from tape.errors import StoreFailed, StoreFull, StoreMismatch, StoreUnavailable, TapeError
from tape.ports.bulk import Chunk
from tape.settings import SqliteSettings
from tape.stores.statements import load_statements

SQL = load_statements("tape.stores.sqlite")
_AWAY = re.compile(r"locked|busy|unable to open|disk I/O error")
_NOT_OURS = re.compile(r"no such (table|column)|not a database|malformed")


class SqliteStaging:
    """See `ports.bulk.Staging`."""

    def __init__(self, path: Path, settings: SqliteSettings) -> None:
        self._path = path
        if not path.is_file():
            raise StoreUnavailable(f"cannot open {path}: there is no such file on this machine")
        with self._translated():
            where = f"file:{quote(str(path.absolute()))}?mode=rw"
            self._db: Connection = connect(where, autocommit=True)
            self._do(f"PRAGMA busy_timeout = {settings.busy_s * 1000:.0f}")
            self._do("PRAGMA synchronous = FULL")

    def stage(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            self._do(SQL["stage_chunk"], *chunk)

    def discard(self, write_id: str, epoch: int, parts: Sequence[str]) -> None:
        for part in parts:
            self._do(SQL["discard_part"], write_id, epoch, part)

    def close(self) -> None:
        self._db.close()

    def _do(self, text: str, *params: str | int | bytes) -> None:
        with self._translated(), self._db.cursor() as cursor:
            cursor.execute(text, params or None)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Driver errors become ours here and nowhere else."""
        try:
            yield
        except Error as error:
            raise self._translate(str(error)) from error

    def _translate(self, said: str) -> TapeError:
        if _NOT_OURS.search(said):
            return StoreMismatch(f"{self._path} is not a journal, or is not up to date: {said}")
        if "disk is full" in said:
            return StoreFull(f"{self._path}: the disk is full; nothing was written")
        kind = StoreUnavailable if _AWAY.search(said) else StoreFailed
        return kind(f"{self._path} cannot be written to: {said}")
