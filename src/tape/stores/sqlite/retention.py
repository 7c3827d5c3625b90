"""Removing old entries from a SQLite file; see `ports.retention`."""

import sqlite3

from tape.ports.retention import Extent, PruneStep, Retention, RetentionHold, StepDone
from tape.stores.recent import Recent
from tape.stores.retained import count_kept, refuse_gap, step_limit
from tape.stores.sqlite.connection import quick_transaction
from tape.stores.sqlite.pool import SqlitePool
from tape.stores.sqlite.turn import SQL, as_json


class SqliteRetention:
    def __init__(self, reads: SqlitePool, writes: SqlitePool, recent: Recent) -> None:
        self._reads = reads
        self._writes = writes
        self._recent = recent

    async def read_pruned_through(self) -> int:
        return await self._reads.use(_read_pruned_through)

    async def read_retention(self) -> Retention:
        def read(db: sqlite3.Connection) -> Retention:
            (first,) = db.execute(SQL["read_tail"]).fetchone()
            (head,) = db.execute(SQL["read_head"]).fetchone()
            return Retention(_read_pruned_through(db), first, head, _read_holds(db))

        return await self._reads.at_once(read)

    async def prune(self, step: PruneStep) -> StepDone:
        done = await self._writes.use(lambda db: _prune(db, step))
        self._recent.forget(done.through)
        return done

    async def measure(self, after: int, upto: int) -> Extent:
        (extent,) = await self._reads.rows(Extent, "measure_range", after, upto)
        return extent


def _prune(db: sqlite3.Connection, step: PruneStep) -> StepDone:
    with quick_transaction(db):  # undone by a crash, it is simply done again
        pruned = _read_pruned_through(db)
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


def _read_pruned_through(db: sqlite3.Connection) -> int:
    (pruned,) = db.execute(SQL["read_pruned_through"]).fetchone()
    return int(pruned)


def _read_holds(db: sqlite3.Connection) -> list[RetentionHold]:
    return [RetentionHold(*row) for row in db.execute(SQL["read_holds"])]
