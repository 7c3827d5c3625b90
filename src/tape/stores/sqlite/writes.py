"""What a SQLite file keeps of writes in bulk; see `ports.writes`."""

import sqlite3
from collections.abc import Sequence

from tape.model.bulk_write import Write, WriteList
from tape.stores.sqlite.connection import transaction
from tape.stores.sqlite.turn import SQL

DISCARDED_AT_ONCE = 16
"""Every chunk is some hundred pages to free while others wait for the file."""


def get_write(db: sqlite3.Connection, write_id: str) -> Write | None:
    row = db.execute(SQL["get_write"], (write_id,)).fetchone()
    return Write(*row) if row else None


def get_write_list(db: sqlite3.Connection, write_id: str, epoch: int) -> WriteList | None:
    row = db.execute(SQL["get_write_list"], (write_id, epoch)).fetchone()
    return WriteList(*row) if row else None


def get_chunk(db: sqlite3.Connection, *key: str | int) -> bytes | None:
    row = db.execute(SQL["get_chunk"], key).fetchone()
    return row[0] if row else None


def discard_parts(db: sqlite3.Connection, write_id: str, epoch: int, parts: Sequence[str]) -> None:
    for part in parts:
        db.execute(SQL["discard_part"], (write_id, epoch, part))


def discard_staged(
    db: sqlite3.Connection, write_id: str, upto_epoch: int, older_than_ms: int
) -> int:
    params = (write_id, upto_epoch, older_than_ms, DISCARDED_AT_ONCE)
    return db.execute(SQL["discard_staged"], params).rowcount


def forget_write(db: sqlite3.Connection, write_id: str, upto_epoch: int, *, wholly: bool) -> None:
    with transaction(db):
        db.execute(SQL["forget_write_lists"], (write_id, upto_epoch))
        if wholly:
            db.execute(SQL["forget_write"], (write_id, upto_epoch))
