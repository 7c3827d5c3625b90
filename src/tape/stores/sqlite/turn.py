"""A turn to write: alone with the file's write lock, load, decide, write, commit.

If no other connection has committed anything since the last turn, which SQLite tells, what that one
left of runs is still so, and the last number given out as well: neither is read again. See
`tape.stores.guesses`.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import orjson

from tape.model.effect import EFFECTS
from tape.model.entry import EntryDraft
from tape.model.move import EntryPlace, Need, State, Table
from tape.model.run import RUNS, Run
from tape.model.task import QUEUE
from tape.ports.clock import Clock
from tape.ports.store import Decide
from tape.stores.guesses import GUESSABLE, Guess, Guesses, Keys
from tape.stores.rows import changed_rows, group_needs, numbered_rows
from tape.stores.sqlite.connection import insert_many, transaction
from tape.stores.statements import load_statements

T = TypeVar("T")

SQL = load_statements("tape.stores.sqlite")
# The same without what they do if there is such a row.
_INSERTS: dict[Table[Any, Any], str] = {
    table: SQL[f"save_{table.name}"].partition("ON CONFLICT")[0] for table in GUESSABLE
}
_STATUS = Run._fields.index("status")


class Turn(NamedTuple):
    """What came of it: its entries and where they are, and whether it queued tasks."""

    place: EntryPlace
    entries: list[EntryDraft]
    queued: bool


class SqliteTurns:
    """The turns of one connection, and what it remembers of runs from one to the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guesses = Guesses()
        self._version: int | None = None
        self._head = 0

    def take(self, db: sqlite3.Connection, needs: Sequence[Need], decide: Decide) -> Turn:
        keys = group_needs(needs)
        try:
            return self._take(db, keys, decide, needs)
        except sqlite3.IntegrityError:  # what a guess took not to be there may be there
            return self._take(db, keys, decide)

    def _take(
        self,
        db: sqlite3.Connection,
        keys: Keys,
        decide: Decide,
        guessing: Sequence[Need] | None = None,
    ) -> Turn:
        version, self._version = self._version, None  # until this turn has come to its end
        with transaction(db):
            (now,) = db.execute("PRAGMA data_version").fetchone()
            if now != version:  # another connection has committed something
                self._guesses.forget()
                (self._head,) = db.execute(SQL["take_turn"]).fetchone()
            state, guess = self._decided(db, keys, decide, guessing)
            _write(db, state, guess)
        place = EntryPlace(self._head + 1, state.now_ms)
        self._head += len(state.entries)
        self._guesses.note(state)
        self._version = now
        return Turn(place, state.entries, bool(state.saves.get(QUEUE)))

    def _decided(
        self, db: sqlite3.Connection, keys: Keys, decide: Decide, guessing: Sequence[Need] | None
    ) -> tuple[State, Guess | None]:
        guess = None
        if guessing:
            known = {table: keys[table] for table in keys if table in GUESSABLE}
            guess = self._guesses.guess(known, guessing)
        if guess is not None:
            state = State(self._clock(), self._head + 1)
            state.put_loaded(RUNS, guess.runs)
            state.put_loaded(EFFECTS, guess.effects)
            _load(db, state, {table: keys[table] for table in keys if table not in GUESSABLE})
            decide(state)
            if guess.is_borne_out(state):
                return state, guess
        state = State(self._clock(), self._head + 1)
        _load(db, state, keys)
        decide(state)
        return state, None


def _load(db: sqlite3.Connection, state: State, keys: Keys) -> None:
    for table, wanted in keys.items():
        make = maker(table.row)
        rows = db.execute(SQL[f"load_{table.name}"], (as_json(wanted),))
        state.put_loaded(table, (make(*row) for row in rows))


def _write(db: sqlite3.Connection, state: State, guess: Guess | None) -> None:
    insert_many(
        db,
        SQL["append_entries"],
        numbered_rows(state.entries, state.next_global_seq, state.now_ms),
    )
    for verb, table, rows in changed_rows(state):
        if verb == "delete":
            db.execute(SQL[f"delete_{table.name}"], (as_json(rows),))
        elif guess is not None and table in GUESSABLE:
            _write_guessed(db, table, rows, guess)
        else:
            insert_many(db, SQL[f"save_{table.name}"], rows)


def _write_guessed(
    db: sqlite3.Connection, table: Table[Any, Any], rows: list[tuple[Any, ...]], guess: Guess
) -> None:
    """Rows that are there are changed; the others are inserted, which fails if they are there."""
    there: dict[Any, tuple[Any, ...]] = {}
    if table is RUNS:
        there = {run.run_id: run for run in guess.runs}
    elif table is EFFECTS:
        there = {(row.run_id, row.idempotency_key): row for row in guess.effects}
    changed = [row for row in rows if table.key(row) in there]
    if table is RUNS:
        for row in changed:
            same = there[row[0]][_STATUS] == row[_STATUS]
            db.execute(SQL["advance_runs" if same else "save_runs"], row)
    else:
        insert_many(db, SQL[f"save_{table.name}"], changed)
    if len(changed) < len(rows):
        new = [row for row in rows if table.key(row) not in there]
        if table is RUNS:  # their ids are digests: in order, each page of an index is met once
            new.sort()
        insert_many(db, _INSERTS[table], new)


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
    fields: dict[str, Any] = getattr(kind, "__annotations__", {})
    return [place for place, of in enumerate(fields.values()) if of is bool]
