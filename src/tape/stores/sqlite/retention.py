"""Removing old entries from a SQLite file; see `ports.retention`."""

import sqlite3

from tape.ports.retention import Extent, Hold, PruneStep, Retention, StepDone
from tape.stores.retained import count_kept, refuse_gap, step_limit
from tape.stores.sqlite.connection import quick_transaction
from tape.stores.sqlite.turn import SQL, as_json


def read_pruned_through(db: sqlite3.Connection) -> int:
    (pruned,) = db.execute(SQL["read_pruned_through"]).fetchone()
    return int(pruned)


def read_retention(db: sqlite3.Connection) -> Retention:
    (first,) = db.execute(SQL["read_tail"]).fetchone()
    (head,) = db.execute(SQL["read_head"]).fetchone()
    return Retention(read_pruned_through(db), first, head, _read_holds(db))


def prune(db: sqlite3.Connection, step: PruneStep) -> StepDone:
    with quick_transaction(db):  # undone by a crash, it is simply done again
        pruned = read_pruned_through(db)
        refuse_gap(step, pruned)
        (head,) = db.execute(SQL["read_head"]).fetchone()
        limit = step_limit(step, head, _read_holds(db))
        if limit <= step.after:
            return StepDone(step.after, 0, pruned, {})
        found = (step.after, limit, step.most)
        count, last = db.execute(SQL["find_prune_end"], found).fetchone()
        through = last if count == step.most else limit
        kept = db.execute(SQL["find_kept"], (step.after, through)).fetchall()
        numbers = as_json([seq for seq, _why in kept])
        gone = db.execute(SQL["prune_entries"], (step.after, through, numbers)).rowcount
        db.execute(SQL["advance_pruned"], (through,))
    return StepDone(through, gone, max(pruned, through), count_kept(kept))


def measure(db: sqlite3.Connection, after: int, upto: int) -> Extent:
    return Extent(*db.execute(SQL["measure_range"], (after, upto)).fetchone())


def _read_holds(db: sqlite3.Connection) -> list[Hold]:
    return [Hold(*row) for row in db.execute(SQL["read_holds"])]
