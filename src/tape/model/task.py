"""A task: the cheap unit of work a reaction makes of one entry.

    pending ──claim──▶ claimed ──done──▶ DONE
       ▲                  │
       │◀── retry, lease ran out, given back
       │                  └──attempts used up, or refused for good──▶ DLQ, or FAILED
       └──────────── replay ◀───────────────────────────────────────── DLQ ──drop──▶ FAILED

Pending and claimed tasks are rows of the *queue*; ended ones are rows of their own table, so that a
queue is as quick with millions of done tasks as with none. A task is named by its reaction, shard
and source entry, and there is at most one by that name, queued or ended.

Claims, extensions and completions are sets of rows that make no entry: they are the store's
(`ports.tasks`). What may end in the journal is a move, here.
"""

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Literal, NamedTuple

import orjson

from tape.errors import InvalidArgument, NotFound, NotHeld, TapeError
from tape.model.entry import Entry, EntryDraft, Kind
from tape.model.json_text import utf8_length
from tape.model.move import Decision, Need, RowChange, State, Table, delete, save
from tape.model.names import check_name
from tape.model.reaction import REACTIONS, TALLIES, Reaction, Tally
from tape.model.subjects import task_subject
from tape.model.traceback_text import harmless, traceback_within
from tape.settings import Limits

ERROR_CHARACTERS = 2_000
BACKOFF_MOST_MS = 86_400_000
ANY_SHARD = -1
_TASK_ID = re.compile(r"([^\0]+)/([0-9]{1,10})/([0-9]{1,18})", re.DOTALL).fullmatch


class TaskStatus(IntEnum):
    PENDING = 1
    CLAIMED = 2
    DONE = 3
    FAILED = 4
    DLQ = 5


class TaskKey(NamedTuple):
    reaction_id: str
    shard: int
    source_global_seq: int

    @property
    def task_id(self) -> str:
        return f"{self.reaction_id}/{self.shard}/{self.source_global_seq}"


def parse_task_id(task_id: str, *, field: str = "") -> TaskKey:
    """The key that an id spells. One that spells none is nobody's; in a `field` that tells where
    to go on it is malformed."""
    matched = _TASK_ID(task_id)
    if matched is None:
        form = "is not REACTION_ID/SHARD/SOURCE_GLOBAL_SEQ"
        if field or not task_id:
            raise InvalidArgument(f"{task_id!r} {form}", field=field or "task_id")
        raise NotFound(f"no task has the id {task_id!r}: it {form}")
    reaction_id, shard, seq = matched.groups()
    if not reaction_id.isascii():
        utf8_length(reaction_id, "task_id")
    key = TaskKey(reaction_id, int(shard), int(seq))
    if key.shard >= 2**31:
        raise InvalidArgument(f"{shard} is not a shard", field="task_id")
    return key


class QueuedTask(NamedTuple):
    """A row of the queue. `next_attempt_at_ms` is 0 for one that never had to wait.

    `lease_owner` is the last one who claimed it, so a holder whose lease ran out and whom nobody
    replaced can still say that it is done.
    """

    reaction_id: str
    shard: int
    source_global_seq: int
    status: int
    attempts: int
    next_attempt_at_ms: int
    lease_owner: str
    lease_expires_at_ms: int
    claimed_at_ms: int
    last_error: str
    debounce_key: str
    debounce_until_ms: int
    created_at_ms: int
    last_traceback: str = ""

    @property
    def key(self) -> TaskKey:
        return TaskKey(*self[:3])


class EndedTask(NamedTuple):
    reaction_id: str
    shard: int
    source_global_seq: int
    status: int
    attempts: int
    lease_owner: str
    last_error: str
    created_at_ms: int
    completed_at_ms: int
    last_traceback: str = ""


class SourceEntry(NamedTuple):
    """What an entry about a task says of the entry that made the task."""

    global_seq: int
    subject: str
    trace_id: str
    span_id: str
    parent_span_id: str


QUEUE = Table("task_queue", QueuedTask, lambda row: row.key)
ENDED = Table("task_ended", EndedTask, lambda row: TaskKey(*row[:3]))
SOURCES = Table("sources", SourceEntry, lambda row: row.global_seq)


class Task(NamedTuple):
    """A task as its dispatcher and an operator see it, with the entry that made it.

    `last_traceback` is empty on a task that was just claimed: its dispatcher does not need it.
    """

    task_id: str
    reaction_id: str
    shard: int
    source_global_seq: int
    status: int
    attempts: int
    next_attempt_at_ms: int
    lease_owner: str
    lease_expires_at_ms: int
    claimed_at_ms: int
    last_error: str
    created_at_ms: int
    completed_at_ms: int
    entry: Entry
    last_traceback: str = ""

    @property
    def key(self) -> TaskKey:
        return TaskKey(*self[1:4])


Verdict = Literal["done", "failed", "refused", "given_back"]
"""`refused` is a failure that no retry will mend; one `given_back` does not count."""


class TaskOutcome(NamedTuple):
    """The outcome of a task, as its owner reports it. `traceback` is the handler's."""

    task_id: str
    verdict: Verdict = "done"
    error: str = ""
    traceback: str = ""


def failed_task(task_id: str, error: str, *, permanent: bool, traceback: str = "") -> TaskOutcome:
    return TaskOutcome(task_id, "refused" if permanent else "failed", error, traceback)


class TaskFailure(NamedTuple):
    """Why a holder could not do a task. `given_back`: not its fault, so it does not count."""

    key: TaskKey
    error: str
    permanent: bool = False
    given_back: bool = False
    traceback: str = ""


def backoff_ms(reaction: Reaction, attempts: int) -> int:
    """Doubling, from the reaction's own start."""
    return min(reaction.retry_backoff_ms << min(attempts - 1, 40), BACKOFF_MOST_MS)


def is_used_up(reaction: Reaction, attempts: int) -> bool:
    return attempts > reaction.retry_max or 0 < reaction.dlq_after_n <= attempts


class _TaskMove:
    """What moves on queued tasks share: rows, the count of those in hand, entries."""

    __slots__ = ("_event_ids", "_keys", "weight")

    def __init__(self, keys: Sequence[TaskKey], event_ids: Sequence[str]) -> None:
        self._keys = keys
        self._event_ids = event_ids
        self.weight = 512 * len(keys)

    def needs(self) -> Iterable[Need]:
        for key in self._keys:
            yield Need(QUEUE, key)
            yield Need(ENDED, key)
            yield Need(SOURCES, key.source_global_seq)
            yield Need(REACTIONS, key.reaction_id)
            yield Need(TALLIES, key.reaction_id)


class _TaskChanges:
    """Collects the rows and entries of one decision."""

    def __init__(self, state: State, event_ids: Sequence[str]) -> None:
        self.state = state
        self.entries: list[EntryDraft] = []
        self.changes: list[RowChange] = []
        self._event_ids = iter(event_ids)
        self._tallies: dict[str, Tally] = {}

    def count(self, reaction_id: str, queued: int, in_flight: int, dead_letters: int) -> None:
        tally = self._tallies.get(reaction_id) or self.state.get(TALLIES, reaction_id)
        if tally is not None:
            self._tallies[reaction_id] = tally._replace(
                queued=tally.queued + queued,
                in_flight=tally.in_flight + in_flight,
                dead_letters=tally.dead_letters + dead_letters,
            )

    def end(self, task: QueuedTask, status: TaskStatus, failure: "TaskFailure") -> None:
        self.count(task.reaction_id, -1, -1, int(status is TaskStatus.DLQ))
        self.changes += [
            delete(QUEUE, task.key),
            save(
                ENDED,
                EndedTask(
                    *task.key,
                    status,
                    task.attempts,
                    task.lease_owner,
                    failure.error,
                    task.created_at_ms,
                    self.state.now_ms,
                    failure.traceback,
                ),
            ),
        ]
        verb = "dead_lettered" if status is TaskStatus.DLQ else "failed"
        where = {"traceback": failure.traceback} if failure.traceback else {}
        self.note(task.key, verb, attempts=task.attempts, error=failure.error, **where)

    def note(self, key: TaskKey, verb: str, **facts: object) -> None:
        source = self.state.get(SOURCES, key.source_global_seq)
        payload = {
            "task_id": key.task_id,
            **key._asdict(),
            "subject": source.subject if source else "",
            **facts,
        }
        self.entries.append(
            EntryDraft(
                next(self._event_ids),
                Kind.TASK.value,
                task_subject(verb, key.reaction_id, key.task_id),
                orjson.dumps(payload).decode(),
                trace_id=source.trace_id if source else "",
                parent_span_id=(source.span_id or source.parent_span_id) if source else "",
            )
        )

    def all_changes(self) -> list[RowChange]:
        return [*self.changes, *(save(TALLIES, tally) for tally in self._tallies.values())]


class FailTasks(_TaskMove):
    """What a holder could not do: retried later, given back at once, dead-lettered or given up.

    For each in order its status afterwards, or why it is not this owner's to fail.
    """

    __slots__ = ("_failures", "_owner")

    def __init__(
        self, owner: str, failures: Sequence[TaskFailure], event_ids: Sequence[str], limits: Limits
    ) -> None:
        super().__init__([failure.key for failure in failures], event_ids)
        self._owner = check_name(owner, limits, field="owner", required=True)
        room = limits.payload_bytes // 2
        self._failures = [
            failure._replace(
                error=clipped_error(failure.error),
                traceback=traceback_within(failure.traceback, room),
            )
            for failure in failures
        ]
        self.weight += sum(len(failure.traceback) for failure in self._failures)

    def decide(self, state: State) -> Decision[list[TaskStatus | TapeError]]:
        outcome = _TaskChanges(state, self._event_ids)
        results: list[TaskStatus | TapeError] = []
        settled: dict[TaskKey, TaskStatus | TapeError] = {}
        for failure in self._failures:
            if failure.key not in settled:
                settled[failure.key] = self._one(outcome, failure)
            results.append(settled[failure.key])
        return Decision(lambda _place: results, outcome.entries, outcome.all_changes())

    def _one(self, outcome: _TaskChanges, failure: TaskFailure) -> TaskStatus | TapeError:
        state, key = outcome.state, failure.key
        task = state.get(QUEUE, key)
        if task is None:
            ended = state.get(ENDED, key)
            return TaskStatus(ended.status) if ended else no_such_task(key.task_id)
        if task.lease_owner != self._owner:
            return not_held(key.task_id, self._owner)
        if task.status == TaskStatus.PENDING:
            return TaskStatus.PENDING  # said before, or the lease ran out meanwhile
        return _after_failure(outcome, task, failure)


class ExpireTasks(_TaskMove):
    """Tasks whose holder has not been heard of for the length of its lease.

    The attempt counts, so a task that takes its dispatcher down every time ends as a dead letter.
    """

    __slots__ = ()

    def decide(self, state: State) -> Decision[int]:
        outcome = _TaskChanges(state, self._event_ids)
        expired = 0
        for key in dict.fromkeys(self._keys):
            task = state.get(QUEUE, key)
            if (
                task is None
                or task.status != TaskStatus.CLAIMED
                or task.lease_expires_at_ms > state.now_ms
            ):
                continue
            expired += 1
            error = f"the lease of {task.lease_owner} ran out"
            _after_failure(outcome, task, TaskFailure(key, error), wait=False)
        return Decision(lambda _place: expired, outcome.entries, outcome.all_changes())


class ReplayDeadLetters(_TaskMove):
    """Dead letters back to the queue, their attempts forgotten. A task that is no dead letter is
    left as it is; one that does not exist refuses them all."""

    __slots__ = ()

    def decide(self, state: State) -> Decision[int]:
        outcome = _TaskChanges(state, self._event_ids)
        replayed = 0
        for key, ended in _dead_letters(state, self._keys):
            replayed += 1
            task = QueuedTask(
                *key, TaskStatus.PENDING, 0, state.now_ms, "", 0, 0, ended.last_error, "", 0,
                ended.created_at_ms, ended.last_traceback,
            )  # fmt: skip
            outcome.count(key.reaction_id, 1, 0, -1)
            outcome.changes += [delete(ENDED, key), save(QUEUE, task)]
            outcome.note(key, "replayed", attempts=ended.attempts)
        return Decision(lambda _place: replayed, outcome.entries, outcome.all_changes())


class DropDeadLetters(_TaskMove):
    """Dead letters given up for good; they stay on record as failed. Of others as a replay."""

    __slots__ = ()

    def decide(self, state: State) -> Decision[int]:
        outcome = _TaskChanges(state, self._event_ids)
        dropped = 0
        for key, ended in _dead_letters(state, self._keys):
            dropped += 1
            outcome.count(key.reaction_id, 0, 0, -1)
            outcome.changes.append(
                save(ENDED, ended._replace(status=TaskStatus.FAILED, completed_at_ms=state.now_ms))
            )
            outcome.note(key, "dropped", attempts=ended.attempts, error=ended.last_error)
        return Decision(lambda _place: dropped, outcome.entries, outcome.all_changes())


def _after_failure(
    outcome: _TaskChanges, task: QueuedTask, failure: TaskFailure, *, wait: bool = True
) -> TaskStatus:
    now = outcome.state.now_ms
    reaction = outcome.state.get(REACTIONS, task.reaction_id)
    if failure.given_back or reaction is None:
        again = task._replace(
            status=TaskStatus.PENDING,
            next_attempt_at_ms=now,
            attempts=max(0, task.attempts - 1),
            last_error=failure.error or task.last_error,
            last_traceback=failure.traceback if failure.error else task.last_traceback,
        )
    elif failure.permanent or is_used_up(reaction, task.attempts):
        status = TaskStatus.DLQ if reaction.dlq_after_n else TaskStatus.FAILED
        outcome.end(task, status, failure)
        return status
    else:
        pause = backoff_ms(reaction, task.attempts) if wait else 0
        again = task._replace(
            status=TaskStatus.PENDING,
            next_attempt_at_ms=now + pause,
            last_error=failure.error,
            last_traceback=failure.traceback,
        )
    outcome.count(task.reaction_id, 0, -1, 0)
    outcome.changes.append(save(QUEUE, again))
    return TaskStatus.PENDING


def _dead_letters(state: State, keys: Iterable[TaskKey]) -> Iterable[tuple[TaskKey, EndedTask]]:
    for key in dict.fromkeys(keys):
        ended = state.get(ENDED, key)
        if ended is None and state.get(QUEUE, key) is None:
            raise no_such_task(key.task_id)
        if ended is not None and ended.status == TaskStatus.DLQ:
            yield key, ended


def no_such_task(task_id: str) -> NotFound:
    return NotFound(f"no task has the id {task_id!r}")


def not_held(task_id: str, owner: str) -> NotHeld:
    return NotHeld(f"task {task_id!r} was last claimed by another owner than {owner!r}")


def clipped_error(error: str) -> str:
    """Bounded, and free of what a database cannot hold."""
    return harmless(error)[:ERROR_CHARACTERS]
