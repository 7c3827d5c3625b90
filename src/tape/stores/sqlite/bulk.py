"""A SQLite file by the column."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from tape.errors import StoreUnavailable
from tape.ports.bulk import Bounds, Scan
from tape.stores.scan import (
    COLUMNS,
    CONDITIONS,
    conditions_sql,
    ends_of,
    entry_columns,
    even_rows,
    refuse_pruned,
    table_sql,
)
from tape.stores.sqlite.bulk_drivers import AdbcDriver, BulkConnection, PythonDriver
from tape.stores.statements import PREDICATE, load_statements

SQL: Final = load_statements("tape.stores.sqlite")
RELATIONS: Final = {
    "outbox": "bus_outbox",
    "processed": "bus_processed",
    "sequences": f"({SQL['read_given_out'].rstrip(';')}) AS sequences",
}
_STARTS: Final = "substr({column}, 1, {length}) = {value}"


class SqliteReader:
    """See `ports.bulk.BulkReader`."""

    def __init__(self, path: Path, *, is_alone: bool = True) -> None:
        if not path.is_file():
            raise StoreUnavailable(f"cannot open {path}: there is no such file on this machine")
        self._db: BulkConnection = AdbcDriver(path) if is_alone else PythonDriver(path)

    def bounds(self) -> Bounds:
        with self._db.translated():
            self._db.begin()
            ((first, head),) = self._db.rows(SQL["read_bounds"])
            return Bounds(first, head, self._pruned_through())

    def cut(self, after: int, upto: int, rows: int) -> list[int]:
        if after >= upto:
            return []
        with self._db.translated():
            self._db.begin()
            found = self._db.rows(SQL["cut_range"], after, upto, even_rows(after, upto, rows))
            return ends_of((end for (end,) in found), upto)

    def reach(self, after: int, entries: int) -> int | None:
        with self._db.translated():
            self._db.begin()
            found = self._db.rows(SQL["reach_entries"], after, entries)
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
        with self._db.translated():
            self._db.begin()
            refuse_pruned(scan.after, self._pruned_through())
            yield from self._db.batches(text, params, batch_rows)

    def read_table(
        self, name: str, batch_rows: int, columns: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        text = table_sql(SQL, name, columns, RELATIONS)
        with self._db.translated():
            self._db.begin()
            yield from self._db.batches(text, [], batch_rows)

    def close(self) -> None:
        self._db.close()

    def _pruned_through(self) -> int:
        ((through,),) = self._db.rows(SQL["read_pruned_through"])
        return int(through)
