"""Tasks that are made beside the matcher: with its key, once, for the book they are decided by."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tape.model.task import TaskKey, TaskStatus
from tape.ports.matching import CursorMove, NewTask, Queued, QueueTasks
from tape.ports.store import Store
from tests.conformance.playing import OpenStore
from tests.conformance.reacting import (
    BOUND_S,
    HOUR_MS,
    Sound,
    a_cursor,
    a_task,
    claim,
    cursors_of,
    deregister,
    fail,
    keys_of,
    queue,
    record_some,
    register,
    sources_with,
    state_of,
    step,
)

PENDING = TaskStatus.PENDING


async def a_queueing(store: Store, *tasks: NewTask, moves: Any = ()) -> QueueTasks:
    return QueueTasks((await store.matching.read_reactions()).version, tasks, moves)


async def backfill(store: Store, *tasks: NewTask | int, moves: Any = ()) -> Queued:
    made = [a_task(one) if isinstance(one, int) else one for one in tasks]
    return await store.matching.queue_tasks(await a_queueing(store, *made, moves=moves))


def a_move(after: int, upto: int, reaction_id: str = "r", **fields: Any) -> CursorMove:
    return CursorMove(reaction_id, 0, after, upto, 0, 0, 0, "", 0)._replace(**fields)


def debounced(source: int, ts_ms: int, **fields: Any) -> NewTask:
    return a_task(source, source_ts_ms=ts_ms, debounce_ms=HOUR_MS, **fields)


class QueuedTasksContract(Sound):
    async def test_history_becomes_tasks(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await record_some(store, 5)
        await register(store)
        await register(store, "s")
        assert await backfill(store, 1, 3, a_task(3, "s")) == ("made", {"r": 2, "s": 1})
        assert await sources_with(other, PENDING) == [1, 3]
        state = await state_of(other)
        assert (state.matched, state.pending) == (2, 2)
        assert keys_of(await claim(other, "s")) == [TaskKey("s", 0, 3)]

    async def test_what_is_there_is_not_made_again(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 9)
        await register(store, retry_max=0)
        await backfill(store, 1, 2, 3, 4)
        (first, second, third) = await claim(store, most=3)
        await store.tasks.complete_tasks("a", [first.key])
        await fail(store, "a", [second.key])
        assert await backfill(store, 1, 2, 3, 4) == ("made", {})
        assert (await backfill(store, 1, 2, 3, 4, 5)).made == {"r": 1}
        assert await sources_with(store, TaskStatus.DONE) == [1]
        assert await sources_with(store, TaskStatus.DLQ) == [2]
        assert await sources_with(store, TaskStatus.CLAIMED) == [third.source_global_seq]
        assert await sources_with(store, PENDING) == [4, 5]
        assert (await state_of(store)).matched == 5

    async def test_one_entry_makes_one_task_though_shards_changed(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await record_some(store, 9)
        await register(store)
        await backfill(store, 1, 2, 3)
        await store.tasks.complete_tasks("a", keys_of(await claim(store, most=1)))
        await register(store, num_shards=4)
        other_shard = [a_task(source, shard=3) for source in (1, 2, 3, 4)]
        assert (await backfill(store, *other_shard)).made == {"r": 1}
        await register(store, num_shards=2)
        assert (await backfill(store, *(one._replace(shard=1) for one in other_shard))).made == {}
        assert await sources_with(store, None) == [1, 2, 3, 4]

    async def test_of_the_same_entry_twice_one_is_made(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 3)
        await register(store, num_shards=2)
        assert (await backfill(store, 1, a_task(1, shard=1), 1)).made == {"r": 1}

    async def test_for_an_outdated_book_nothing_is_written(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await record_some(store, 3)
        await register(store)
        outdated = await a_queueing(store, a_task(1))
        await register(other, "another")
        assert await store.matching.queue_tasks(outdated) == ("outdated", {})
        await deregister(store)
        assert await store.matching.queue_tasks(outdated) == ("outdated", {})
        assert await sources_with(store, None) == []

    async def test_what_the_matcher_has_passed_counts_at_once(self, open_store: OpenStore) -> None:
        """The rest it counts itself when it comes there, and finds the tasks made."""
        store = await open_store()
        await record_some(store, 9)
        await register(store)
        await register(store, "late", from_global_seq=0)
        await step(store, position=4)
        for reaction_id in ("r", "late"):
            await backfill(store, *(a_task(source, reaction_id) for source in (3, 4, 5)))
        # Registered at 9, it is for none of these; the other stands at 0 and will see them all.
        assert (await state_of(store)).matched == 3
        assert (await state_of(store, "late")).matched == 0
        seen = [a_task(source, "late") for source in (3, 4, 5, 6)]
        await step(store, cursors=[a_cursor(9, "late", matched=4)], tasks=seen)
        state = await state_of(store, "late")
        assert (state.matched, state.pending) == (4, 4)

    async def test_of_a_burst_the_last_stays(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 9)
        await register(store)
        await backfill(store, debounced(5, 5_000))
        assert (await backfill(store, debounced(3, 3_000))).made == {}
        assert await sources_with(store, PENDING) == [5]
        assert (await backfill(store, debounced(7, 7_000))).made == {"r": 1}
        assert await sources_with(store, PENDING) == [7]
        state = await state_of(store)
        assert (state.matched, state.coalesced) == (2, 1)
        later = HOUR_MS + 7_000
        await backfill(store, debounced(9, later), debounced(1, 7_000 - HOUR_MS))
        assert await sources_with(store, PENDING) == [1, 7, 9]
        assert (await state_of(store)).coalesced == 1

    async def test_those_who_wait_for_tasks_hear_of_it(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await record_some(store, 1)
        await register(store)
        waiting = [
            asyncio.create_task(each.tasks.await_tasks(each.tasks.task_bell, BOUND_S))
            for each in (store, other)
        ]
        await asyncio.sleep(0)
        await backfill(store, 1)
        assert all(count > 0 for count in await asyncio.gather(*waiting))

    async def test_cursors_move_with_their_tasks(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 9)
        await register(store, engine="spark", num_shards=2, from_global_seq=2)
        moves = [
            a_move(2, 7, matched=2, coalesced=1, predicate_errors=1, last_error="odd",
                   last_error_global_seq=6),
            a_move(2, 7, shard=1),
        ]  # fmt: skip
        assert await backfill(store, a_task(5), moves=moves) == ("made", {"r": 1})
        first, second = await cursors_of(store)
        processed = first.last_processed_at_ms
        assert processed > 1_600_000_000_000
        assert first == ("r", 0, 7, processed, 0, 2, 1, 1, "odd", 6)
        assert second == ("r", 1, 7, processed, 0, 0, 0, 0, "", 0)
        await backfill(store, moves=[a_move(7, 8), a_move(7, 8, shard=1, matched=3)])
        state = await state_of(store)
        assert (state.position, state.matched, state.last_error) == (8, 5, "odd")

    @pytest.mark.parametrize("after", [0, 1, 3])
    async def test_from_another_place_nothing_is_written(
        self, open_store: OpenStore, after: int
    ) -> None:
        store = await open_store()
        await record_some(store, 9)
        await register(store, engine="spark", num_shards=2, from_global_seq=2)
        before = await store.matching.read_reactions()
        moves = [a_move(2, 9, matched=1), a_move(after, 9, shard=1)]
        assert await backfill(store, 3, moves=moves) == ("lost", {})
        unknown = [a_move(2, 9), a_move(2, 9, shard=2)]
        assert await backfill(store, 3, moves=unknown) == ("lost", {})
        assert await store.matching.read_reactions() == before
        assert await sources_with(store, None) == []

    async def test_of_racing_followers_one_moves(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        await record_some(stores[0], 9)
        await register(stores[0], engine="spark", from_global_seq=0)
        once = await a_queueing(stores[0], a_task(5), moves=[a_move(0, 9, matched=1)])
        results = await asyncio.gather(*(store.matching.queue_tasks(once) for store in stores))
        assert Counter(queued.result for queued in results) == {"made": 1, "lost": 3}
        assert (await state_of(stores[0])).matched == 1

    async def test_history_then_a_follower_counts_once(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 9)
        await register(store, engine="spark", from_global_seq=0)
        await backfill(store, 2, 4)
        await backfill(store, 2, 4, 6, moves=[a_move(0, 9, matched=3)])
        await backfill(store, 2, 4, 6, 8)
        state = await state_of(store)
        assert (state.matched, state.pending) == (4, 4)

    async def test_a_follower_leaves_a_burst_to_what_waits(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 9)
        await register(store, engine="spark", from_global_seq=0)
        await backfill(store, debounced(5, 5_000))
        await backfill(store, debounced(3, 3_000), moves=[a_move(0, 4, matched=1)])
        await backfill(store, debounced(5, 5_000), moves=[a_move(4, 9, matched=1)])
        assert await sources_with(store, PENDING) == [5]
        state = await state_of(store)
        assert (state.matched, state.coalesced) == (2, 1)

    async def test_beside_the_matcher_and_dispatchers_nothing_is_made_twice(
        self, open_store: OpenStore
    ) -> None:
        """Tasks of the same entries from both sides, while they are claimed and end."""
        store, *others = [await open_store() for _ in range(4)]
        sources = await record_some(store, 400)
        await register(store, from_global_seq=0)
        done: list[int] = []

        async def dispatch(owner: str, each: Store) -> None:
            while len(done) < len(sources):
                held = await claim(each, most=7, owner=owner)
                settled = await each.tasks.complete_tasks(owner, keys_of(held))
                done.extend(key.source_global_seq for key in settled.done)
                await asyncio.sleep(0)

        async def fill(each: Store) -> None:
            for start in range(0, 400, 20):
                await backfill(each, *sources[start : start + 30])

        async def match(each: Store) -> None:
            for start in range(0, 400, 25):
                await queue(each, sources[start : start + 25])

        async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
            for owner, each in zip("ab", others, strict=False):
                group.create_task(dispatch(owner, each))
            group.create_task(fill(others[2]))
            group.create_task(fill(others[1]))
            group.create_task(match(store))
        assert sorted(done) == sources
        assert await sources_with(store, TaskStatus.DONE) == sources
