"""Following: from history into the present, past a store that is away, filtered on the way."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from tape.bus import Bus, FollowQuery
from tape.errors import Closed, InvalidArgument, StoreFailed, StoreUnavailable
from tape.journal import follow as follow_module
from tape.journal.follow import Page
from tape.journal.pacer import Pacer
from tape.model.event import NewEvent
from tape.model.value import Author, ValueChange
from tape.ports.store import EntryRange, ReadEntries
from tape.predicates import DEFAULT_LIMITS, Checker
from tape.settings import Settings
from tape.stores.by_url import open_store, sqlite_path
from tape.stores.sqlite.store import SqliteStore
from tests.conformance.playing import a_run, save_run


@pytest.fixture
async def bus(sqlite_url: str) -> AsyncIterator[Bus]:
    bus = Bus(await open_store(sqlite_url, Settings()), Settings())
    yield bus
    await bus.close()


async def next_of(following: AsyncIterator[Any]) -> Any:
    return await asyncio.wait_for(anext(following), 10)


async def pages_until(bus: Bus, query: FollowQuery, cursor: int) -> list[Page]:
    pages: list[Page] = []
    async for page in bus.follow(query):
        pages.append(page)
        if page.cursor >= cursor:
            break
    return pages


async def types(bus: Bus, query: FollowQuery) -> list[str]:
    head = (await bus.info()).head_global_seq
    pages = await pages_until(bus, query, head)
    return [entry.event_type for page in pages for entry in page.entries]


async def test_history_and_then_what_comes(bus: Bus) -> None:
    await bus.record_events([NewEvent("a"), NewEvent("b")])
    following = bus.follow(FollowQuery(after=1))
    page = await next_of(following)
    assert [entry.event_type for entry in page.entries] == ["b"]
    assert page.cursor == 2
    waiting = asyncio.create_task(next_of(following))
    await asyncio.sleep(0)
    assert not waiting.done()
    await bus.record_events([NewEvent("c")])
    assert [entry.event_type for entry in (await waiting).entries] == ["c"]


async def test_filters(bus: Bus) -> None:
    await bus.record_events([NewEvent("a", "1"), NewEvent("ab", "2"), NewEvent("b", "3")])
    every = (await pages_until(bus, FollowQuery(), 3))[0].entries
    assert await types(bus, FollowQuery("/tape/event/recorded/a/**")) == ["a"]
    assert await types(bus, FollowQuery("/tape/*/recorded/*/*/*")) == ["a", "ab", "b"]
    assert await types(bus, FollowQuery("/tape/value/**")) == []
    assert await types(bus, FollowQuery(predicate="payload > 1")) == ["ab", "b"]
    assert await types(bus, FollowQuery("/tape/event/recorded/a/**", "payload > 1")) == []
    assert await types(bus, FollowQuery(predicate="global_seq == 2")) == ["ab"]
    assert await types(bus, FollowQuery(kind="event", after=2)) == ["b"]
    assert await types(bus, FollowQuery(kind="run")) == []
    assert await types(bus, FollowQuery(run_id="r")) == []
    assert await types(bus, FollowQuery(from_ts_ms=every[0].ts_ms)) == ["a", "ab", "b"]
    assert await types(bus, FollowQuery(from_ts_ms=every[-1].ts_ms + 1)) == []


async def test_the_cursor_moves_past_what_does_not_match(bus: Bus) -> None:
    await bus.record_events([NewEvent("a")] * 5)
    page = await next_of(bus.follow(FollowQuery("/tape/value/**")))
    assert page == Page([], 5)


async def test_pages_are_bounded_and_their_cursors_resume(bus: Bus) -> None:
    await bus.record_events([NewEvent("a")] * 10)
    pages = await pages_until(bus, FollowQuery(max_batch=3), 10)
    assert [len(page.entries) for page in pages] == [3, 3, 3, 1]
    for before, after in pairwise(pages):
        resumed = await next_of(bus.follow(FollowQuery(max_batch=3, after=before.cursor)))
        assert resumed.entries == after.entries


async def test_a_journal_longer_than_a_window(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "WINDOW", 4)
    await bus.record_events([NewEvent("a" if n % 5 else "b") for n in range(20)])
    pages = await pages_until(bus, FollowQuery("/tape/event/recorded/b/**"), 20)
    assert [page.cursor for page in pages] == [4, 8, 12, 16, 20]
    assert [entry.global_seq for page in pages for entry in page.entries] == [1, 6, 11, 16]


async def test_what_a_predicate_cannot_decide_is_skipped_and_counted(bus: Bus) -> None:
    await bus.record_events([NewEvent("a", '{"n": 1}'), NewEvent("b", "{}"), NewEvent("c", '"x"')])
    pages = await pages_until(bus, FollowQuery(predicate="payload.n == 1"), 3)
    assert [entry.event_type for page in pages for entry in page.entries] == ["a"]
    assert sum(page.skipped for page in pages) == 2
    assert "entry 3:" in pages[-1].error


async def test_the_previous_value_is_a_name_for_predicates(bus: Bus) -> None:
    for text in ("1", "1", "2"):
        await bus.values.write_value("treasury", "k", text, -1, Author())
    query = FollowQuery(
        "/tape/value/changed/treasury/**", "payload.value.value_json != prev_value_json"
    )
    pages = await pages_until(bus, query, 3)
    assert [entry.global_seq for page in pages for entry in page.entries] == [1, 3]


@pytest.mark.parametrize(
    "query",
    [
        FollowQuery("nope"),
        FollowQuery("/tape/**/x"),
        FollowQuery(predicate="payload +"),
        FollowQuery(predicate="1"),
        FollowQuery(after=-1),
        FollowQuery(kind="\0"),
        FollowQuery(run_id="x" * 600),
    ],
)
def test_a_bad_query_is_refused_before_anything_is_read(query: FollowQuery) -> None:
    bus = Bus.__new__(Bus)
    bus._limits = Settings().limits
    bus.checker = Checker(DEFAULT_LIMITS, Pacer().call_in_thread)
    with pytest.raises(InvalidArgument):
        bus.follow(query)


async def test_a_run_in_its_own_order(bus: Bus) -> None:
    await save_run(bus._store, a_run("r"))
    step = NewEvent("step", run_id="r", fencing_token=1)
    await bus.record_events([step, NewEvent("else"), step])
    following = bus.runs.follow_run("r", 1)
    assert [entry.seq for entry in await next_of(following)] == [2]
    waiting = asyncio.create_task(next_of(following))
    await bus.record_events([NewEvent("else")])
    await bus.record_events([step])
    assert [entry.seq for entry in await waiting] == [3]


async def test_every_change_of_a_value_from_a_version_on(bus: Bus) -> None:
    for text in ("1", "2", "3"):
        await bus.values.write_value("n", "k", text, -1, Author())
    await bus.values.write_value("n", "other", "9", -1, Author())
    watching = bus.values.watch_value("n", "k", 1)
    changes: list[ValueChange] = [await next_of(watching), await next_of(watching)]
    assert [(c.value.value_json, c.prev_value_json) for c in changes] == [("2", "1"), ("3", "2")]
    waiting = asyncio.create_task(next_of(watching))
    await bus.values.write_value("n", "other", "10", -1, Author())
    await bus.values.delete_value("n", "k", Author())
    change = await waiting
    assert (change.value.deleted, change.value.version, change.prev_value_json) == (True, 4, "3")


async def test_a_follower_outlives_a_store_that_is_away(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "AWAY_FIRST_S", 0.001)
    await bus.record_events([NewEvent("a")])
    read, failures = bus._store.read_entries, [StoreUnavailable("away")] * 3

    async def failing(query: ReadEntries) -> EntryRange:
        if failures:
            raise failures.pop()
        return await read(query)

    monkeypatch.setattr(bus._store, "read_entries", failing)
    page = await next_of(bus.follow(FollowQuery()))
    assert [entry.event_type for entry in page.entries] == ["a"]
    assert failures == []


async def test_a_read_that_fails_for_good_ends_the_follower(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bus.record_events([NewEvent("a")])

    async def failing(_query: ReadEntries) -> EntryRange:
        raise StoreFailed("corrupt")

    monkeypatch.setattr(bus._store, "read_entries", failing)
    with pytest.raises(StoreFailed):
        await next_of(bus.follow(FollowQuery()))


async def test_followers_of_a_closed_bus_are_told(sqlite_url: str) -> None:
    store = await SqliteStore.open(sqlite_path(sqlite_url), Settings().sqlite)
    bus = Bus(store, Settings())
    waiting = [
        asyncio.create_task(next_of(bus.follow(FollowQuery()))),
        asyncio.create_task(next_of(bus.runs.follow_run("r", 0))),
        asyncio.create_task(next_of(bus.values.watch_value("n", "k", 0))),
    ]
    async with asyncio.timeout(10):
        while len(store._head._waiters) < len(waiting):
            await asyncio.to_thread(lambda: None)
    await bus.close()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Closed] * 3


async def test_a_cursor_beyond_the_end_is_refused(bus: Bus) -> None:
    """It comes from another journal or from before a restore; waiting there would skip entries."""
    await bus.record_events([NewEvent("a"), NewEvent("b")])
    with pytest.raises(InvalidArgument, match="3 is beyond the end of this journal, 2"):
        await next_of(bus.follow(FollowQuery(after=3)))
    following = asyncio.create_task(next_of(bus.follow(FollowQuery(after=2))))
    await asyncio.sleep(0)
    await bus.record_events([NewEvent("c")])
    assert [entry.event_type for entry in (await following).entries] == ["c"]
