"""The matcher: one at a time, each step whole, once, and only for what it was made for."""

import asyncio

import pytest

from tape.model.task import TaskKey, TaskStatus
from tape.ports.matching import MatchStep
from tape.ports.store import Store
from tests.conformance.playing import OpenStore
from tests.conformance.reacting import (
    BOUND_S,
    HOUR_MS,
    Sound,
    a_cursor,
    a_step,
    a_task,
    claim,
    cursors_of,
    fail,
    keys_of,
    lead,
    queue,
    record_some,
    register,
    sources_with,
    state_of,
    step,
    until,
)

PENDING = TaskStatus.PENDING


async def expect_nothing_done(store: Store) -> None:
    assert {state.position for state in await store.matching.list_reactions()} == {0}
    assert await sources_with(store, None) == []
    (cursor,) = await cursors_of(store)
    assert (cursor.last_global_seq, cursor.matched, cursor.last_processed_at_ms) == (0, 0, 0)


def full_step(step: MatchStep) -> MatchStep:
    return step._replace(position=7, cursors=[a_cursor(7, matched=2)], tasks=[a_task(3), a_task(5)])


class MatchingContract(Sound):
    async def test_one_holds_the_lease(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        lease = await store.matching.acquire_matcher("a", HOUR_MS)
        assert lease == ("a", 1, 0)
        assert await other.matching.acquire_matcher("b", HOUR_MS) is None
        assert await store.matching.acquire_matcher("b", HOUR_MS) is None

    async def test_renewing_keeps_the_token(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await lead(store, "a")
        assert await lead(store, "a") == first
        assert await lead(store, "a", ttl_ms=0) == first

    async def test_one_that_ran_out_is_taken_over_with_a_new_token(
        self, open_store: OpenStore
    ) -> None:
        store, other = await open_store(), await open_store()
        first = await lead(store, "a", ttl_ms=0)
        second = await lead(other, "b")
        assert second.fencing_token == first.fencing_token + 1
        assert await store.matching.acquire_matcher("a", HOUR_MS) is None

    async def test_it_is_free_only_when_its_time_is_up(self, open_store: OpenStore) -> None:
        store = await open_store()
        await lead(store, "a", ttl_ms=80)
        taken = await until(lambda: store.matching.acquire_matcher("b", HOUR_MS))
        assert taken.fencing_token == 2

    async def test_a_step_renews_the_lease(self, open_store: OpenStore) -> None:
        store = await open_store()
        lease = await lead(store, "a", ttl_ms=0)
        assert await store.matching.make_step(await a_step(store, lease)) == "made"
        assert await store.matching.acquire_matcher("b", HOUR_MS) is None

    async def test_released_it_is_free_at_once(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await lead(store, "a")
        await store.matching.release_matcher(first)
        second = await lead(store, "b")
        assert second.fencing_token == 2
        await store.matching.release_matcher(first)
        assert await store.matching.acquire_matcher("c", HOUR_MS) is None
        await store.matching.release_matcher(second)
        assert (await lead(store, "b")).fencing_token == 3

    async def test_a_step_is_made_whole(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await register(store)
        lease = await lead(store)
        assert await store.matching.make_step(full_step(await a_step(store, lease))) == "made"
        (state,) = await other.matching.list_reactions()
        assert state.position == 7
        assert await sources_with(other, PENDING) == [3, 5]
        (cursor,) = await cursors_of(other)
        assert (cursor.last_global_seq, cursor.matched) == (7, 2)
        assert cursor.last_processed_at_ms > 1_600_000_000_000
        assert (await lead(store)).position == 7

    async def test_with_a_stale_token_nothing_is_written(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await register(store)
        stale = full_step(await a_step(store, await lead(store, "a", ttl_ms=0)))
        await lead(other, "b")
        assert await store.matching.make_step(stale) == "lost"
        await expect_nothing_done(store)

    async def test_after_a_release_nothing_is_written(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await register(store)
        stale = full_step(await a_step(store, await lead(store, "a")))
        await store.matching.release_matcher(stale.lease)
        await lead(other, "b")
        assert await store.matching.make_step(stale) == "lost"
        await expect_nothing_done(store)

    async def test_from_another_position_nothing_is_written(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store)
        lease = await lead(store)
        ahead = full_step(await a_step(store, lease._replace(position=4)))
        assert await store.matching.make_step(ahead) == "lost"
        await expect_nothing_done(store)

    async def test_with_an_outdated_book_nothing_is_written(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await register(store)
        outdated = full_step(await a_step(store, await lead(store)))
        await register(other, "another")
        assert await store.matching.make_step(outdated) == "outdated"
        await expect_nothing_done(store)

    async def test_a_step_is_made_once(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store)
        once = full_step(await a_step(store, await lead(store)))
        assert await store.matching.make_step(once) == "made"
        assert await store.matching.make_step(once) == "lost"
        assert (await cursors_of(store))[0].matched == 2

    async def test_of_racing_steps_one_is_made(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        await register(stores[0])
        once = full_step(await a_step(stores[0], await lead(stores[0])))
        results = await asyncio.gather(*(store.matching.make_step(once) for store in stores))
        assert sorted(results) == ["lost", "lost", "lost", "made"]
        assert (await cursors_of(stores[0]))[0].matched == 2

    async def test_counts_add_up_and_cursors_never_go_back(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store, num_shards=2, from_global_seq=0)
        odd = a_cursor(5, following=0, matched=2, coalesced=1, predicate_errors=1)
        await step(store, cursors=[odd._replace(last_error="odd", last_error_global_seq=4)])
        await step(store, cursors=[a_cursor(3, matched=1, coalesced=2)])
        await step(store, cursors=[a_cursor(4, following=0), a_cursor(1, shard=1, following=0)])
        first, second = await cursors_of(store)
        processed = first.last_processed_at_ms
        assert first == ("r", 0, 5, processed, 1, 3, 3, 1, "odd", 4)
        assert second[:3] == ("r", 1, 1)
        assert second.following == 0

    async def test_one_that_is_put_off_catches_up_from_its_cursors(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        for name in ("r", "slow"):
            await register(store, name, num_shards=2)
        await record_some(store, 9)
        await step(store, position=5)
        behind = [a_cursor(6, "slow", shard=n, following=0, matched=1 - n) for n in (0, 1)]
        assert await step(store, position=9, cursors=behind, put_off=["slow"]) == "made"
        states = {name: await state_of(store, name) for name in ("r", "slow")}
        assert [(s.position, s.following) for s in states.values()] == [(9, True), (6, False)]
        assert states["slow"].matched == 1
        joined = [a_cursor(9, "slow", shard=n, following=1) for n in (0, 1)]
        await step(store, cursors=joined)
        state = await state_of(store, "slow")
        assert (state.position, state.following) == (9, True)

    async def test_a_step_that_is_lost_puts_nothing_off(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store)
        late = (await a_step(store, await lead(store)))._replace(put_off=["r"])
        assert await store.matching.make_step(late._replace(version=late.version - 1)) == "outdated"
        assert (await state_of(store)).following

    async def test_many_tasks_of_many_reactions_in_one_step(self, open_store: OpenStore) -> None:
        store = await open_store()
        names = [f"r{number}" for number in range(5)]
        for name in names:
            await register(store, name, num_shards=2)
        tasks = [
            a_task(source, name, shard=source % 2) for name in names for source in range(1, 501)
        ]
        cursors = [
            a_cursor(500, name, shard=shard, matched=250) for name in names for shard in (0, 1)
        ]
        assert await step(store, position=500, cursors=cursors, tasks=tasks) == "made"
        for state in await store.matching.list_reactions():
            assert (state.matched, state.pending, state.position) == (500, 500, 500)

    async def test_a_task_that_exists_is_not_made_again(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store, retry_max=0)
        await queue(store, [1, 2, 3, 4])
        (first,) = await claim(store, most=1)
        await store.tasks.complete_tasks("a", [first.key])
        (second,) = await claim(store, most=1)
        await fail(store, "a", [second.key])
        (third,) = await claim(store, most=1)
        await queue(store, [1, 2, 3, 4, 5])
        assert await sources_with(store, TaskStatus.DONE) == [1]
        assert await sources_with(store, TaskStatus.DLQ) == [2]
        assert await store.tasks.list_tasks("r", TaskStatus.CLAIMED, None, 9) == [third]
        assert await sources_with(store, PENDING) == [4, 5]

    async def test_the_same_entry_makes_one_task_for_each_reaction(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await register(store, "a")
        await register(store, "b")
        await queue(store, [a_task(1, "a"), a_task(1, "b")])
        assert await sources_with(store, PENDING, "") == [1, 1]

    async def test_a_debounced_task_waits(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store)
        await queue(store, [a_task(1, debounce_ms=HOUR_MS)])
        (task,) = await store.tasks.list_tasks("r", PENDING, None, 9)
        assert task.next_attempt_at_ms == task.created_at_ms + HOUR_MS
        assert await claim(store) == []

    async def test_a_debounced_task_is_due_in_the_end(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store)
        await queue(store, [a_task(1, debounce_ms=30)])
        (task,) = await until(lambda: claim(store))
        assert task.claimed_at_ms >= task.created_at_ms + 30

    @pytest.mark.parametrize(("ts_ms", "left"), [(1_099, [2]), (1_100, [1, 2])])
    async def test_within_its_window_a_later_one_takes_its_place(
        self, open_store: OpenStore, ts_ms: int, left: list[int]
    ) -> None:
        store = await open_store()
        await register(store)
        await queue(store, [a_task(1, source_ts_ms=1_000, debounce_ms=HOUR_MS)])
        window = a_task(1, source_ts_ms=1_000, debounce_ms=100)
        await queue(store, [window._replace(source_global_seq=9, subject="/tape/other")])
        await register(store, "s")
        await queue(store, [window._replace(reaction_id="s")])
        later = window._replace(reaction_id="s", source_global_seq=2, source_ts_ms=ts_ms)
        await queue(store, [later])
        assert await sources_with(store, PENDING, "s") == left
        assert (await state_of(store, "s")).coalesced == 2 - len(left)
        assert await sources_with(store, PENDING) == [1, 9]

    async def test_a_burst_over_many_steps_leaves_its_last(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store, num_shards=2)
        for source in range(1, 6):
            await queue(
                store,
                [a_task(source, shard=source % 2, source_ts_ms=source, debounce_ms=HOUR_MS)],
            )
        assert await sources_with(store, PENDING) == [5]
        assert (await state_of(store)).coalesced == 4
        assert [cursor.coalesced for cursor in await cursors_of(store)] == [2, 2]

    async def test_one_in_hand_keeps_its_place(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store)
        await queue(store, [a_task(1, debounce_ms=1)])
        held = await until(lambda: claim(store))
        await queue(store, [a_task(2, debounce_ms=HOUR_MS)])
        assert keys_of(held) == [TaskKey("r", 0, 1)]
        assert await sources_with(store, TaskStatus.CLAIMED) == [1]
        assert await sources_with(store, PENDING) == [2]
        assert (await state_of(store)).coalesced == 0

    async def test_a_task_does_not_take_its_own_place(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store)
        await queue(store, [a_task(1, debounce_ms=HOUR_MS)])
        before = await store.tasks.list_tasks("r", PENDING, None, 9)
        await queue(store, [a_task(1, debounce_ms=HOUR_MS)])
        assert await store.tasks.list_tasks("r", PENDING, None, 9) == before
        assert (await state_of(store)).coalesced == 0

    async def test_one_that_has_ended_takes_no_place(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store)
        await queue(store, [1])
        await store.tasks.complete_tasks("a", keys_of(await claim(store)))
        await queue(store, [a_task(2, debounce_ms=HOUR_MS)])
        await queue(store, [a_task(1, debounce_ms=HOUR_MS)])
        assert await sources_with(store, PENDING) == [2]
        assert (await state_of(store)).coalesced == 0

    async def test_those_who_wait_for_tasks_hear_of_a_step(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await register(store)
        waiting = [
            asyncio.create_task(each.tasks.await_tasks(each.tasks.task_bell, BOUND_S))
            for each in (store, other)
        ]
        await asyncio.sleep(0)
        await queue(store, [1])
        counts = await asyncio.gather(*waiting)
        assert counts[0] > 0
        assert counts[1] > 0

    async def test_the_matcher_begins_at_the_start_of_a_new_journal(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await record_some(store, 3)
        assert (await lead(store)).position == 0
