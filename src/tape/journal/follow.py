"""Following the journal: by pattern, predicate and cursor, from history into the present.

A follower pulls. It reads a page, hands it on, and reads the next when it is asked again, so a
slow reader costs one page of memory and nothing else. It walks the journal in windows up to the
known head; since whoever sees N sees all below N, a window that was read is done with for ever,
and the cursor is one integer.

Whoever asks for entries that have been pruned, or is overtaken by a prune on the way, gets Pruned
and not a gap. A cursor of 0 starts at the oldest entry that was not pruned.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from math import inf
from typing import NamedTuple, ParamSpec, TypeVar

import orjson

from tape.errors import InvalidArgument, PredicateError, Pruned, StoreUnavailable
from tape.journal.pacer import PacedTurns
from tape.model.entry import Entry, Kind
from tape.model.run import RunStatus
from tape.model.subject import Pattern
from tape.model.subjects import value_changed, value_deleted
from tape.model.value import ValueChange, change_of
from tape.ports.predicate import EntryPredicate
from tape.ports.store import PAGE_BYTES, ReadEntries, Store
from tape.telemetry.retrying import Retrying

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger("tape.follow")
WINDOW = 50_000
LIGHT_ENTRIES = 8
LIGHT_CHARACTERS = 16_384
"""So many entries are decided between two looks at the clock, if none of them is larger."""
AWAY_FIRST_S = 0.1
AWAY_MOST_S = 2.0
ENDED = frozenset({RunStatus.TERMINAL, RunStatus.FAILED, RunStatus.CANCELLED})


class Follow(NamedTuple):
    """What to follow. The filters are ANDed; an empty one lets everything through."""

    pattern: Pattern
    predicate: EntryPredicate
    after: int
    max_entries: int
    max_bytes: int
    kind: str = ""
    run_id: str = ""
    from_ts_ms: int = 0
    until: int = 0


class Page(NamedTuple):
    """The next matching entries.

    `cursor` is how far the journal has been read: pass it as `after` to continue. `skipped` counts
    entries for which the predicate has no result; `error` is the last reason.
    """

    entries: list[Entry]
    cursor: int
    skipped: int = 0
    error: str = ""


def envelope(entry: Entry, *, with_payload: bool) -> dict[str, object]:
    """What a predicate sees of an entry."""
    seen: dict[str, object] = {
        "global_seq": entry.global_seq,
        "run_id": entry.run_id,
        "seq": entry.seq,
        "kind": entry.kind,
        "subject": entry.subject,
        "ts_ms": entry.ts_ms,
        "schema_version": entry.schema_version,
        "trace_id": entry.trace_id,
        "event_id": entry.event_id,
        "event_type": entry.event_type,
        "entity_type": entry.entity_type,
        "entity_id": entry.entity_id,
        "caused_by": entry.caused_by,
        "source": entry.source,
        "idempotency_key": entry.idempotency_key,
    }
    if with_payload:
        payload = orjson.loads(entry.payload_json)
        seen["payload"] = payload
        if entry.kind == Kind.VALUE.value:
            seen["prev_value_json"] = payload["prev_value_json"]
    return seen


async def follow(store: Store, what: Follow, turns: PacedTurns) -> AsyncGenerator[Page, None]:
    """Pages up to `until`, or for ever; waits where there is nothing new. Ends when closed."""
    cursor = what.after or await _read_with_retries(store.retention.read_pruned_through)
    await refuse_beyond_the_end(store, cursor, field="from_global_seq")
    while not what.until or cursor < what.until:
        head = await store.await_beyond(cursor)
        upto = min(head, cursor + WINDOW, what.until or head)
        query = ReadEntries(
            cursor, upto, what.max_entries, what.max_bytes, what.pattern.prefix, what.kind,
            what.run_id, what.from_ts_ms, None if what.predicate.always_true else what.predicate,
            unbroken=True,
        )  # fmt: skip
        found = await _read_with_retries(store.read_entries, query)
        cursor = found.through
        yield await _filtered(found.entries, what, cursor, turns)


async def follow_run(
    store: Store, run_id: str, after_seq: int, max_entries: int, max_bytes: int
) -> AsyncGenerator[list[Entry], None]:
    """The entries of one run in its own order, then its new ones as they come."""
    if after_seq:
        run = await _read_with_retries(store.runs.get_run, run_id)
        last = run.seq_cursor if run is not None else 0
        refuse_beyond_the_run(run_id, last, after_seq, field="from_seq")
    while True:
        head = store.head
        found = await _read_with_retries(read_run, store, run_id, after_seq, max_entries, max_bytes)
        if found:
            after_seq = found[-1].seq
            yield found
        else:
            await store.await_beyond(head)


async def read_run(
    store: Store, run_id: str, after_seq: int, limit: int, max_bytes: int = PAGE_BYTES
) -> list[Entry]:
    """The entries of a run after one of them; Pruned if the next of them is gone.

    Entries of a run go only when it has ended, so only then is an empty page suspicious.
    """
    found = await store.read_run(run_id, after_seq, limit, max_bytes)
    if found and found[0].seq == after_seq + 1:
        return found
    run = await store.runs.get_run(run_id)
    if run is None or run.status not in ENDED or run.seq_cursor <= after_seq:
        return found
    found = await store.read_run(run_id, after_seq, limit, max_bytes)  # it may have ended since
    if found and found[0].seq == after_seq + 1:
        return found
    raise Pruned(
        f"run {run_id!r} has ended and its journal after {after_seq} has been pruned: read it from "
        "the lake it was archived to"
    )


async def watch_value(
    store: Store, namespace: str, key: str, from_version: int, *, max_entries: int, max_bytes: int
) -> AsyncGenerator[ValueChange, None]:
    """Every change with a greater version, oldest first, then new ones as they come.

    Versions have no gaps, so one in what is left of the journal shows that a change was pruned.
    """
    if from_version > 0:
        value = await _read_with_retries(store.values.get_value, namespace, key)
        newest = value.version if value is not None else 0
        if from_version > newest:
            raise InvalidArgument(
                f"{from_version} is beyond the newest version of {namespace}/{key}, {newest}: "
                "the version belongs to another journal, or this one was restored from a backup",
                field="from_version",
            )
    subjects = (value_changed(namespace, key), value_deleted(namespace, key))
    cursor = 0
    while True:
        head = store.head
        found = await _read_with_retries(
            store.read_value_history, subjects, cursor, max_entries, max_bytes
        )
        is_at_end = not found
        found.reverse()
        while found:  # neither entry nor change is kept while its reader takes its time
            cursor = found[-1].global_seq
            changed = [change_of(found.pop())]
            version = changed[0].value.version
            if version > from_version:
                if 0 < from_version < version - 1:
                    raise Pruned(
                        f"changes of {namespace}/{key} after version {from_version} have been "
                        f"pruned: the oldest kept is {version}"
                    )
                from_version = version
                yield changed.pop()
        if is_at_end:
            cursor = max(cursor, head)
            await store.await_beyond(head)


def refuse_beyond_the_run(run_id: str, last: int, after_seq: int, *, field: str) -> None:
    if after_seq > last:
        raise InvalidArgument(
            f"{after_seq} is beyond the end of run {run_id!r}, {last}: the cursor belongs to "
            "another run or journal, or this one was restored from a backup",
            field=field,
        )


async def refuse_beyond_the_end(store: Store, cursor: int, *, field: str) -> None:
    """A cursor from another journal, or from before a backup was restored, would skip entries."""
    if cursor > store.head:
        last = await _read_with_retries(store.read_last_given)
        if cursor > last:
            raise InvalidArgument(
                f"{cursor} is beyond the end of this journal, {last}: the cursor belongs to "
                "another journal, or this one was restored from a backup",
                field=field,
            )


async def _filtered(found: list[Entry], what: Follow, cursor: int, turns: PacedTurns) -> Page:
    if not what.pattern.everything:
        matches = what.pattern.expression.fullmatch
        found = [entry for entry in found if matches(entry.subject)]
    if what.predicate.always_true:
        return Page(found, cursor)
    deciding = PredicateScan(what.predicate)
    await turns.run(deciding.over(found), is_light=what.predicate.is_light)
    return Page(deciding.chosen, cursor, deciding.skipped, deciding.error)


class PredicateScan:
    """A predicate over entries, one after the other. `chosen` are those of which it is true, at
    most `enough`; `skipped` could not be decided, `error` tells the last reason. `last` is the
    place of the last that was decided."""

    def __init__(self, predicate: EntryPredicate, enough: float = inf) -> None:
        self._predicate = predicate
        self._enough = enough
        self.chosen: list[Entry] = []
        self.skipped = 0
        self.error = ""
        self.last = 0

    def over(self, entries: Iterable[Entry]) -> Iterator[int]:
        """Decide, and stop now and then, with how many entries were decided since."""
        evaluate, light = self._predicate.evaluate, self._predicate.is_light
        with_payload = reads_payload(self._predicate)
        decided = 0
        for entry in entries:
            try:
                if evaluate(envelope(entry, with_payload=with_payload)):
                    self.chosen.append(entry)
            except PredicateError as fault:
                self.skipped += 1
                self.error = f"entry {entry.global_seq}: {fault}"
            self.last = entry.global_seq
            if len(self.chosen) >= self._enough:
                return
            decided += 1
            if decided == LIGHT_ENTRIES or not light or len(entry.payload_json) > LIGHT_CHARACTERS:
                yield decided
                decided = 0
        yield decided


def reads_payload(predicate: EntryPredicate) -> bool:
    return not predicate.names.isdisjoint(("payload", "prev_value_json"))


async def _read_with_retries(
    read: Callable[P, Awaitable[T]], *arguments: P.args, **named: P.kwargs
) -> T:
    """A follower outlives a store that is away: it waits and reads on from where it was."""
    pause = AWAY_FIRST_S
    retrying = Retrying(log, "following")
    while True:
        try:
            found = await read(*arguments, **named)
        except StoreUnavailable as error:
            retrying.failed(error)
        else:
            retrying.succeeded()
            return found
        await asyncio.sleep(pause)
        pause = min(2 * pause, AWAY_MOST_S)


def check_position(number: int, field: str) -> None:
    """Refuse what cannot be a place in the journal, or a time."""
    if not 0 <= number < 2**63:
        raise InvalidArgument(f"{number} is not in 0..2^63-1", field=field)
