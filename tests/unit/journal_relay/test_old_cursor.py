"""From (time, run, seq) to one integer: nothing is lost, repeats only within a millisecond."""

from collections.abc import AsyncGenerator

from hypothesis import given
from hypothesis import strategies as st

from tape.journal.follow import Page
from tape.journal_relay.cursor_file import OldCursor
from tape.journal_relay.old_cursor import PastQuery, position_of
from tape.model.entry import Entry
from tests.conformance.broker import outgoing


def journal(*rows: tuple[int, str, int]) -> list[Entry]:
    """Entries by (ts_ms, run_id, seq), numbered from 1."""
    return [
        outgoing(0).entry._replace(global_seq=number, ts_ms=ts_ms, run_id=run_id, seq=seq)
        for number, (ts_ms, run_id, seq) in enumerate(rows, 1)
    ]


async def position(entries: list[Entry], old: OldCursor) -> int:
    async def read_past(past: PastQuery) -> AsyncGenerator[Page, None]:
        for entry in entries:
            late = entry.ts_ms >= past.from_ts_ms and entry.global_seq <= past.until
            if late and past.run_id in ("", entry.run_id):
                yield Page([entry], entry.global_seq)

    return await position_of(old, read_past, len(entries))


async def test_an_empty_journal() -> None:
    assert await position([], OldCursor(5, "a", 1)) == 0


async def test_after_the_last_that_was_sent() -> None:
    entries = journal((1, "a", 1), (2, "a", 2), (3, "b", 1), (4, "a", 3))
    assert await position(entries, OldCursor(2, "a", 2)) == 2
    assert await position(entries, OldCursor(4, "a", 3)) == 4


async def test_others_of_the_same_millisecond_are_sent_again() -> None:
    entries = journal((1, "a", 1), (2, "b", 1), (2, "a", 2), (2, "", 0), (3, "a", 3))
    assert await position(entries, OldCursor(2, "a", 2)) == 1


async def test_a_time_ahead_of_its_place_is_not_skipped() -> None:
    entries = journal((9, "b", 1), (2, "a", 1), (3, "a", 2))
    assert await position(entries, OldCursor(2, "a", 1)) == 0


async def test_a_time_that_is_only_where_the_old_relay_began() -> None:
    entries = journal((1, "a", 1), (2, "a", 2), (3, "b", 1), (4, "a", 3))
    assert await position(entries, OldCursor(0, "b", 1)) == 3


async def test_a_last_entry_that_is_not_there_skips_nothing_of_its_millisecond() -> None:
    entries = journal((1, "a", 1), (2, "b", 1), (3, "b", 2))
    assert await position(entries, OldCursor(2, "gone", 7)) == 1
    assert await position(entries, OldCursor(2, "", 0)) == 1
    assert await position(entries, OldCursor(4, "", 0)) == 3


rows = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from(["a", "b", ""])), min_size=1, max_size=12
)


@given(rows, st.data())
async def test_nothing_the_old_relay_had_not_sent_is_passed(
    rows: list[tuple[int, str]], data: st.DataObject
) -> None:
    seqs: dict[str, int] = {"a": 0, "b": 0}
    numbered: list[tuple[int, str, int]] = []
    for ts_ms, run_id in rows:
        if run_id:
            seqs[run_id] += 1
        numbered.append((ts_ms, run_id, seqs.get(run_id, 0)))
    entries = journal(*numbered)
    old_order = sorted(entries, key=lambda entry: (entry.ts_ms, entry.run_id, entry.seq))
    last = data.draw(st.sampled_from(old_order))
    sent = old_order[: old_order.index(last) + 1]
    found = await position(entries, OldCursor(last.ts_ms, last.run_id, last.seq))
    unsent = [entry for entry in entries if entry not in sent]
    assert all(entry.global_seq > found for entry in unsent)
