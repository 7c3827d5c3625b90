"""What the matcher does to a SQLite file; see `ports.matching`."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tape.model.reaction import Reaction, ReactionCursor, ReactionState
from tape.model.task import QueuedTask, TaskKey, TaskStatus
from tape.ports.clock import Clock
from tape.ports.matching import MatcherLease, NewTask, Reactions, Step, StepResult
from tape.stores.sqlite.connection import insert_many, quick_transaction, transaction
from tape.stores.sqlite.turn import SQL, as_json, maker

_REACTION_COLUMNS = len(Reaction._fields)


class StepMade(NamedTuple):
    result: StepResult
    tasks: int


def acquire_matcher(
    db: sqlite3.Connection, owner: str, ttl_ms: int, clock: Clock
) -> MatcherLease | None:
    with transaction(db):
        row = db.execute(SQL["acquire_matcher"], (owner, clock(), ttl_ms)).fetchone()
    return MatcherLease(*row) if row else None


def release_matcher(db: sqlite3.Connection, lease: MatcherLease) -> None:
    with transaction(db):
        db.execute(SQL["release_matcher"], (lease.owner, lease.fencing_token))


def read_reactions(db: sqlite3.Connection) -> Reactions:
    (version,) = db.execute(SQL["read_book"]).fetchone()
    reactions = [Reaction(*row) for row in db.execute(SQL["read_reactions"])]
    return Reactions(
        version, reactions, [ReactionCursor(*r) for r in db.execute(SQL["read_cursors"])]
    )


def list_reactions(db: sqlite3.Connection) -> list[ReactionState]:
    return [_state_of(*row) for row in db.execute(SQL["list_reactions"])]


def _state_of(*row: object) -> ReactionState:
    reaction = Reaction(*row[:_REACTION_COLUMNS])  # type: ignore[arg-type]  # columns in their order
    return maker(ReactionState)(reaction, *row[_REACTION_COLUMNS:])


def make_step(db: sqlite3.Connection, step: Step, clock: Clock) -> StepMade:
    lease = step.lease
    with quick_transaction(db):
        if not db.execute(SQL["check_matcher"], (lease.fencing_token, lease.position)).fetchone():
            return StepMade("lost", 0)
        (version,) = db.execute(SQL["read_book"]).fetchone()
        if version != step.version:
            return StepMade("outdated", 0)
        now = clock()
        db.execute(SQL["advance_matcher"], (step.position, now + step.ttl_ms))
        if step.cursors:
            db.execute(SQL["advance_cursors"], (as_json(step.cursors), now))
        new = _unknown(db, step.tasks)
        _supersede(db, [task for task in new if task.debounce_ms > 0])
        insert_many(db, SQL["save_task_queue"], [_queued(task, now) for task in new])
        _count_queued(db, Counter(task.reaction_id for task in new))
    return StepMade("made", len(new))


def _unknown(db: sqlite3.Connection, tasks: Sequence[NewTask]) -> list[NewTask]:
    """Those that are neither queued nor ended."""
    if not tasks:
        return []
    by_key = {_key(task): task for task in tasks}
    for known in db.execute(SQL["find_known_tasks"], (as_json(list(by_key)),)):
        del by_key[TaskKey(*known)]
    return list(by_key.values())


def _supersede(db: sqlite3.Connection, tasks: list[NewTask]) -> None:
    """Take those out of the queue whose place these take."""
    if not tasks:
        return
    shards: dict[TaskKey, int] = {}
    for *key, shard in db.execute(SQL["find_superseded_tasks"], (as_json(tasks),)):
        shards[TaskKey(*key)] = shard
    if not shards:
        return
    db.execute(SQL["delete_task_queue"], (as_json(list(shards)),))
    _count_queued(db, Counter({r: -n for r, n in Counter(k.reaction_id for k in shards).items()}))
    coalesced = Counter((key.reaction_id, shard) for key, shard in shards.items())
    db.execute(SQL["count_coalesced"], (as_json([(*k, n) for k, n in coalesced.items()]),))


def _count_queued(db: sqlite3.Connection, counts: Counter[str]) -> None:
    if counts:
        db.execute(SQL["count_tasks"], (as_json([(r, n, 0) for r, n in counts.items()]),))


def _queued(task: NewTask, now: int) -> QueuedTask:
    waits = task.debounce_ms > 0
    return QueuedTask(
        *_key(task), TaskStatus.PENDING, 0, now + task.debounce_ms if waits else 0, "", 0, 0, "",
        task.subject if waits else "", task.source_ts_ms + task.debounce_ms if waits else 0, now,
    )  # fmt: skip


def _key(task: NewTask) -> TaskKey:
    return TaskKey(task.reaction_id, task.shard, task.source_global_seq)
