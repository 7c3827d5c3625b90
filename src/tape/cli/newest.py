"""The newest entries that pass a command's filters, and where the entries since a time begin.

Both look backwards from the end of the journal by its order, which is an index: what is older than
what was asked for is not read.
"""

from collections import deque
from typing import NamedTuple

from tape.bus import Operations
from tape.journal.follow import PredicateScan
from tape.model.entry import Entry
from tape.model.subject import Pattern
from tape.ports.ledger import RecentQuery
from tape.ports.predicate import EntryPredicate

PAGE = 1_000
SCAN = 100_000


class Newest(NamedTuple):
    """What was found, oldest first. `skipped` entries could not be decided, `error` is the last
    reason."""

    entries: list[Entry]
    skipped: int
    error: str


async def read_newest(
    operations: Operations,
    count: int,
    *,
    head: int,
    after: int,
    pattern: Pattern,
    predicate: EntryPredicate,
) -> Newest:
    """Read the newest `count` entries up to `head` and after `after` that match."""
    found: list[Entry] = []
    skipped, error, before = 0, "", head + 1
    narrows = not (pattern.everything and predicate.always_true)
    while before > after + 1 and len(found) < count:
        limit = PAGE if narrows else min(PAGE, count - len(found))
        query = RecentQuery(before, limit, prefix=pattern.prefix, scan=SCAN)
        page = await operations.ledger.recent(query)
        deciding = PredicateScan(predicate, count - len(found))
        deque(deciding.over(_matching(page.entries, pattern, after)), maxlen=0)
        found += deciding.chosen
        skipped += deciding.skipped
        error = deciding.error or error
        before = page.before
    return Newest(found[::-1], skipped, error)


async def position_before(operations: Operations, ts_ms: int, head: int) -> int:
    """Find the last entry up to `head` that was recorded before that time; 0 if there is none.

    A search by halves: times rise with the order, except where a clock was set back.
    """
    low, high = 0, head
    while low < high:
        middle = (low + high + 1) // 2
        found = await _last_upto(operations, middle)
        if found is None or found.ts_ms < ts_ms:
            low = middle
        else:
            high = found.global_seq - 1
    return low


async def _last_upto(operations: Operations, global_seq: int) -> Entry | None:
    """The entry with that place, or the next older one that is kept."""
    before = global_seq + 1
    while before:
        page = await operations.ledger.recent(RecentQuery(before, 1, scan=SCAN))
        if page.entries:
            return page.entries[0]
        before = page.before
    return None


def _matching(entries: list[Entry], pattern: Pattern, after: int) -> list[Entry]:
    return [
        entry
        for entry in entries
        if entry.global_seq > after and (pattern.everything or pattern.matches(entry.subject))
    ]
