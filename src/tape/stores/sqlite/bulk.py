"""A SQLite file by the column, through ADBC.

The driver brings a SQLite of its own, and POSIX locks do not hold between two copies of SQLite in
one process: whoever closes the file in one of them takes away the other's locks. So a reader is
for processes that do not have the file open otherwise, as Spark's Python workers.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from adbc_driver_manager import Error, OperationalError
from adbc_driver_sqlite import StatementOptions
from adbc_driver_sqlite.dbapi import Connection, connect

from tape.errors import StoreFailed, StoreMismatch, StoreUnavailable
from tape.ports.bulk import Bounds, Scan
from tape.stores.scan import (
    COLUMNS,
    CONDITIONS,
    READ_S,
    conditions_sql,
    ends_of,
    entry_columns,
    even_rows,
    refuse_pruned,
    table_sql,
)
from tape.stores.sqlite.connection import reading_uri
from tape.stores.statements import PREDICATE, load_statements

SQL: Final = load_statements("tape.stores.sqlite")
RELATIONS: Final = {
    "outbox": "bus_outbox",
    "processed": "bus_processed",
    "sequences": f"({SQL['read_given_out'].rstrip(';')}) AS sequences",
}
_STARTS: Final = "substr({column}, 1, {length}) = {value}"
_NOT_OURS: Final = re.compile(r"no such (table|column)|file is not a database")


class SqliteReader:
    """See `ports.bulk.BulkReader`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.is_file():
            raise StoreUnavailable(f"cannot open {path}: there is no such file on this machine")
        with self._translated():
            # Without autocommit every look until the next rollback is at one state of the file.
            self._db: Connection = connect(reading_uri(path))
            self._rows(f"PRAGMA busy_timeout = {READ_S * 1000:.0f}")

    def bounds(self) -> Bounds:
        with self._translated():
            self._db.rollback()
            ((first, head),) = self._rows(SQL["read_bounds"])
            return Bounds(first, head, self._pruned_through())

    def cut(self, after: int, upto: int, rows: int) -> list[int]:
        if after >= upto:
            return []
        with self._translated():
            self._db.rollback()
            found = self._rows(SQL["cut_range"], after, upto, even_rows(after, upto, rows))
            return ends_of((end for (end,) in found), upto)

    def reach(self, after: int, entries: int) -> int | None:
        with self._translated():
            self._db.rollback()
            found = self._rows(SQL["reach_entries"], after, entries)
            return found[0][0] if found else None

    def scan(self, scan: Scan, batch_rows: int) -> Iterator[pa.RecordBatch]:
        params: list[object] = [scan.after, scan.upto]

        def put(value: str | int) -> str:
            params.append(value)
            return "?"

        text = SQL["scan_entries"].replace(COLUMNS, entry_columns(scan.columns))
        if scan.conditions:
            text = text.replace(CONDITIONS, conditions_sql(scan.conditions, put, _STARTS))
        condition = scan.predicate.sql_prefilter("sqlite") if scan.predicate else None
        if condition is not None:
            text = text.replace(PREDICATE, f"({condition.text}) IS NOT FALSE")
            params.extend(condition.params)
        with self._translated():
            self._db.rollback()
            refuse_pruned(scan.after, self._pruned_through())
            yield from self._batches(text, params, batch_rows)

    def read_table(
        self, name: str, batch_rows: int, columns: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        text = table_sql(SQL, name, columns, RELATIONS)
        with self._translated():
            self._db.rollback()
            yield from self._batches(text, [], batch_rows)

    def close(self) -> None:
        self._db.close()

    def _pruned_through(self) -> int:
        ((through,),) = self._rows(SQL["read_pruned_through"])
        return int(through)

    def _batches(self, text: str, params: list[object], rows: int) -> Iterator[pa.RecordBatch]:
        with self._db.cursor() as cursor:
            cursor.adbc_statement.set_options(**{StatementOptions.BATCH_ROWS.value: str(rows)})
            cursor.execute(text, params or None)
            for batch in cursor.fetch_record_batch():
                if batch.num_rows:
                    yield batch

    def _rows(self, text: str, *params: object) -> list[tuple[Any, ...]]:
        with self._db.cursor() as cursor:
            cursor.execute(text, params or None)
            return cursor.fetchall()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Driver errors become ours here and nowhere else."""
        try:
            yield
        except Error as error:
            if _NOT_OURS.search(str(error)):
                raise StoreMismatch(
                    f"{self._path} is not a journal, or is not up to date"
                ) from error
            kind = StoreUnavailable if isinstance(error, OperationalError) else StoreFailed
            raise kind(f"{self._path} cannot be read: {error}") from error
