"""History becomes tasks once, whoever comes first: the server's matcher, a backfill, a follower."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest
from pyspark.sql import SparkSession

from tape.errors import InvalidArgument, NotFound
from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.model.reaction import Reaction
from tape.pipeline.job import JobContext, JobProgress, Summary
from tape.pipeline.jobs.backfill import job
from tape.pipeline.jobs.backfill.following import BackfillFollower
from tape.pipeline.jobs.backfill.history import Span, read_span
from tape.pipeline.jobs.backfill.job import Backfill
from tape.pipeline.jobs.backfill.queueing import Queueing, SettingsChanged
from tape.ports.matching import MatcherLease
from tape.ports.store import ReadEntries, Store
from tape.programs.connect import open_bus
from tape.reactions.match import Matcher
from tape.settings import Settings
from tape.stores.blocking import Stores
from tests.conformance.reacting import claim, expect_sound, keys_of, state_of
from tests.pipeline.backfill.world import Decided, by_server, events, new_reactions

T = TypeVar("T")
ENTRIES = 400
COUNT = 14
NAMES = tuple(new.reaction_id for new in new_reactions(COUNT))
MANY = 1_000_000


@pytest.fixture
def url(store_url: str) -> str:
    return store_url


def use(url: str, act: Callable[[Store], Awaitable[T]]) -> T:
    return Stores().store(url, creating=True)(act)


def record(url: str, *, count: int = ENTRIES, seed: int = 5) -> None:
    async def recorded() -> None:
        bus = await open_bus(url)
        await bus.record_events(events(count, seed))
        await bus.close()

    asyncio.run(recorded())


def register(url: str, count: int = COUNT, **settings: Any) -> None:
    async def registered() -> None:
        bus = await open_bus(url)
        for new in new_reactions(count, **settings):
            await bus.reactions.register_reaction(new)
        await bus.close()

    asyncio.run(registered())


def fill(spark: SparkSession, url: str, names: tuple[str, ...] = NAMES, **options: Any) -> Summary:
    said: list[JobProgress] = []
    work = JobContext(spark, url, Stores().store(url), said.append)
    summary = Backfill(names, **options).run(work)
    assert options.get("dry_run") or said[-1].job == "backfill"
    return summary


async def journal_of(store: Store) -> list[Entry]:
    return (await store.read_entries(ReadEntries(0, store.head, MANY, 2**40))).entries


async def reactions_of(store: Store) -> list[Reaction]:
    return (await store.matching.read_reactions()).reactions


async def tasks_of(store: Store) -> set[tuple[str, int, int]]:
    found = await store.tasks.list_tasks("", None, None, MANY)
    keys = [task.key for task in found]
    assert len(keys) == len(set(keys))
    await expect_sound(store)
    return {(key.reaction_id, key.shard, key.source_global_seq) for key in keys}


def expected(url: str, upto: int = MANY) -> Decided:
    """What the server decides of the events; entries about tasks came later."""

    async def decide(store: Store) -> Decided:
        made = [entry for entry in await journal_of(store) if entry.global_seq <= upto]
        return by_server(made, await reactions_of(store))

    return use(url, decide)


def keys(decided: Decided) -> set[tuple[str, int, int]]:
    return {task[:3] for task in decided.tasks}


async def match_live(store: Store, upto: int) -> None:
    """The server's matcher until it stands there, from wherever its reactions are."""
    lease = await store.matching.acquire_matcher("live", 60_000)
    assert isinstance(lease, MatcherLease)
    running = asyncio.create_task(Matcher(store, lease, Settings().matcher).run())
    async with asyncio.timeout(60):
        while min(state.position for state in await store.matching.list_reactions()) < upto:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.matching.release_matcher(lease)


async def dispatch_all(store: Store) -> int:
    """Every task that is due is done; how many."""
    done = 0
    for reaction in await reactions_of(store):
        while held := await claim(store, reaction.reaction_id, owner="d"):
            settled = await store.tasks.complete_tasks("d", keys_of(held))
            done += len(settled.done)
    return done


@pytest.mark.middle
def test_a_dry_run_tells_what_a_run_then_does(spark: SparkSession, url: str) -> None:
    record(url)
    register(url)
    told = fill(spark, url, dry_run=True)
    assert use(url, tasks_of) == set()
    decided = expected(url)
    sums = [sum(column) for column in list(zip(*decided.counts.values(), strict=True))[:3]]
    names = ("matched", "coalesced", "errors")
    assert [told.counts[name] for name in names] == sums
    assert told.counts["would_fire"] == len(decided.tasks)
    records: Any = told.facts["reactions"]
    for one in records:
        sources = sorted(t[2] for t in decided.tasks if t[0] == one["reaction_id"])
        assert one["would_fire"] == len(sources)
        assert len(one["sample"]) == min(3, len(sources)) or len(one["sample"]) > 0
        assert {int(each.split()[0]) for each in one["sample"]} <= set(sources)
        assert bool(one["first_error"]) == bool(one["errors"])
    done = fill(spark, url)
    assert use(url, tasks_of) == keys(decided)
    assert done.counts["made"] == len(decided.tasks)
    again = fill(spark, url)
    assert (again.counts["made"], again.counts["already_there"]) == (0, len(decided.tasks))
    assert fill(spark, url, dry_run=True).counts["already_there"] == len(decided.tasks)


@pytest.mark.parametrize("order", ["backfill first", "live first", "both at once"])
def test_nothing_fires_twice(spark: SparkSession, url: str, order: str) -> None:
    record(url)
    register(url, from_global_seq=0)
    decided = expected(url)

    async def live(store: Store) -> int:
        await match_live(store, ENTRIES)
        return await dispatch_all(store)

    async def both(store: Store) -> int:
        filling = asyncio.create_task(asyncio.to_thread(fill, spark, url))
        done = await live(store)
        while not filling.done():
            done += await dispatch_all(store)
            await asyncio.sleep(0.01)
        await filling
        return done

    if order == "backfill first":
        fill(spark, url)
        done = use(url, dispatch_all) + use(url, live)
    elif order == "live first":
        done = use(url, live)
        fill(spark, url)
    else:
        done = use(url, both)
    done += use(url, dispatch_all)
    assert use(url, tasks_of) == keys(decided)
    waiting = {t[:3] for t in decided.tasks if _waits(t[0])}
    assert done >= len(decided.tasks) - len(waiting)
    for reaction_id in NAMES:
        matched = sum(of[0] for key, of in decided.counts.items() if key[0] == reaction_id)
        state = use(url, lambda store, name=reaction_id: state_of(store, name))  # type: ignore[misc]
        assert state.matched == matched, reaction_id


def _waits(reaction_id: str) -> bool:
    return any(new.reaction_id == reaction_id and new.debounce_ms for new in new_reactions(COUNT))


def follower(spark: SparkSession, url: str, batch_entries: int = 150) -> BackfillFollower:
    work = JobContext(spark, url, Stores().store(url))

    def read(after: int, upto: int) -> Any:
        return read_span(work, "", Span(after, upto))

    return BackfillFollower(read, (), batch_entries)


@pytest.mark.middle
def test_a_follower_takes_over_from_the_server(spark: SparkSession, url: str) -> None:
    """From where each reaction is; one that is new and late catches up; two at once share."""
    record(url, count=200)
    register(url, engine="spark", from_global_seq=0)

    async def follow(store: Store) -> None:
        one, two = follower(spark, url), follower(spark, url)
        while any(await asyncio.gather(one.catch_up(store), two.catch_up(store))):
            pass

    use(url, follow)
    decided = expected(url)
    assert use(url, tasks_of) == keys(decided)
    record(url, count=100, seed=6)

    async def late(store: Store) -> Store:
        bus = await open_bus(url)
        new = new_reactions(1, engine="spark", from_global_seq=50)[0]
        await bus.reactions.register_reaction(new._replace(reaction_id="late"))
        await bus.close()
        await follow(store)
        return store

    use(url, late)

    async def compare(store: Store) -> None:
        book = await store.matching.read_reactions()
        assert {cursor.last_global_seq for cursor in book.cursors} == {store.head}
        assert {cursor.following for cursor in book.cursors} == {0}
        for state in await store.matching.list_reactions():
            name = state.reaction.reaction_id
            tasks = await store.tasks.list_tasks(name, None, None, MANY)
            assert state.matched - state.coalesced == len(tasks), name
            if name == "late":
                assert {task.source_global_seq for task in tasks} == set(range(51, 301))
                continue
            of = [count for key, count in expected_now.counts.items() if key[0] == name]
            assert state.matched == sum(count[0] for count in of), name
            assert state.predicate_errors == sum(count[2] for count in of), name
            if state.predicate_errors:
                assert state.last_error in {count[3] for count in of}

    expected_now = expected(url)
    use(url, compare)


def test_a_burst_that_goes_on_beyond_the_range(spark: SparkSession, url: str) -> None:
    """The last entry of a range leaves its work to one beyond, as it would have then."""
    record(url, count=60)
    register(url)
    whole = expected(url)
    summary = fill(spark, url, upto=30)
    made = use(url, tasks_of)
    assert {key for key in made if _waits(key[0])} == {
        key for key in keys(whole) if _waits(key[0]) and key[2] <= 30
    }
    assert summary.facts["upto"] == 30
    assert max(key[2] for key in made) <= 30


class Overtaken(Queueing):
    """Finds, after it has queued, that the reactions have changed: so many times."""

    times = 0

    async def take(self, rows: Iterator[Any]) -> bool:
        more = await super().take(rows)
        if Overtaken.times:
            Overtaken.times -= 1
            raise SettingsChanged
        return more


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_no_column_decides_python_does(
    spark: SparkSession, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    """A payload that VARIANT does not hold, among others; a reaction is registered anew besides."""
    monkeypatch.setattr(job, "FEW_ENTRIES", 0)
    monkeypatch.setattr(job, "Queueing", Overtaken)
    Overtaken.times = 1
    record(sqlite_url, count=20)

    async def odd() -> None:
        bus = await open_bus(sqlite_url)
        payload = orjson.dumps({"k" * 60_000: 1, "n": 3, "price": 60.0}).decode()
        await bus.record_events([NewEvent("order", payload, "desk", "7")])
        await bus.close()

    asyncio.run(odd())
    register(sqlite_url, count=3)
    decided = expected(sqlite_url)
    summary = fill(spark, sqlite_url, NAMES[:3], dry_run=dry_run)
    assert summary.counts["matched"] == sum(of[0] for of in decided.counts.values())
    assert use(sqlite_url, tasks_of) == (set() if dry_run else keys(decided))
    assert any(key[2] == 21 for key in keys(decided))


def test_what_makes_no_sense_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/tape.db"
    record(url, count=3)
    register(url)
    work = JobContext(spark, url, Stores().store(url))
    for asked, field in (
        (Backfill(()), "reactions"),
        (Backfill(NAMES, from_seq=9), "from"),
        (Backfill(NAMES, from_seq=2, upto=1), "upto"),
        (Backfill(NAMES, follow=True), "reactions"),
        (Backfill(follow=True, upto=3), "upto"),
        (Backfill(follow=True, dry_run=True), "dry_run"),
    ):
        with pytest.raises(InvalidArgument, match=field):
            asked.run(work)
    with pytest.raises(NotFound, match="nobody"):
        Backfill(("nobody",)).run(work)
    assert use(url, tasks_of) == set()
