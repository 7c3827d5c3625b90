"""A turn to write: alone with the file's write lock, load, decide, write, commit."""

import sqlite3
import time
from typing import Any, NamedTuple

import orjson

from tape.model.entry import Draft
from tape.model.move import Place, State, Table
from tape.model.task import QUEUE
from tape.model.value import VALUES, Value
from tape.ports.store import Decide
from tape.stores.rows import changed_rows, numbered_rows
from tape.stores.sqlite.connection import insert_many, transaction
from tape.stores.statements import load_statements

SQL = load_statements("tape.stores.sqlite")


class Turn(NamedTuple):
    """What came of it: its entries and where they are, and whether it queued tasks."""

    place: Place
    entries: list[Draft]
    queued: bool


def take_turn(
    db: sqlite3.Connection, keys: dict[Table[Any, Any], list[tuple[Any, ...]]], decide: Decide
) -> Turn:
    with transaction(db):
        (head,) = db.execute(SQL["take_turn"]).fetchone()
        state = State(now_ms(), head + 1)
        for table, wanted in keys.items():
            make = value_of if table is VALUES else table.row
            rows = db.execute(SQL[f"load_{table.name}"], (as_json(wanted),))
            state.put_loaded(table, (make(*row) for row in rows))
        decide(state)
        _write(db, state)
    return Turn(Place(head + 1, state.now_ms), state.entries, bool(state.saves.get(QUEUE)))


def _write(db: sqlite3.Connection, state: State) -> None:
    insert_many(
        db,
        SQL["append_entries"],
        numbered_rows(state.entries, state.next_global_seq, state.now_ms),
    )
    for verb, table, rows in changed_rows(state):
        if verb == "save":
            insert_many(db, SQL[f"save_{table.name}"], rows)
        else:
            db.execute(SQL[f"delete_{table.name}"], (as_json(rows),))


def as_json(rows: object) -> str:
    """Many rows or keys as one parameter, for json_each."""
    return orjson.dumps(rows, default=tuple).decode()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def value_of(*row: Any) -> Value:
    """SQLite has no booleans."""
    return Value(*row)._replace(deleted=bool(row[-1]))
