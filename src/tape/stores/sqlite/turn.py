"""A turn to write: alone with the file's write lock, load, decide, write, commit."""

import sqlite3
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

import orjson

from tape.model.entry import Draft
from tape.model.move import Place, State, Table
from tape.model.task import QUEUE
from tape.ports.clock import Clock
from tape.ports.store import Decide
from tape.stores.rows import changed_rows, numbered_rows
from tape.stores.sqlite.connection import insert_many, transaction
from tape.stores.statements import load_statements

T = TypeVar("T")

SQL = load_statements("tape.stores.sqlite")


class Turn(NamedTuple):
    """What came of it: its entries and where they are, and whether it queued tasks."""

    place: Place
    entries: list[Draft]
    queued: bool


def take_turn(
    db: sqlite3.Connection,
    keys: dict[Table[Any, Any], list[tuple[Any, ...]]],
    decide: Decide,
    clock: Clock,
) -> Turn:
    with transaction(db):
        (head,) = db.execute(SQL["take_turn"]).fetchone()
        state = State(clock(), head + 1)
        for table, wanted in keys.items():
            make = maker(table.row)
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


def maker(kind: Callable[..., T]) -> Callable[..., T]:
    """Makes rows of a named tuple from a statement's columns: SQLite has no booleans."""
    flags = _flags(kind)
    if not flags:
        return kind

    def make(*row: Any) -> T:
        columns = list(row)
        for place in flags:
            columns[place] = bool(columns[place])
        return kind(*columns)

    return make


@cache
def _flags(kind: Callable[..., Any]) -> list[int]:
    return [place for place, of in enumerate(kind.__annotations__.values()) if of is bool]
