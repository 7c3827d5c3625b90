"""The newest entries, where this process has just written them: whoever follows live reads them
from here and spares the store a question.

Only an unbroken run of them is kept. What another process writes breaks it, and so does a batch
large enough to be read from the store as fast.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tape.model.entry import Entry, EntryDraft
from tape.model.move import EntryPlace
from tape.ports.store import EntryRange, ReadEntries

BATCH_MOST = 100
ENTRIES_MOST = 1_000
BYTES_MOST = 1024 * 1024


class _RecentBatch(NamedTuple):
    place: EntryPlace
    drafts: Sequence[EntryDraft]
    size: int


class Recent:
    def __init__(self) -> None:
        self._batches: deque[_RecentBatch] = deque()
        self._next = 0  # the global_seq that would go on from here
        self._entries = 0
        self._bytes = 0

    def note(self, place: EntryPlace, drafts: Sequence[EntryDraft]) -> None:
        """These have been committed there."""
        if not drafts:
            return
        if place.global_seq != self._next or len(drafts) > BATCH_MOST:
            self._batches.clear()
            self._entries = self._bytes = 0
        self._next = place.global_seq + len(drafts)
        if len(drafts) > BATCH_MOST:
            return
        size = sum(_bytes_of(draft.payload_json) for draft in drafts)
        self._batches.append(_RecentBatch(place, drafts, size))
        self._entries += len(drafts)
        self._bytes += size
        while self._entries > ENTRIES_MOST or self._bytes > BYTES_MOST:
            self._drop_oldest()

    def forget(self, through: int) -> None:
        """Entries up to there have been pruned, so they must not be found here either."""
        while self._batches and self._batches[0].place.global_seq <= through:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        gone = self._batches.popleft()
        self._entries -= len(gone.drafts)
        self._bytes -= gone.size

    def read(self, query: ReadEntries) -> EntryRange | None:
        """What is asked for, if all of it is here, in pages like the store's; whoever asks checks
        the predicate."""
        if (
            not self._batches
            or query.after < self._batches[0].place.global_seq - 1
            or query.upto >= self._next
            or query.kind
            or query.run_id
            or query.from_ts_ms
        ):
            return None
        found: list[Entry] = []
        size = 0
        for place, drafts, _size in self._since(query.after):
            for number, draft in enumerate(drafts, place.global_seq):
                if query.after < number <= query.upto and draft.subject.startswith(query.prefix):
                    found.append(_entry(number, place.ts_ms, draft))
                    size += _bytes_of(draft.payload_json)
                    if size >= query.max_bytes or len(found) == query.limit:
                        return EntryRange(found, number)
        return EntryRange(found, query.upto)

    def _since(self, after: int) -> list[_RecentBatch]:
        """The batches with entries after this one: few, for whoever follows live."""
        newest_first = []
        for batch in reversed(self._batches):
            newest_first.append(batch)
            if batch.place.global_seq <= after + 1:
                break
        return newest_first[::-1]


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _entry(global_seq: int, ts_ms: int, draft: EntryDraft) -> Entry:
    return Entry(
        global_seq,
        draft.run_id or "",
        draft.seq or 0,
        draft.kind,
        draft.subject,
        draft.payload_json,
        draft.schema_version,
        draft.trace_id,
        draft.span_id,
        draft.parent_span_id,
        ts_ms,
        draft.event_id,
        draft.event_type,
        draft.entity_type,
        draft.entity_id,
        draft.caused_by,
        draft.source,
        draft.occurred_at_ms or ts_ms,
        draft.idempotency_key or "",
    )
