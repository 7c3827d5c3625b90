"""A predicate that takes a store too long is read in shorter ranges, and then left to Python."""

import asyncio
from typing import NamedTuple

import pytest

from tape.ports.predicate import SqlFilter
from tape.ports.store import EntryRange, ReadEntries
from tape.predicates import check
from tape.settings import Settings
from tape.stores.by_url import open_store
from tape.stores.filtered import SHORTER, FilteredReads
from tests.unit.stores.recording import record_numbers

PREDICATE = check("payload.n == 3.0")


def a_query(upto: int) -> ReadEntries:
    return ReadEntries(0, upto, 100, 1_000_000, predicate=PREDICATE)


class Store:
    """Filters so many entries in time."""

    def __init__(self, capable_of: int) -> None:
        self.capable_of = capable_of
        self.asked: list[tuple[int, bool]] = []

    async def read(self, query: ReadEntries, condition: SqlFilter | None) -> EntryRange | None:
        self.asked.append((query.upto - query.after, condition is not None))
        if condition is not None and query.upto - query.after > self.capable_of:
            return None
        return EntryRange([], query.upto)


async def test_what_takes_too_long_is_read_in_shorter_ranges_from_then_on() -> None:
    reads, store = FilteredReads("sqlite", 4), Store(SHORTER)
    found = await reads.read(a_query(SHORTER * SHORTER), store.read)
    assert found.through == SHORTER
    assert store.asked == [(SHORTER * SHORTER, True), (SHORTER, True)]
    await reads.read(a_query(SHORTER * SHORTER), store.read)
    assert store.asked[2:] == [(SHORTER, True)]


async def test_what_is_too_slow_for_one_entry_is_left_to_python() -> None:
    reads, store = FilteredReads("sqlite", 4), Store(0)
    assert (await reads.read(a_query(SHORTER), store.read)).through == SHORTER
    assert store.asked == [(SHORTER, True), (1, True), (SHORTER, False)]
    await reads.read(a_query(SHORTER), store.read)
    assert store.asked[3:] == [(SHORTER, False)]


@pytest.mark.parametrize(("hurried", "filter_s"), [(True, 60.0), (False, 0.01)])
async def test_python_decides_where_others_have_the_room(
    monkeypatch: pytest.MonkeyPatch, hurried: bool, filter_s: float
) -> None:
    monkeypatch.setattr("tape.stores.filtered.FILTER_S", filter_s)
    reads, store, taken = FilteredReads("sqlite", 4), Store(100), asyncio.Event()

    async def for_ever(_query: ReadEntries, _condition: SqlFilter | None) -> EntryRange | None:
        taken.set()
        await asyncio.Event().wait()
        return None

    slow = asyncio.create_task(reads.read(a_query(10), for_ever))
    await taken.wait()
    async with asyncio.timeout(30):
        await reads.read(a_query(10)._replace(hurried=hurried), store.read)
    assert store.asked == [(10, False)]
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    await reads.read(a_query(10)._replace(hurried=hurried), store.read)
    assert store.asked[1:] == [(10, True)], "the room is free again"


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_store_reads_a_payload_a_few_times_at_most(dialect: str) -> None:
    leaf = "payload.n == 1.0"
    assert check(" || ".join([leaf] * 8)).sql_prefilter(dialect) is not None  # type: ignore[arg-type]
    assert check(" || ".join([leaf] * 9)).sql_prefilter(dialect) is None  # type: ignore[arg-type]


class Sleeping(NamedTuple):
    """A condition that takes Postgres a minute for each entry."""

    text: str = "pg_sleep(60) IS NULL"
    params: tuple[object, ...] = ()

    def renumbered(self, _start: int) -> "Sleeping":
        return self


async def test_a_store_ends_what_takes_too_long(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(store_url, Settings())
    try:
        await record_numbers(store, 4_000)
        query = ReadEntries(0, 4_000, 10_000, 100_000_000, predicate=PREDICATE)
        assert [entry.global_seq for entry in (await store.read_entries(query)).entries] == [4]
        monkeypatch.setattr("tape.stores.sqlite.entries.FILTER_S", -1.0)
        monkeypatch.setattr("tape.stores.postgres.entries.FILTER_S", 0.01)
        slow = check("payload.n == 4.0")
        monkeypatch.setitem(slow._prefilters, "postgres", Sleeping())
        found = await store.read_entries(query._replace(predicate=slow))
        # SQLite looks at the clock after a few entries only; Postgres leaves all to Python.
        assert (len(found.entries), found.through) in {(1, 4_000 // SHORTER), (4_000, 4_000)}
    finally:
        await store.close()
