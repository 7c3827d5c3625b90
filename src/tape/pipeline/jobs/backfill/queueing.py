"""Tasks on their way into the store, in groups, for reactions as they were when matched."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from tape.errors import NotFound
from tape.model.entry import Entry
from tape.model.reaction import Reaction
from tape.pipeline.jobs.backfill.matching import NumberedReaction
from tape.ports.matching import NewTask, QueueTasks, RegisteredReactions
from tape.ports.store import Store

GROUP_TASKS: Final = 2_000
GROUP_ROWS: Final = 20_000
RECALLED_TASKS: Final = 200
"""Of tasks whose entries were pruned: they are held in memory with their payloads."""

Recall = Callable[[Sequence[int]], Sequence[Entry]]
"""Entries by number, as far as they are archived."""


class DecidedRow(NamedTuple):
    """A row of what was decided, as it comes from Spark."""

    number: int
    failed: bool
    shard: int
    global_seq: int
    ts_ms: int
    subject: str
    left_to: int | None


class SettingsChanged(Exception):
    """A reaction is not what it was when it was matched."""


def task_of(rule: NumberedReaction, hit: DecidedRow) -> NewTask:
    reaction = rule.reaction
    return NewTask(
        reaction.reaction_id, hit.shard, hit.global_seq, hit.ts_ms, hit.subject,
        reaction.debounce_ms,
    )  # fmt: skip


def chosen(book: RegisteredReactions, reaction_ids: Sequence[str]) -> list[Reaction]:
    """These reactions, in this order; refuses names that nobody has."""
    known = {reaction.reaction_id: reaction for reaction in book.reactions}
    for reaction_id in reaction_ids:
        if reaction_id not in known:
            raise NotFound(
                f"no reaction {reaction_id!r} is registered; there are {', '.join(known) or 'none'}"
            )
    return [known[reaction_id] for reaction_id in dict.fromkeys(reaction_ids)]


class Queueing:
    """Makes tasks of hits. What it counts is by reaction."""

    def __init__(
        self,
        store: Store,
        book: RegisteredReactions,
        rules: Sequence[NumberedReaction],
        recall: Recall,
    ) -> None:
        self._store = store
        self._version = book.version
        self._rules = {rule.number: rule for rule in rules}
        self._recall = recall
        self.counts: dict[str, Counter[str]] = {
            rule.reaction.reaction_id: Counter() for rule in rules
        }
        self.through = 0

    async def take(self, rows: Iterator[Any]) -> bool:
        """The next rows; False if there are none."""
        hits = [
            DecidedRow(*row)
            for row in await asyncio.to_thread(lambda: list(islice(rows, GROUP_ROWS)))
        ]
        tasks: list[NewTask] = []
        for hit in hits:
            rule = self._rules[hit.number]
            counts = self.counts[rule.reaction.reaction_id]
            counts["errors" if hit.failed else "matched"] += 1
            if hit.left_to is not None:
                counts["coalesced"] += 1
            elif not hit.failed:
                tasks.append(task_of(rule, hit))
            self.through = max(self.through, hit.global_seq)
        pruned_through = await self._store.retention.read_pruned_through()
        old = [task for task in tasks if task.source_global_seq <= pruned_through]
        new = [task for task in tasks if task.source_global_seq > pruned_through]
        for start in range(0, len(old), RECALLED_TASKS):
            group = old[start : start + RECALLED_TASKS]
            sources = sorted({task.source_global_seq for task in group})
            await self._queue(group, await asyncio.to_thread(self._recall, sources))
        for start in range(0, len(new), GROUP_TASKS):
            await self._queue(new[start : start + GROUP_TASKS])
        return bool(hits)

    async def _queue(self, tasks: list[NewTask], entries: Sequence[Entry] = ()) -> None:
        while True:
            step = QueueTasks(self._version, tasks, entries=entries)
            queued = await self._store.matching.queue_tasks(step)
            if queued.result == "made":
                break
            await self._read_book()
        for reaction_id, count in Counter(task.reaction_id for task in tasks).items():
            made = queued.made.get(reaction_id, 0)
            self.counts[reaction_id].update(made=made, already_there=count - made)

    async def _read_book(self) -> None:
        """Another page was turned: that is nothing to us if ours are as they were."""
        book = await self._store.matching.read_reactions()
        ours = [rule.reaction for rule in self._rules.values()]
        now = chosen(book, [reaction.reaction_id for reaction in ours])
        if list(map(_decisive, now)) != list(map(_decisive, ours)):
            raise SettingsChanged
        self._version = book.version


def _decisive(reaction: Reaction) -> tuple[object, ...]:
    """The settings that decide what is matched, and where it goes."""
    return (
        reaction.subject_pattern, reaction.predicate_cel, reaction.debounce_ms,
        reaction.num_shards, reaction.created_at_ms,
    )  # fmt: skip
