"""From the old cursor to the new: the `global_seq` up to which an earlier relay had come.

Earlier relays went through the journal by (time, run, seq) and kept the last of it. Times are not
in the order of the journal, and several entries may share one. So the new position stands before
the first entry that the old relay may not have sent: those of the same millisecond that belong to
other runs are sent again rather than lost.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import NamedTuple

from tape.journal.follow import Page
from tape.journal_relay.cursor_file import OldCursor
from tape.model.entry import Entry


class PastQuery(NamedTuple):
    """Entries recorded at `from_ts_ms` or later, of one run or of all, up to `until`."""

    from_ts_ms: int
    run_id: str
    until: int


ReadPast = Callable[[PastQuery], AsyncGenerator[Page, None]]


async def position_of(old: OldCursor, read_past: ReadPast, head: int) -> int:
    """`head` is the newest `global_seq` there is; nothing is looked at beyond it."""
    if head == 0:
        return 0
    last = None
    if old.last_run_id:
        past = PastQuery(old.from_ts_ms, old.last_run_id, head)
        last = await _first(read_past(past), lambda entry: entry.seq == old.last_seq)
    since = old.from_ts_ms if last is None else last.ts_ms

    def unsent(entry: Entry) -> bool:
        of_the_run = last is not None and entry.run_id == last.run_id
        return not (entry.ts_ms == since and of_the_run and entry.seq <= old.last_seq)

    first = await _first(read_past(PastQuery(since, "", head)), unsent)
    return head if first is None else first.global_seq - 1


async def _first(
    pages: AsyncGenerator[Page, None], wanted: Callable[[Entry], bool]
) -> Entry | None:
    async with aclosing(pages):
        async for page in pages:
            for entry in page.entries:
                if wanted(entry):
                    return entry
    return None
