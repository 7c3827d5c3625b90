"""Pruning by bounds: what stops it is named, and those who read what is gone are told."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tape.bus import Bus, FollowQuery
from tape.errors import InvalidArgument, NotFound, Pruned
from tape.journal.retention import (
    Bound,
    PruneResult,
    find_recorded_before,
    parse_age,
    plan_prune,
    prune,
)
from tape.model.event import NewEvent
from tape.model.reaction import HandlerKind, NewReaction
from tape.model.run import RunStatus
from tape.model.value import Author
from tape.ports.retention import PruneStep, StepDone
from tape.settings import Settings
from tape.stores.by_url import open_store, sqlite_path
from tape.stores.sqlite.store import SqliteStore
from tests.conformance.playing import a_run, save_run


@pytest.fixture
async def bus(sqlite_url: str) -> AsyncIterator[Bus]:
    bus = Bus(await open_store(sqlite_url, Settings()), Settings())
    yield bus
    await bus.close()


@pytest.fixture
async def other(sqlite_url: str, bus: Bus) -> AsyncIterator[Bus]:
    """Another process: it has nothing of the journal in memory."""
    other = Bus(await open_store(sqlite_url, Settings()), Settings())
    yield other
    await other.close()


async def record(bus: Bus, count: int) -> None:
    await bus.record_events([NewEvent("a" if n % 2 else "b") for n in range(count)])


async def pruned_to(bus: Bus, *bounds: Bound, after: int = 0) -> PruneResult:
    plan = await plan_prune(bus._store, after, bounds)
    return await prune(bus._store, plan, step_entries=3)


async def next_of(pages: AsyncIterator[object]) -> object:
    return await asyncio.wait_for(anext(pages), 10)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("7d", 604_800_000), ("250ms", 250), ("0", 0), ("1w", 604_800_000), ("2m", 120_000)],
)
def test_ages(text: str, ms: int) -> None:
    assert parse_age(text, field="x") == ms


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5h", "7 days", "\u0661d"])
def test_what_is_no_age_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidArgument, match="--older-than"):
        parse_age(text, field="--older-than")


async def test_entries_are_found_by_their_time(sqlite_url: str) -> None:
    now = [1000]
    store = await SqliteStore.open(sqlite_path(sqlite_url), Settings().sqlite, clock=lambda: now[0])
    bus = Bus(store, Settings())
    for number in range(1, 41):
        now[0] = number * 10
        await record(bus, 1)
    for ts_ms, expected in [(0, 0), (10, 0), (11, 1), (205, 20), (10_000, 40)]:
        assert await find_recorded_before(store, ts_ms, 40) == expected
    assert await find_recorded_before(store, 10_000, 7) == 7
    await store.retention.prune(PruneStep(0, 30, 100))
    assert await find_recorded_before(store, 305, 40) == 0
    assert await find_recorded_before(store, 355, 40) == 35
    await bus.close()


async def test_the_nearest_bound_stops_it_and_is_named(bus: Bus) -> None:
    await record(bus, 20)
    done = await pruned_to(bus, Bound("age", 12), Bound("relay", 7), Bound("lake", 12))
    assert done == PruneResult(7, 7, {}, (Bound("relay", 7),))
    done = await pruned_to(bus, Bound("age", 12), Bound("lake", 12))
    assert (done.removed, done.held_by) == (5, (Bound("age", 12), Bound("lake", 12)))
    done = await pruned_to(bus)
    assert (done.removed, done.held_by) == (7, (Bound("the newest entry", 19),))
    assert await pruned_to(bus) == PruneResult(0, 19, {}, (Bound("the newest entry", 19),))


async def test_a_lake_that_begins_later_frees_nothing(bus: Bus) -> None:
    await record(bus, 20)
    done = await pruned_to(bus, Bound("lake", 15), after=5)
    assert (done.removed, done.held_by[0].upto) == (0, 0)
    assert "begins only at 6" in done.held_by[0].name


async def test_a_reaction_registered_on_the_way_stops_it(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await record(bus, 20)
    step, steps = bus._store.retention.prune, []

    async def registering(asked: PruneStep) -> StepDone:
        steps.append(asked)
        if len(steps) == 3:
            late = NewReaction("late", "/tape/**", HandlerKind.TASK, from_global_seq=8)
            await bus.reactions.register_reaction(late)
        return await step(asked)

    monkeypatch.setattr(bus._store.retention, "prune", registering)
    done = await pruned_to(bus)
    assert (done.removed, done.held_by) == (8, (Bound("reaction late", 8),))


async def test_a_follower_is_told_and_0_is_the_oldest_kept(bus: Bus, other: Bus) -> None:
    await record(bus, 20)
    await pruned_to(bus, Bound("lake", 12))
    for after in (1, 11):
        with pytest.raises(Pruned, match="up to 12"):
            await next_of(other.follow(FollowQuery(after=after)))
    for after in (0, 12):
        page = await next_of(other.follow(FollowQuery(after=after)))
        assert [e.global_seq for e in page.entries] == list(range(13, 21))  # type: ignore[attr-defined]
    picky = other.follow(FollowQuery(after=3, pattern="/tape/event/recorded/none/**"))
    with pytest.raises(Pruned):
        await next_of(picky)


async def test_a_follower_that_is_overtaken_is_told(bus: Bus, other: Bus) -> None:
    await record(bus, 20)
    pages = other.follow(FollowQuery(after=2, max_batch=5))
    page = await next_of(pages)
    assert page.cursor == 7  # type: ignore[attr-defined]
    await pruned_to(bus, Bound("lake", 12))
    with pytest.raises(Pruned, match="7 is below"):
        await next_of(pages)


async def test_a_reaction_cannot_begin_where_entries_are_missing(bus: Bus) -> None:
    await record(bus, 20)
    early = NewReaction("r", "/tape/**", HandlerKind.TASK, from_global_seq=5)
    await bus.reactions.register_reaction(early)
    await bus.reactions.deregister_reaction("r")
    await pruned_to(bus, Bound("lake", 12))
    with pytest.raises(Pruned, match="backfill"):
        await bus.reactions.register_reaction(early)
    await bus.reactions.register_reaction(early._replace(from_global_seq=0))
    await bus.reactions.register_reaction(
        early
    )  # it is there: this changes its settings, not its cursor


async def test_the_journal_of_an_ended_run_says_that_it_is_gone(bus: Bus) -> None:
    run = a_run("r1")
    await save_run(bus._store, run)
    await bus.record_events([NewEvent("of", run_id="r1", fencing_token=1) for _ in range(6)])
    await record(bus, 4)
    ended = run._replace(status=RunStatus.TERMINAL.value, seq_cursor=6)
    await save_run(bus._store, ended)
    assert len(await bus.runs.read_run("r1", 0)) == 6
    await pruned_to(bus, Bound("lake", 4))
    assert [e.seq for e in await bus.runs.read_run("r1", 4)] == [5, 6]
    assert await bus.runs.read_run("r1", 6) == []
    with pytest.raises(NotFound, match="nobody"):
        await bus.runs.read_run("nobody", 0)
    for after in (0, 3):
        with pytest.raises(Pruned, match="'r1'"):
            await bus.runs.read_run("r1", after)
        with pytest.raises(Pruned, match="'r1'"):
            await next_of(bus.runs.follow_run("r1", after))


async def test_whoever_watches_a_value_is_told(bus: Bus) -> None:
    for number in range(6):
        await bus.values.write_value("n", "k", str(number), -1, Author("w"))
    await pruned_to(bus, Bound("lake", 3))
    with pytest.raises(Pruned, match="after version 1 "):
        await next_of(bus.values.watch_value("n", "k", 1))
    for version in (0, 3):
        change = await next_of(bus.values.watch_value("n", "k", version))
        assert change.value.version == 4  # type: ignore[attr-defined]
