"""What dispatchers do to the queue of tasks in a SQLite file; see `ports.tasks`."""

import sqlite3
import time
from collections import Counter
from collections.abc import Sequence

from tape.model.rate import allowed_starts
from tape.model.task import EndedTask, Task, TaskKey, TaskStatus
from tape.ports.clock import Clock
from tape.ports.tasks import Claim, Settlement, Want
from tape.stores.bell import Bell
from tape.stores.sqlite.connection import insert_many, quick_transaction, transaction
from tape.stores.sqlite.pool import SqlitePool
from tape.stores.sqlite.turn import SQL, as_json
from tape.stores.task_rows import listings, merged, start_after, task_of

JUST_NOW_MS = 20
"""A task that became due between a claim and the question when the next one is."""

_ANY = (0, 2**31 - 1)


class SqliteTasks:
    def __init__(self, reads: SqlitePool, writes: SqlitePool, clock: Clock, bell: Bell) -> None:
        self._reads = reads
        self._writes = writes
        self._clock = clock
        self._bell = bell

    async def claim_tasks(self, claim: Claim) -> list[Task]:
        return await self._writes.use(lambda db: _claim_tasks(db, claim, self._clock))

    async def extend_tasks(
        self, owner: str, lease_ms: int, keys: Sequence[TaskKey]
    ) -> list[TaskKey]:
        def extend(db: sqlite3.Connection) -> list[TaskKey]:
            with transaction(db):
                until_ms = self._clock() + lease_ms
                rows = db.execute(SQL["extend_tasks"], (as_json(keys), owner, until_ms))
                return [TaskKey(*row) for row in rows]

        return await self._writes.use(extend)

    async def complete_tasks(self, owner: str, keys: Sequence[TaskKey]) -> Settlement:
        return await self._writes.use(lambda db: _complete_tasks(db, owner, keys, self._clock))

    async def read_expired(self, limit: int) -> list[TaskKey]:
        return await self._reads.rows(TaskKey, "read_expired", self._clock(), limit)

    async def read_known_reactions(self, reaction_ids: Sequence[str]) -> list[str]:
        return await self._reads.rows(str, "read_known_reactions", as_json(reaction_ids))

    async def read_next_due_ms(self, reaction_ids: Sequence[str]) -> int | None:
        return await self._reads.use(lambda db: _read_next_due_ms(db, reaction_ids, self._clock))

    async def get_task(self, key: TaskKey) -> Task | None:
        def read(db: sqlite3.Connection) -> Task | None:
            row = db.execute(SQL["get_task"], key).fetchone()
            return task_of(row) if row else None

        return await self._reads.use(read)

    async def list_tasks(
        self, reaction_id: str, status: TaskStatus | None, after: TaskKey | None, limit: int
    ) -> list[Task]:
        params = (*start_after(reaction_id, after), reaction_id, status or 0, limit)

        def read(db: sqlite3.Connection) -> list[Task]:
            found = [
                task_of(row) for name in listings(status) for row in db.execute(SQL[name], params)
            ]
            return merged(found, limit)

        return await self._reads.at_once(read)

    @property
    def task_bell(self) -> int:
        return self._bell.count

    async def await_tasks(self, heard: int, timeout_s: float) -> int:
        return await self._bell.wait(heard, timeout_s)


def _claim_tasks(db: sqlite3.Connection, claim: Claim, clock: Clock) -> list[Task]:
    wants = [(place, one) for place, want in enumerate(claim.wants) for one in _of_shards(db, want)]
    asked = as_json([(want.reaction_id, *_shards(want)) for _place, want in wants])
    # Without the lock first: those who ask in vain hold nobody up.
    claimable = [index for (index,) in db.execute(SQL["find_claimable"], (asked, clock()))]
    if not claimable:
        return []
    due: list[Task] = []
    fresh: list[Task] = []
    left = [want.most for want in claim.wants]
    with quick_transaction(db):
        for index in _another_first(claimable):
            place, want = wants[index]
            room = min(left[place], claim.most - len(due) - len(fresh))
            waited, never_waited = _claim(db, claim, want, room, clock)
            left[place] -= len(waited) + len(never_waited)
            due += waited
            fresh += never_waited
    return [*due, *sorted(fresh, key=_by_source)]


def _of_shards(db: sqlite3.Connection, want: Want) -> list[Want]:
    """Who wants a shard wants also those that its reaction had once and that are this one's now."""
    if want.shard < 0:
        return [want]
    has, had = db.execute(SQL["read_shards"], (want.reaction_id,)).fetchone() or (1, 0)
    gone = range(want.shard + has, had, has) if want.shard < has else ()
    return [want, *(want._replace(shard=shard) for shard in gone)]


def _claim(
    db: sqlite3.Connection, claim: Claim, want: Want, most: int, clock: Clock
) -> tuple[list[Task], list[Task]]:
    """Those that waited and those that never did."""
    limits = db.execute(SQL["read_room"], (want.reaction_id,)).fetchone()
    if limits is None:
        return [], []
    now = clock()
    free, rate, next_free_us = limits
    room = min(want.most, most, free)
    starts = allowed_starts(rate, next_free_us, now * 1000) if rate else None
    if starts is not None:
        room = min(room, starts.most)
    if room <= 0:
        return [], []
    due = _take_due(db, claim, want, now, room)
    fresh = _take_fresh(db, claim, want, now, room - len(due))
    if taken := len(due) + len(fresh):
        free_us = starts.free_us_after(taken) if starts is not None else next_free_us
        db.execute(SQL["count_claimed"], (want.reaction_id, taken, free_us))
    return due, fresh


def _take_due(db: sqlite3.Connection, claim: Claim, want: Want, now: int, room: int) -> list[Task]:
    rows = db.execute(SQL["read_due_tasks"], (want.reaction_id, *_shards(want), now, room))
    due = [_claimed(task_of(row), claim, now) for row in rows]
    if due:
        keys = as_json([task.key for task in due])
        db.execute(SQL["claim_due_tasks"], (keys, claim.owner, now + claim.lease_ms, now))
    return due


def _take_fresh(
    db: sqlite3.Connection, claim: Claim, want: Want, now: int, room: int
) -> list[Task]:
    found: list[Task] = []
    for shard in _fresh_shards(db, want):
        if len(found) >= room:
            break
        rows = db.execute(SQL["read_fresh_tasks"], (want.reaction_id, shard, room - len(found)))
        fresh = [_claimed(task_of(row), claim, now) for row in rows]
        if fresh:
            last = fresh[-1].source_global_seq
            db.execute(
                SQL["claim_fresh_tasks"],
                (want.reaction_id, shard, last, claim.owner, now + claim.lease_ms, now),
            )
        found += fresh
    return found


def _fresh_shards(db: sqlite3.Connection, want: Want) -> list[int]:
    if want.shard >= 0:
        return [want.shard]
    rows = db.execute(SQL["read_fresh_shards"], (want.reaction_id,))
    return _another_first([shard for (shard,) in rows])


def _another_first(places: list[int]) -> list[int]:
    """Beginning with another one each time, so that none starves."""
    first = time.time_ns() // 1000 % len(places) if places else 0
    return places[first:] + places[:first]


def _claimed(task: Task, claim: Claim, now: int) -> Task:
    return task._replace(
        status=TaskStatus.CLAIMED.value,
        attempts=task.attempts + 1,
        next_attempt_at_ms=0,
        lease_owner=claim.owner,
        lease_expires_at_ms=now + claim.lease_ms,
        claimed_at_ms=now,
    )


def _shards(want: Want) -> tuple[int, int]:
    return (want.shard, want.shard) if want.shard >= 0 else _ANY


def _complete_tasks(
    db: sqlite3.Connection, owner: str, keys: Sequence[TaskKey], clock: Clock
) -> Settlement:
    with transaction(db):
        rows = db.execute(SQL["complete_tasks"], (as_json(keys), owner)).fetchall()
        now, done = clock(), TaskStatus.DONE.value
        ended = [EndedTask._make((*row[:3], done, *row[4:], now, "")) for row in rows]
        insert_many(db, SQL["save_task_ended"], ended)
        queued = Counter(row[0] for row in rows)
        claimed = Counter(row[0] for row in rows if row[3] == TaskStatus.CLAIMED)
        if queued:
            counts = [(reaction, -n, -claimed[reaction]) for reaction, n in queued.items()]
            db.execute(SQL["count_tasks"], (as_json(counts),))
    taken = {TaskKey(*row[:3]) for row in rows}
    asked = dict.fromkeys(keys)
    return Settlement([k for k in asked if k in taken], [k for k in asked if k not in taken])


def _read_next_due_ms(
    db: sqlite3.Connection, reaction_ids: Sequence[str], clock: Clock
) -> int | None:
    now = clock()
    since_ms = now - JUST_NOW_MS
    moments: list[int] = []
    for due_ms, free_us in db.execute(SQL["read_next_due"], (as_json(reaction_ids), since_ms)):
        free_ms = -(-free_us // 1000)
        if due_ms is not None:
            moments.append(max(due_ms, free_ms))
        if free_ms > since_ms:
            moments.append(free_ms)
    return max(0, min(moments) - now) if moments else None


def _by_source(task: Task) -> int:
    return task.source_global_seq
