"""What the matcher does to a SQLite file; see `ports.matching`."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tape.model.reaction import Reaction, ReactionCursor, ReactionState, Tally
from tape.model.task import QueuedTask, TaskKey, TaskStatus
from tape.ports.clock import Clock
from tape.ports.matching import (
    CursorMove,
    CursorStep,
    MatcherLease,
    MatchStep,
    NewTask,
    Queued,
    QueueTasks,
    RegisteredReactions,
    StepResult,
)
from tape.stores.bell import Bell
from tape.stores.retained import recallable, refuse_absent
from tape.stores.sqlite.connection import insert_many, quick_transaction, transaction
from tape.stores.sqlite.pool import SqlitePool
from tape.stores.sqlite.turn import SQL, as_json, maker

_REACTION_COLUMNS = len(Reaction._fields)


class _StepMade(NamedTuple):
    result: StepResult
    tasks: int


class SqliteMatching:
    def __init__(self, reads: SqlitePool, writes: SqlitePool, clock: Clock, bell: Bell) -> None:
        self._reads = reads
        self._writes = writes
        self._clock = clock
        self._bell = bell

    async def acquire_matcher(self, owner: str, ttl_ms: int) -> MatcherLease | None:
        def acquire(db: sqlite3.Connection) -> MatcherLease | None:
            with transaction(db):
                params = (owner, self._clock(), ttl_ms)
                row = db.execute(SQL["acquire_matcher"], params).fetchone()
            return MatcherLease(*row) if row else None

        return await self._writes.use(acquire)

    async def release_matcher(self, lease: MatcherLease) -> None:
        await self._writes.execute("release_matcher", lease.owner, lease.fencing_token)

    async def read_reactions(self) -> RegisteredReactions:
        def read(db: sqlite3.Connection) -> RegisteredReactions:
            version, _resharded_at = db.execute(SQL["read_book"]).fetchone()
            return RegisteredReactions(
                version,
                [Reaction(*row) for row in db.execute(SQL["read_reactions"])],
                [ReactionCursor(*row) for row in db.execute(SQL["read_cursors"])],
            )

        return await self._reads.at_once(read)

    async def make_step(self, step: MatchStep) -> StepResult:
        made = await self._writes.use(lambda db: _make_step(db, step, self._clock))
        if made.tasks:
            self._bell.ring()
        return made.result

    async def queue_tasks(self, step: QueueTasks) -> Queued:
        queued = await self._writes.use(lambda db: _queue_tasks(db, step, self._clock))
        if queued.made:
            self._bell.ring()
        return queued

    async def list_reactions(self) -> list[ReactionState]:
        return await self._reads.rows(_state_of, "list_reactions")


def _state_of(*row: object) -> ReactionState:
    reaction = Reaction(*row[:_REACTION_COLUMNS])  # type: ignore[arg-type]  # columns in their order
    return maker(ReactionState)(reaction, *row[_REACTION_COLUMNS:])


def _make_step(db: sqlite3.Connection, step: MatchStep, clock: Clock) -> _StepMade:
    lease = step.lease
    with quick_transaction(db):
        if not db.execute(SQL["check_matcher"], (lease.fencing_token, lease.position)).fetchone():
            return _StepMade("lost", 0)
        version, resharded_at = db.execute(SQL["read_book"]).fetchone()
        if version != step.version:
            return _StepMade("outdated", 0)
        now = clock()
        db.execute(SQL["advance_matcher"], (step.position, now + step.ttl_ms))
        if step.cursors:
            db.execute(SQL["advance_cursors"], (as_json(step.cursors), now))
        if step.put_off:
            db.execute(SQL["put_off_reactions"], (as_json(step.put_off),))
        new = _unknown(db, step.tasks, resharded_at)
        _supersede(db, [task for task in new if task.debounce_ms > 0])
        insert_many(db, SQL["save_task_queue"], [_queued(task, now) for task in new])
        _count_queued(db, Counter(task.reaction_id for task in new))
    return _StepMade("made", len(new))


def _queue_tasks(db: sqlite3.Connection, step: QueueTasks, clock: Clock) -> Queued:
    with transaction(db):
        version, _resharded_at = db.execute(SQL["read_book"]).fetchone()
        if version != step.version:
            return Queued("outdated", {})
        if db.execute(SQL["find_moved_cursors"], (as_json(step.moves),)).fetchone():
            return Queued("lost", {})
        _recall(db, step)
        now = clock()
        if step.moves:
            db.execute(SQL["advance_cursors"], (as_json(list(map(_as_step, step.moves))), now))
        new = _nowhere(db, step.tasks)
        new = _without_overtaken(db, new, counted=bool(step.moves))
        _supersede(db, [task for task in new if task.debounce_ms > 0], earlier=True)
        insert_many(db, SQL["save_task_queue"], [_queued(task, now) for task in new])
        made = Counter(task.reaction_id for task in new)
        _count_queued(db, made)
        if not step.moves and new:
            db.execute(SQL["count_matched"], (as_json(list(map(_key, new))),))
    return Queued("made", made)


def _recall(db: sqlite3.Connection, step: QueueTasks) -> None:
    """Bring the tasks' entries back, or refuse."""
    (pruned_through,) = db.execute(SQL["read_pruned_through"]).fetchone()
    if back := recallable(step.entries, pruned_through):
        insert_many(db, SQL["recall_entries"], back)
    old = [t.source_global_seq for t in step.tasks if t.source_global_seq <= pruned_through]
    if old:
        refuse_absent(db.execute(SQL["find_absent"], (as_json(old),)).fetchone()[0])


def _as_step(move: CursorMove) -> CursorStep:
    return CursorStep(move.reaction_id, move.shard, move.last_global_seq, 0, *move[4:])


def _nowhere(db: sqlite3.Connection, tasks: Sequence[NewTask]) -> list[NewTask]:
    """Those that are neither queued nor ended in any shard that their reaction ever had."""
    ids = sorted({task.reaction_id for task in tasks})
    tallies = db.execute(SQL["load_reaction_tallies"], (as_json([[one] for one in ids]),))
    shards = {tally.reaction_id: tally.shards for tally in (Tally(*row) for row in tallies)}
    by_entry = {(task.reaction_id, task.source_global_seq): task for task in tasks}
    keys = [
        (reaction_id, shard, source)
        for reaction_id, source in by_entry
        for shard in range(shards[reaction_id])
    ]
    for reaction_id, _shard, source in db.execute(SQL["find_known_tasks"], (as_json(keys),)):
        by_entry.pop((reaction_id, source), None)
    return list(by_entry.values())


def _without_overtaken(
    db: sqlite3.Connection, tasks: list[NewTask], *, counted: bool
) -> list[NewTask]:
    """Without those whose burst has gone on, in a task that still waits."""
    debounced = [task for task in tasks if task.debounce_ms > 0]
    overtaken = {
        TaskKey(*row) for row in db.execute(SQL["find_overtaken_tasks"], (as_json(debounced),))
    }
    if counted and overtaken:
        counts = Counter((key.reaction_id, key.shard) for key in overtaken)
        db.execute(SQL["count_coalesced"], (as_json([(*k, n) for k, n in counts.items()]),))
    return [task for task in tasks if _key(task) not in overtaken] if overtaken else tasks


def _unknown(db: sqlite3.Connection, tasks: Sequence[NewTask], resharded_at: int) -> list[NewTask]:
    """Those that are neither queued nor ended; in which shard is certain only after the last change
    of shards."""
    if not tasks:
        return []
    if min(task.source_global_seq for task in tasks) <= resharded_at:
        old = [task for task in tasks if task.source_global_seq <= resharded_at]
        later = [task for task in tasks if task.source_global_seq > resharded_at]
        return [*_nowhere(db, old), *_unknown(db, later, resharded_at)]
    by_key = {_key(task): task for task in tasks}
    for known in db.execute(SQL["find_known_tasks"], (as_json(list(by_key)),)):
        del by_key[TaskKey(*known)]
    return list(by_key.values())


def _supersede(db: sqlite3.Connection, tasks: list[NewTask], *, earlier: bool = False) -> None:
    """Take those out of the queue whose place these take; with `earlier`, only of such entries."""
    if not tasks:
        return
    shards: dict[TaskKey, int] = {}
    for *key, shard, source in db.execute(SQL["find_superseded_tasks"], (as_json(tasks),)):
        found = TaskKey(*key)
        if not earlier or found.source_global_seq < source:
            shards[found] = shard
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
