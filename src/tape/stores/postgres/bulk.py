"""A database on Postgres by the column, through ADBC.

The driver reads by COPY, which is what makes it fast and keeps it from holding a whole result in
memory; COPY takes no parameters, so values are written out. Entries come many to a row where that
can be: see `packed`.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from adbc_driver_manager import Error, OperationalError
from adbc_driver_postgresql import StatementOptions  # type: ignore[import-untyped]  # no py.typed
from adbc_driver_postgresql.dbapi import Connection, connect  # type: ignore[import-untyped]

from tape.errors import StoreFailed, StoreMismatch, StoreUnavailable
from tape.ports.bulk import Bounds, Scan
from tape.stores.postgres.connection import address
from tape.stores.postgres.packed import Unpackable, packed_columns, rows_to_pack, unpacked
from tape.stores.scan import (
    COLUMNS,
    CONDITIONS,
    conditions_sql,
    ends_of,
    entry_columns,
    even_rows,
    refuse_pruned,
    sliced,
    table_sql,
)
from tape.stores.statements import PREDICATE, load_statements

SQL: Final = load_statements("tape.stores.postgres")
RELATIONS: Final = {
    "outbox": "bus.outbox",
    "processed": "bus.processed",
    "sequences": f"({SQL['read_given_out'].rstrip(';')}) AS sequences",
}
BATCH_BYTES: Final = 16 * 1024 * 1024
PACKED_BYTES: Final = 2 * 1024 * 1024
# A text of a gigabyte, or more memory than there is.
_TOO_LARGE: Final = ("54000", "53200", "XX000")
_STARTS: Final = "starts_with({column}, {value})"
_PARAMETER: Final = re.compile(r"\$([0-9]+)")
_NO_TABLE: Final = re.compile(r"(relation|column) .* does not exist")
_SESSION: Final = (
    "SET application_name TO 'tape bulk'",
    "SET client_encoding TO 'UTF8'",
    # Without it a backslash in a value would not stand for itself.
    "SET standard_conforming_strings TO on",
    "SET default_transaction_isolation TO 'repeatable read'",
    "SET default_transaction_read_only TO on",
    "SET jit TO off",
    # The range of an index in its own order, whatever the statistics say: see connection.py.
    "SET enable_seqscan TO off",
    "SET enable_bitmapscan TO off",
    "SET enable_sort TO off",
    "SET enable_incremental_sort TO off",
)


class PostgresReader:
    """See `ports.bulk.BulkReader`."""

    def __init__(self, url: str) -> None:
        self._address = address(url)
        with self._translated():
            self._db: Connection = connect(url, autocommit=True)
            for setting in _SESSION:
                self._do(setting)
            # From here on every look until the next rollback is at one state of the database.
            self._db.adbc_connection.set_autocommit(False)

    def bounds(self) -> Bounds:
        with self._translated():
            self._db.adbc_connection.rollback()
            ((first, head),) = self._rows(SQL["read_bounds"])
            return Bounds(first, head, self._pruned_through())

    def cut(self, after: int, upto: int, rows: int) -> list[int]:
        if after >= upto:
            return []
        with self._translated():
            self._db.adbc_connection.rollback()
            found = self._rows(SQL["cut_range"], after, upto, even_rows(after, upto, rows))
            return ends_of((end for (end,) in found), upto)

    def reach(self, after: int, entries: int) -> int | None:
        with self._translated():
            self._db.adbc_connection.rollback()
            found = self._rows(SQL["reach_entries"], after, entries)
            return found[0][0] if found else None

    def scan(self, scan: Scan, batch_rows: int) -> Iterator[pa.RecordBatch]:
        with self._translated():
            self._begin(scan)
            if _is_looked_up(scan):
                yield from self._plain(scan, batch_rows)
            else:
                yield from self._unpacked(scan, batch_rows)

    def _unpacked(self, scan: Scan, batch_rows: int) -> Iterator[pa.RecordBatch]:
        done = scan.after
        try:
            for packed in self._packed(scan):
                yield from sliced([unpacked(packed, scan.columns)], batch_rows)
                done = packed.column("packed_last")[-1].as_py()
        except Unpackable:
            pass
        except Error as error:
            if error.sqlstate not in _TOO_LARGE:
                raise
        else:
            return
        # A later state of the database has the same entries, or it is refused.
        rest = scan._replace(after=done)
        self._begin(rest)
        yield from self._plain(rest, batch_rows)

    def _begin(self, scan: Scan) -> None:
        self._db.adbc_connection.rollback()
        refuse_pruned(scan.after, self._pruned_through())

    def _plain(self, scan: Scan, batch_rows: int) -> Iterator[pa.RecordBatch]:
        text = SQL["scan_entries"].replace(COLUMNS, entry_columns(scan.columns))
        text = _with_conditions(written_out(text, (scan.after, scan.upto)), scan)
        yield from sliced(self._batches(text, BATCH_BYTES), batch_rows)

    def _packed(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        ((size,),) = self._rows(SQL["measure_rows"], scan.after, scan.upto)
        text = SQL["scan_packed"].replace(COLUMNS, packed_columns(scan.columns))
        text = written_out(text, (scan.after, scan.upto, rows_to_pack(size)))
        return self._batches(_with_conditions(text, scan), PACKED_BYTES)

    def read_table(
        self, name: str, batch_rows: int, columns: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        text = table_sql(SQL, name, columns, RELATIONS)
        with self._translated():
            self._db.adbc_connection.rollback()
            yield from sliced(self._batches(text, BATCH_BYTES), batch_rows)

    def close(self) -> None:
        self._db.close()

    def _pruned_through(self) -> int:
        ((through,),) = self._rows(SQL["read_pruned_through"])
        return int(through)

    def _batches(self, text: str, size: int) -> Iterator[pa.RecordBatch]:
        with self._db.cursor() as cursor:
            cursor.adbc_statement.set_options(
                **{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(size)}
            )
            cursor.execute(text.rstrip(";"))
            yield from cursor.fetch_record_batch()

    def _rows(self, text: str, *params: object) -> list[tuple[Any, ...]]:
        with self._db.cursor() as cursor:
            cursor.execute(written_out(text, params).rstrip(";"))
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

    def _do(self, text: str) -> None:
        with self._db.cursor() as cursor:
            cursor.execute(text)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Driver errors become ours here and nowhere else."""
        try:
            yield
        except Error as error:
            if _NO_TABLE.search(str(error)):
                raise StoreMismatch(f"{self._address} has no journal, or an old one") from error
            kind = StoreUnavailable if isinstance(error, OperationalError) else StoreFailed
            raise kind(f"{self._address} cannot be read: {error}") from error


def _is_looked_up(scan: Scan) -> bool:
    """Whether an index other than the journal's order finds the few entries there are."""
    return any(
        column in ("run_id", "idempotency_key") and operator in ("=", "in")
        for column, operator, _ in scan.conditions
    )


def _with_conditions(text: str, scan: Scan) -> str:
    if scan.conditions:
        text = text.replace(CONDITIONS, conditions_sql(scan.conditions, literal, _STARTS))
    condition = scan.predicate.sql_prefilter("postgres") if scan.predicate else None
    if condition is not None:
        decided = written_out(condition.text, condition.params)
        text = text.replace(PREDICATE, f"({decided}) IS NOT FALSE")
    return text


def written_out(text: str, params: Sequence[object]) -> str:
    """The statement with its parameters in their places."""
    return _PARAMETER.sub(lambda found: literal(params[int(found[1]) - 1]), text)


def literal(value: object) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value) if value >= 0 else f"({value})"
        case str() if "\x00" not in value:
            return "'" + value.replace("'", "''") + "'"
        case _:
            raise StoreFailed(f"Postgres has no such value: {value!r}")
