"""The matcher on a real store: what it makes of entries while reactions come, change and go."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tape.errors import InvalidArgument
from tape.journal.pacer import Pacer
from tape.model.event import NewEvent
from tape.ports.clock import Clock
from tape.ports.matching import MatcherLease, MatchStep, RegisteredReactions, StepResult
from tape.reactions.match import LeaseLost, Matcher
from tape.settings import MatcherSettings, PredicateSettings, SqliteSettings
from tape.stores.bell import Bell
from tape.stores.sqlite.matching import SqliteMatching
from tape.stores.sqlite.pool import SqlitePool
from tape.stores.sqlite.store import SqliteStore
from tests.conformance.playing import record
from tests.conformance.reacting import (
    HOUR_MS,
    cursors_of,
    deregister,
    expect_sound,
    record_some,
    register,
    sources_with,
    state_of,
    until,
)

SMALL = MatcherSettings(page_entries=20, step_tasks=30, settle_s=0.01)

Hook = Callable[[MatchStep], Awaitable[None]]


class HookedMatching(SqliteMatching):
    """Lets a test do something just before a step is made."""

    before_step: Hook | None = None

    def __init__(self, reads: SqlitePool, writes: SqlitePool, clock: Clock, bell: Bell) -> None:
        super().__init__(reads, writes, clock, bell)
        self.results: list[StepResult] = []
        self.put_off: set[str] = set()
        self.books = 0

    async def make_step(self, step: MatchStep) -> StepResult:
        hook, self.before_step = self.before_step, None
        if hook is not None:
            await hook(step)
        self.results.append(await super().make_step(step))
        self.put_off.update(step.put_off)
        return self.results[-1]

    async def read_reactions(self) -> RegisteredReactions:
        self.books += 1
        return await super().read_reactions()


class HookedStore(SqliteStore):
    matching: HookedMatching

    def __init__(self, path: Path, settings: SqliteSettings, clock: Clock) -> None:
        super().__init__(path, settings, clock)
        self.matching = HookedMatching(self._reading, self._writing, clock, self._bell)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[HookedStore]:
    opened = await HookedStore.open(tmp_path / "tape.db", SqliteSettings())
    assert isinstance(opened, HookedStore)
    yield opened
    await expect_sound(opened)
    await opened.close()


async def lead(store: SqliteStore, owner: str = "matcher") -> MatcherLease:
    lease = await store.matching.acquire_matcher(owner, HOUR_MS)
    assert lease is not None
    return lease


@asynccontextmanager
async def matching(
    store: SqliteStore, settings: MatcherSettings = SMALL, pacer: Pacer | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    matcher = Matcher(store, await lead(store), settings, pacer)
    running = asyncio.create_task(matcher.run())
    yield running
    running.cancel()
    with suppress(asyncio.CancelledError, LeaseLost):
        await running


async def considered(store: SqliteStore, upto: int) -> None:
    async def ask() -> bool:
        states = [s for s in await store.matching.list_reactions() if s.reaction.engine == "server"]
        return all(state.following and state.position >= upto for state in states)

    await until(ask)


async def made(store: SqliteStore, reaction_id: str) -> list[int]:
    found = await sources_with(store, None, reaction_id)
    assert len(set(found)) == len(found)
    return sorted(found)


async def test_what_is_there_and_what_comes_is_matched(store: HookedStore) -> None:
    await register(store)
    before = await record_some(store, 50)
    async with matching(store):
        after = await record_some(store, 50)
        await considered(store, after[-1])
    assert await made(store, "r") == before + after
    state = await state_of(store)
    assert (state.matched, state.position, state.predicate_errors) == (100, 100, 0)


async def test_a_predicate_that_takes_too_long_fails_alone(store: HookedStore) -> None:
    """It is shown as failing, and neither other reactions nor the matcher wait for it."""
    numbers = list(range(70))
    costly = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, a + b + c >= 0)))"
    slow = f"{numbers}.all(a, {numbers[:40]}.all(b, a + b >= 0))"
    await register(store, "costly", predicate_cel=costly)
    await register(store, "slow", predicate_cel=slow, num_shards=3)
    await register(store, "quick", predicate_cel="kind == 'event'")
    entries = await record_some(store, 15)
    pacer = Pacer(PredicateSettings(share=1.0, page_s=0.01))
    async with matching(store, pacer=pacer):
        await until(lambda: _made_all(store, "quick", len(entries)))
        late = {
            s.reaction.reaction_id for s in await store.matching.list_reactions() if not s.following
        }
        entries += await record_some(store, 5)
        await considered(store, entries[-1])
    pacer.close()
    assert "costly" in late
    assert await made(store, "quick") == await made(store, "slow") == entries
    assert await made(store, "costly") == []
    state = await state_of(store, "costly")
    assert (state.predicate_errors, state.matched) == (len(entries), 0)
    assert "the predicate does more work than one evaluation may do" in state.last_error


NUMBERS = list(range(60))
SLOW = f"{NUMBERS}.all(a, {NUMBERS}.all(b, a + b >= 0))"


@pytest.mark.parametrize("from_global_seq", [0, None])
async def test_others_are_matched_while_one_waits_for_its_turns(
    store: HookedStore, from_global_seq: int | None
) -> None:
    """It gets so little of the time that it never comes to an end."""
    await record_some(store, 100)
    await register(store, "quick", predicate_cel="kind == 'event'")
    await register(store, "slow", predicate_cel=SLOW, from_global_seq=from_global_seq)
    pacer = Pacer(PredicateSettings(share=0.000_01, page_s=0.01))
    async with matching(store, pacer=pacer):
        for count in (20, 40, 60, 80):
            await record_some(store, 20)
            await until(lambda count=count: _made_all(store, "quick", count))  # type: ignore[misc]
        await register(store, "new", predicate_cel="seq == 0", from_global_seq=0)
        await record_some(store, 20)
        await until(lambda: _made_all(store, "quick", 100))
        assert not (await state_of(store, "slow")).following
    pacer.close()


async def test_one_that_takes_long_leaves_and_joins_without_reading_the_book(
    store: HookedStore,
) -> None:
    await register(store, "quick")
    await register(store, "slow", predicate_cel=SLOW)
    pacer = Pacer(PredicateSettings(share=1.0, page_s=0.01))
    async with matching(store, pacer=pacer):
        for _ in range(5):
            entries = await record_some(store, 5)
            await considered(store, entries[-1])
    pacer.close()
    assert store.matching.put_off == {"slow"}
    assert store.matching.books == 2  # before its predicates are compiled, and after that
    assert await made(store, "quick") == await made(store, "slow") == list(range(1, 26))


async def test_a_predicate_that_always_fails_does_not_flood_the_log(
    store: HookedStore, caplog: pytest.LogCaptureFixture
) -> None:
    await register(store, "wrong", predicate_cel="payload.nothing == 1")
    async with matching(store):
        for _ in range(5):
            entries = await record_some(store, 2)
            await considered(store, entries[-1])
    assert (await state_of(store, "wrong")).predicate_errors == 10
    assert caplog.text.count("reaction wrong: its predicate failed for 2 entries") == 1
    assert caplog.text.count("its predicate failed") == 1


async def test_light_ones_that_take_long_are_matched_apart(store: HookedStore) -> None:
    """Nothing in them grows with an entry, so nobody times them until they are seen to."""
    slow = "||".join(["!payload.a"] * 340)
    for n in range(30):
        await register(store, f"slow-{n}", predicate_cel=slow)
    await register(store, "quick", predicate_cel="kind == 'event'")
    pacer = Pacer(PredicateSettings(share=1.0, page_s=0.01))
    async with matching(store, pacer=pacer):
        entries = await record_some(store, 60)
        await until(lambda: _made_all(store, "quick", len(entries)))
        await considered(store, entries[-1])
    pacer.close()
    assert store.matching.put_off
    assert "quick" not in store.matching.put_off
    assert {(await state_of(store, f"slow-{n}")).predicate_errors for n in range(30)} == {60}


async def test_those_that_take_long_take_turns(store: HookedStore) -> None:
    """Also where one of them has caught up again and again meanwhile."""
    for name in ("a", "b", "c"):
        await register(store, name, predicate_cel=SLOW, from_global_seq=0)
    await register(store, "quick", subject_pattern="/tape/value/**", from_global_seq=0)
    entries = await record_some(store, 6)
    pacer = Pacer(PredicateSettings(share=1.0, page_s=0.001))
    async with matching(store, pacer=pacer):
        await register(store, "new", predicate_cel="seq == 0", from_global_seq=0)
        await considered(store, entries[-1])
    pacer.close()
    for name in ("a", "b", "c", "new"):
        assert await made(store, name) == entries


async def _made_all(store: SqliteStore, reaction_id: str, count: int) -> bool:
    return len(await made(store, reaction_id)) == count


async def test_entries_that_match_nothing_are_passed_over(store: HookedStore) -> None:
    await register(store, subject_pattern="/tape/value/**")
    await record_some(store, 100)
    async with matching(store):
        await considered(store, 100)
    assert await made(store, "r") == []


async def test_nothing_is_matched_twice_by_the_next_who_leads(store: HookedStore) -> None:
    await register(store)
    await record_some(store, 30)
    async with matching(store):
        await considered(store, 30)
    await record_some(store, 30)
    async with matching(store):
        await considered(store, 60)
    assert await made(store, "r") == list(range(1, 61))
    assert (await state_of(store)).matched == 60


async def test_a_reaction_registered_before_the_step_misses_nothing(store: HookedStore) -> None:
    await register(store)
    await record_some(store, 5)

    async def somebody_registers(step: MatchStep) -> None:
        await register(store, "s")
        await record_some(store, 3)

    store.matching.before_step = somebody_registers
    async with matching(store):
        await considered(store, 8)
    assert store.matching.results[0] == "outdated"
    assert await made(store, "r") == list(range(1, 9))
    assert await made(store, "s") == [6, 7, 8]
    assert [(await state_of(store, name)).matched for name in ("r", "s")] == [8, 3]


async def test_one_that_starts_in_the_past_is_registered_before_the_step(
    store: HookedStore,
) -> None:
    await register(store)
    await record_some(store, 100)

    async def somebody_registers(step: MatchStep) -> None:
        await register(store, "s", from_global_seq=10)

    store.matching.before_step = somebody_registers
    async with matching(store):
        await considered(store, 100)
    assert await made(store, "r") == list(range(1, 101))
    assert await made(store, "s") == list(range(11, 101))


async def test_settings_that_change_before_the_step_hold_from_there_on(
    store: HookedStore,
) -> None:
    await register(store)
    await record_some(store, 10)

    async def somebody_narrows(step: MatchStep) -> None:
        await register(store, predicate_cel="global_seq > 5")

    store.matching.before_step = somebody_narrows
    async with matching(store):
        await considered(store, 10)
    assert await made(store, "r") == [6, 7, 8, 9, 10]


async def test_one_deregistered_before_the_step_makes_nothing(store: HookedStore) -> None:
    await register(store)
    await register(store, "s")
    await record_some(store, 10)

    async def somebody_deregisters(step: MatchStep) -> None:
        await deregister(store, "s")

    store.matching.before_step = somebody_deregisters
    async with matching(store):
        await considered(store, 10)
    assert await made(store, "r") == list(range(1, 11))
    assert await made(store, "s") == []


@pytest.mark.parametrize("other", ["/tape/**", "/tape/value/**"])
async def test_a_late_one_catches_up_while_entries_keep_coming(
    store: HookedStore, other: str
) -> None:
    """Whether the matcher makes a step for each page, or passes over much before it makes one."""
    await register(store, subject_pattern=other)
    await record_some(store, 1_000)
    enough = asyncio.Event()

    async def keep_recording() -> int:
        last = 0
        while not enough.is_set():
            last = (await record_some(store, 3))[-1]
        return last

    async with matching(store, replace(SMALL, settle_s=0.15)):
        await considered(store, 1_000)
        recording = asyncio.create_task(keep_recording())
        await register(store, "late", from_global_seq=0, num_shards=3)

        async def late_has_joined() -> bool:
            return (await state_of(store, "late")).following

        await until(late_has_joined)
        enough.set()
        last = await recording
        await considered(store, last)
    assert await made(store, "late") == list(range(1, last + 1))
    assert (await state_of(store, "late")).matched == last
    assert [cursor.following for cursor in await cursors_of(store, "late")] == [1, 1, 1]
    assert len(await made(store, "r")) == (last if other == "/tape/**" else 0)


async def test_several_late_ones_do_not_hold_the_others_up(store: HookedStore) -> None:
    await register(store)
    await record_some(store, 500)
    async with matching(store):
        await considered(store, 500)
        for k in range(3):
            await register(store, f"late-{k}", from_global_seq=100 * k)
        (fresh,) = await record_some(store, 1)
        await considered(store, fresh)
    assert await made(store, "r") == list(range(1, fresh + 1))
    for k in range(3):
        assert await made(store, f"late-{k}") == list(range(100 * k + 1, fresh + 1))


async def test_one_that_was_late_goes_on_where_the_last_leader_left_it(
    store: HookedStore,
) -> None:
    await register(store)
    await record_some(store, 500)
    async with matching(store):
        await considered(store, 500)
        await register(store, "late", from_global_seq=0)

        async def under_way() -> bool:
            return (await state_of(store, "late")).position >= 40

        await until(under_way)
    assert not (await state_of(store, "late")).following
    async with matching(store):
        await considered(store, 500)
    assert await made(store, "late") == list(range(1, 501))
    assert (await state_of(store, "late")).matched == 500


async def test_a_late_one_counts_its_errors_as_any_other(store: HookedStore) -> None:
    """Though the store sorts out most of what its predicate does not hold for."""
    payloads = ('{"n":1}', '{"n":2}', "{}", '{"n":"x"}')
    events = [NewEvent("a", payloads[k % 4]) for k in range(200)]
    await register(store, predicate_cel="payload.n > 1")
    await record(store, *events)
    async with matching(store):
        await considered(store, 200)
        await register(store, "late", predicate_cel="payload.n > 1", from_global_seq=0)
        await considered(store, 200)
    wanted = [seq for seq in range(1, 201) if (seq - 1) % 4 == 1]
    for name in ("r", "late"):
        assert await made(store, name) == wanted
        state = await state_of(store, name)
        assert (state.matched, state.predicate_errors) == (50, 100)


async def test_a_late_one_whose_start_is_beyond_the_matcher_misses_nothing(
    store: HookedStore,
) -> None:
    await register(store)
    await record_some(store, 60)
    await register(store, "late", from_global_seq=40)
    async with matching(store):
        await record_some(store, 10)
        await considered(store, 70)
    assert await made(store, "late") == list(range(41, 71))


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1)])
async def test_shards_change_under_way(store: HookedStore, before: int, after: int) -> None:
    events = [NewEvent(f"e{k}") for k in range(40)]
    await register(store, num_shards=before)
    await record(store, *events)

    async def somebody_reshards(step: MatchStep) -> None:
        await register(store, num_shards=after)
        await record(store, *events)

    async with matching(store):
        await considered(store, 20)
        store.matching.before_step = somebody_reshards
        await record(store, *events)
        await considered(store, 120)
    assert await made(store, "r") == list(range(1, 121))
    assert len(await cursors_of(store)) == after


async def test_one_for_another_engine_is_none_of_its_business(store: HookedStore) -> None:
    await register(store, "spark", engine="spark")
    await register(store)
    await record_some(store, 5)
    async with matching(store):
        await considered(store, 5)
    assert await made(store, "spark") == []
    (cursor,) = await cursors_of(store, "spark")
    assert (cursor.last_global_seq, cursor.matched) == (0, 0)
    (_, spark) = await store.matching.list_reactions()
    assert (spark.position, spark.following) == (0, False)
    # The matcher's position is not how far it has come: nobody may take over from there.
    with pytest.raises(InvalidArgument, match="deregister the reaction, then register it with"):
        await register(store, "spark", engine="server")


async def test_a_lost_lease_ends_it_and_leaves_no_trace(store: HookedStore) -> None:
    await register(store)
    lease = await store.matching.acquire_matcher("first", 0)
    assert lease is not None
    second = await lead(store, "second")
    await record_some(store, 5)
    async with asyncio.timeout(10):
        with pytest.raises(LeaseLost):
            await Matcher(store, lease, SMALL).run()
    assert await made(store, "r") == []
    assert second.position == 0
    assert (await store.matching.acquire_matcher("second", HOUR_MS)) == second


async def test_it_keeps_the_lease_while_nothing_happens(store: HookedStore) -> None:
    steady = MatcherSettings(ttl_s=2.0)  # busy cores do not hold up a renewal for as long
    async with matching(store, steady) as running:

        async def renewed_often() -> bool:
            return len(store.matching.results) > 5

        await until(renewed_often)
        assert await store.matching.acquire_matcher("another", HOUR_MS) is None
        assert not running.done()


async def test_debounced_bursts_over_many_pages_leave_their_last(store: HookedStore) -> None:
    await register(store, debounce_ms=60_000)
    events = [NewEvent(f"e{k % 3}") for k in range(300)]
    async with matching(store):
        for start in range(0, 300, 30):
            await record(store, *events[start : start + 30])
        await considered(store, 300)
    assert await made(store, "r") == [298, 299, 300]
    state = await state_of(store)
    assert (state.matched, state.coalesced) == (300, 297)
