"""What both stores need to turn rows of the queue into tasks."""

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from tape.model.entry import Entry
from tape.model.task import Task, TaskKey, TaskStatus

ENTRY_AT = Task._fields.index("entry") - 1  # a row does not hold the id, which is made of its key
_ENTRY_END = ENTRY_AT + len(Entry._fields)


def task_of(row: Sequence[Any]) -> Task:
    """A task from its own columns, those of its entry (NULL where it is gone) and, where it was not
    just claimed, its traceback.
    """
    entry = _gone(row[2]) if row[ENTRY_AT] is None else Entry(*row[ENTRY_AT:_ENTRY_END])
    traceback = row[_ENTRY_END] if len(row) > _ENTRY_END else ""
    return Task._make((f"{row[0]}/{row[1]}/{row[2]}", *row[:ENTRY_AT], entry, traceback))


def start_after(reaction_id: str, after: TaskKey | None) -> TaskKey:
    """The key after which a listing of one reaction (empty: of all) goes on."""
    first = TaskKey(reaction_id, -1, 0)
    return max(first, after) if after is not None else first


def listings(status: TaskStatus | None) -> Sequence[str]:
    """The statements that find tasks of a status."""
    match status:
        case None:
            return ("list_queued_tasks", "list_ended_tasks")
        case TaskStatus.PENDING | TaskStatus.CLAIMED:
            return ("list_queued_tasks",)
        case TaskStatus.DONE:
            return ("list_ended_tasks",)
        case TaskStatus.FAILED | TaskStatus.DLQ:
            return ("list_badly_ended_tasks",)
        case _:
            assert_never(status)


def merged(found: Iterable[Task], limit: int) -> list[Task]:
    """By key. A task that ended between two statements is there once, as it is now."""
    by_key = {task.key: task for task in found}
    return [by_key[key] for key in sorted(by_key)[:limit]]


def _gone(global_seq: int) -> Entry:
    return Entry(global_seq, "", 0, "", "", "", 0, "", "", "", 0, "", "", "", "", "", "", 0, "")
