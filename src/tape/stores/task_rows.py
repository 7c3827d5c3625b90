"""What both stores need to turn rows of the queue into tasks."""

from collections.abc import Sequence
from typing import Any

from tape.model.entry import Entry
from tape.model.task import Task, TaskKey

ENTRY_AT = Task._fields.index("entry")


def task_of(row: Sequence[Any]) -> Task:
    """A task from its own columns and then those of its entry, which are NULL where it is gone."""
    entry = _gone(row[2]) if row[ENTRY_AT] is None else Entry(*row[ENTRY_AT:])
    return Task._make((*row[:ENTRY_AT], entry))


def start_after(reaction_id: str, after: TaskKey | None) -> TaskKey:
    """The key after which a listing of one reaction (empty: of all) goes on."""
    first = TaskKey(reaction_id, -1, 0)
    return max(first, after) if after is not None else first


def _gone(global_seq: int) -> Entry:
    return Entry(global_seq, "", 0, "", "", "", 0, "", "", "", 0, "", "", "", "", "", "", 0, "")
