"""Reactions whose engine is Spark, matched as the journal grows.

Their cursors in the store say where they are, and nothing else does: each batch begins there, and
moves them together with its tasks in steps that hold only from where they stood. So a follower that
was killed, paused or started twice makes nothing twice and leaves nothing out. Between batches the
book is read again: what is new or changed counts from the next batch on.

Reactions that are behind the foremost are matched by themselves, a batch between the others'
batches, until they have caught up.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tape.errors import StoreUnavailable
from tape.model.reaction import Reaction
from tape.pipeline.jobs.backfill import evaluation
from tape.pipeline.jobs.backfill.matching import FEW_ENTRIES, NumberedReaction, decided, numbered
from tape.pipeline.jobs.backfill.queueing import GROUP_TASKS, DecidedRow, task_of
from tape.ports.matching import CursorMove, NewTask, QueueTasks, RegisteredReactions
from tape.ports.store import ReadEntries, Store
from tape.predicates.to_spark import left_to_python
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.pipeline")

PATIENCE_S: Final = 0.5
AWAY_S: Final = 2.0
COLUMNS: Final = DecidedRow._fields

ReadRange = Callable[[int, int], DataFrame]


class EntryBatch(NamedTuple):
    """Entries with `after < global_seq <= upto` for these reactions."""

    after: int
    upto: int
    reactions: list[Reaction]


class CursorMoved(Exception):
    """The book has turned, or somebody else has moved a cursor."""


class BackfillFollower:
    """`read` gives the entries of a range. What it counts is over all batches."""

    def __init__(self, read: ReadRange, only: Sequence[str], batch_entries: int) -> None:
        self._read = read
        self._only = frozenset(only)
        self._batch_entries = batch_entries
        self._rules: tuple[list[Reaction], list[NumberedReaction]] = ([], [])
        self.counts: Counter[str] = Counter()
        self.position = 0

    async def run(self, store: Store, stopped: asyncio.Event, tell: Callable[[int], None]) -> None:
        """Until it is stopped, which it is between two batches."""
        retrying = Retrying(log, "following")
        while not stopped.is_set():
            try:
                moved = await self.catch_up(store)
                retrying.succeeded()
                tell(store.head)
                if not moved:
                    await _wait(store, self.position, stopped)
            except StoreUnavailable as error:
                retrying.failed(error)
                await asyncio.sleep(AWAY_S)

    async def catch_up(self, store: Store) -> bool:
        """One batch for those in front and one for those behind; whether anything moved."""
        book = await store.matching.read_reactions()
        batches = self._batches(book, store.head)
        for batch in batches:
            try:
                await self._take(store, book, batch)
            except CursorMoved:
                return True
        return bool(batches)

    def _batches(self, book: RegisteredReactions, head: int) -> list[EntryBatch]:
        ours = [
            reaction
            for reaction in book.reactions
            if reaction.engine == "spark" and (not self._only or reaction.reaction_id in self._only)
        ]
        lowest: dict[str, int] = {}
        for cursor in book.cursors:
            so_far = lowest.get(cursor.reaction_id, cursor.last_global_seq)
            lowest[cursor.reaction_id] = min(so_far, cursor.last_global_seq)
        if not ours:
            self.position = head
            return []
        places = {reaction.reaction_id: lowest[reaction.reaction_id] for reaction in ours}
        front, last = max(places.values()), min(places.values())
        self.position = front
        batches = []
        if front < head:
            foremost = [reaction for reaction in ours if places[reaction.reaction_id] == front]
            batches.append(EntryBatch(front, min(head, front + self._batch_entries), foremost))
        if last < front:
            upto = min(front, last + self._batch_entries)
            behind = [reaction for reaction in ours if places[reaction.reaction_id] < upto]
            batches.append(EntryBatch(last, upto, behind))
        return batches

    async def _take(self, store: Store, book: RegisteredReactions, batch: EntryBatch) -> None:
        if self._rules[0] != batch.reactions:
            self._rules = (batch.reactions, numbered(batch.reactions))
        rules = self._rules[1]
        rows = await asyncio.to_thread(self._decided, batch, rules)
        steps = Steps(store, book, rules)
        hits = sorted((DecidedRow(*row) for row in rows), key=lambda hit: hit.global_seq)
        for hit in hits:
            await steps.add(hit)
        await steps.close(batch.upto)
        self.counts.update(steps.counts)
        self.counts["entries"] += batch.upto - batch.after
        self.position = max(self.position, batch.upto)

    def _decided(self, batch: EntryBatch, rules: Sequence[NumberedReaction]) -> list[Any]:
        entries = self._read(batch.after, batch.upto)
        if batch.upto - batch.after > FEW_ENTRIES:
            try:
                return decided(entries, rules).select(*COLUMNS).collect()
            except PySparkException as fault:
                if not (why := left_to_python(fault)):
                    raise
                log.warning("Python evaluates this batch: %s", why)
        return decided(entries, rules, native=False).select(*COLUMNS).collect()


class Steps:
    """Hits of one batch, in order, as steps of at most so many tasks."""

    def __init__(
        self, store: Store, book: RegisteredReactions, rules: Sequence[NumberedReaction]
    ) -> None:
        self._store = store
        self._version = book.version
        self._rules = {rule.number: rule for rule in rules}
        ids = {rule.reaction.reaction_id for rule in rules}
        self._places = {
            (cursor.reaction_id, cursor.shard): cursor.last_global_seq
            for cursor in book.cursors
            if cursor.reaction_id in ids
        }
        self._tasks: list[NewTask] = []
        self._counted: dict[tuple[str, int], Counter[str]] = {}
        self._failed: dict[tuple[str, int], DecidedRow] = {}
        self._last = 0
        self.counts: Counter[str] = Counter()

    async def add(self, hit: DecidedRow) -> None:
        if len(self._tasks) >= GROUP_TASKS and hit.global_seq > self._last:
            await self.close(self._last)
        self._last = hit.global_seq
        rule = self._rules[hit.number]
        key = (rule.reaction.reaction_id, hit.shard)
        if hit.global_seq <= self._places[key]:
            return
        if hit.failed:
            self._count(key, "errors")
            self._failed[key] = hit
            return
        self._count(key, "matched")
        if hit.left_to is None:
            self._tasks.append(task_of(rule, hit))
        else:
            self._count((key[0], hit.left_to), "coalesced")

    async def close(self, upto: int) -> None:
        """What has come so far, up to this entry, as one step."""
        moves = [await self._move(key, upto) for key in sorted(self._places)]
        step = QueueTasks(self._version, self._tasks, moves)
        queued = await self._store.matching.queue_tasks(step)
        if queued.result == "lost":
            log.warning("another process matches these reactions: reading their positions again")
        if queued.result != "made":
            raise CursorMoved
        for move in moves:
            self._places[move.reaction_id, move.shard] = move.last_global_seq
        for counted in self._counted.values():
            self.counts.update(counted)
        self.counts["made"] += sum(queued.made.values())
        self.counts["already_there"] += len(self._tasks) - sum(queued.made.values())
        self._tasks, self._counted, self._failed = [], {}, {}

    def _count(self, key: tuple[str, int], what: str) -> None:
        self._counted.setdefault(key, Counter())[what] += 1

    async def _move(self, key: tuple[str, int], upto: int) -> CursorMove:
        counted: Counter[str] = self._counted.get(key, Counter())
        failed = self._failed.get(key)
        error = await self._reason(failed) if failed else ""
        place = self._places[key]
        return CursorMove(
            *key, place, max(place, upto), counted["matched"], counted["coalesced"],
            counted["errors"], error, failed.global_seq if failed else 0,
        )  # fmt: skip

    async def _reason(self, hit: DecidedRow) -> str:
        """In the server's words, if the entry is still there to be asked again."""
        seq = hit.global_seq
        found = await self._store.read_entries(ReadEntries(seq - 1, seq, 1, 1))
        expression = self._rules[hit.number].reaction.predicate_cel
        told = [evaluation.reason(expression, entry) for entry in found.entries]
        return (told and told[0]) or f"entry {seq}: the predicate has no result"


async def _wait(store: Store, position: int, stopped: asyncio.Event) -> None:
    """For new entries, or a while: reactions come without any."""
    beyond: asyncio.Task[Any] = asyncio.ensure_future(store.await_beyond(position))
    stop: asyncio.Task[Any] = asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait((beyond, stop), timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in (beyond, stop):
            each.cancel()
        await asyncio.gather(beyond, stop, return_exceptions=True)
