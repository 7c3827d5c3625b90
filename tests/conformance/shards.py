"""Another number of shards: an entry still makes one task, and what was queued is given out."""

import asyncio

import pytest

from tape.model.task import ReplayDeadLetters, TaskKey, TaskStatus
from tape.ports.matching import QueueTasks
from tape.ports.store import Store
from tape.reactions.match import Matcher
from tape.settings import MatcherSettings
from tests.conformance.playing import IDS, OpenStore, play
from tests.conformance.reacting import (
    BOUND_S,
    HOUR_MS,
    Sound,
    a_task,
    claim,
    deregister,
    fail,
    keys_of,
    lead,
    queue,
    record_some,
    register,
    sources_of,
    sources_with,
    until,
)

PENDING, DONE = TaskStatus.PENDING, TaskStatus.DONE


async def complete_all(store: Store, shard: int = -1) -> list[int]:
    """Claim what there is of a shard and complete it; the sources."""
    held = await claim(store, shard=shard)
    await store.tasks.complete_tasks("a", keys_of(held))
    return sorted(sources_of(held))


async def register_anew(store: Store, num_shards: int) -> None:
    await deregister(store)
    await register(store, num_shards=num_shards, from_global_seq=0)


class ShardsContract(Sound):
    @pytest.mark.parametrize("shards", [(1, 4), (4, 1), (4, 2), (2, 4)])
    async def test_what_was_done_under_other_shards_is_not_made_again(
        self, open_store: OpenStore, shards: tuple[int, int]
    ) -> None:
        """A reaction that starts anew from the beginning, with another number of shards."""
        store = await open_store()
        before, after = shards
        sources = await record_some(store, 6)
        await register(store, num_shards=before, from_global_seq=0)
        await queue(store, [a_task(source, shard=source % before) for source in sources[:4]])
        done = await one_done(store)
        await register_anew(store, after)
        await queue(store, [a_task(source, shard=source % after) for source in sources])
        assert sorted(await sources_with(store, None)) == sources
        assert await sources_with(store, DONE) == [done]

    async def test_a_burst_under_other_shards_keeps_its_place(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 9)
        await register(store, from_global_seq=0)
        await queue(store, [a_task(3, debounce_ms=HOUR_MS)])
        await register_anew(store, 4)
        await queue(store, [a_task(3, shard=2, debounce_ms=HOUR_MS)])
        assert keys_of(await store.tasks.list_tasks("r", None, None, 9)) == [TaskKey("r", 0, 3)]

    async def test_history_queued_under_other_shards_is_not_made_again(
        self, open_store: OpenStore
    ) -> None:
        """A backfill ahead of a reaction that is still catching up."""
        store = await open_store()
        sources = await record_some(store, 8)
        await register(store, from_global_seq=0)
        version = (await store.matching.read_reactions()).version
        await store.matching.queue_tasks(
            QueueTasks(version, [a_task(source) for source in sources[:5]])
        )
        await register(store, num_shards=4)
        await queue(store, [a_task(source, shard=source % 4) for source in sources])
        assert sorted(await sources_with(store, None)) == sources

    async def test_pending_tasks_of_old_shards_go_to_those_who_ask_for_a_shard(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await register(store, num_shards=8)
        await queue(store, [a_task(source, shard=source % 8) for source in range(1, 17)])
        await queue(store, [a_task(20 + s, shard=s, debounce_ms=1) for s in range(6, 8)])
        await until(lambda: due(store))
        await register(store, num_shards=3)
        given = {shard: set(await complete_all(store, shard)) for shard in (0, 1, 2)}
        assert given == {
            0: {8, 16, 3, 11, 6, 14, 26},
            1: {1, 9, 4, 12, 7, 15, 27},
            2: {2, 10, 5, 13},
        }
        assert await sources_with(store, PENDING) == []

    async def test_one_who_asks_for_a_shard_gets_no_more_than_asked(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await register(store, num_shards=8)
        await queue(store, [a_task(source, shard=source % 8) for source in range(1, 33)])
        await register(store, num_shards=2)
        assert len(await claim(store, shard=0, most=5)) == 5

    async def test_an_old_shard_can_still_be_asked_for(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store, num_shards=4)
        await queue(store, [a_task(source, shard=source % 4) for source in range(1, 5)])
        await register(store, num_shards=2)
        assert await complete_all(store, shard=3) == [3]

    async def test_dead_letters_of_old_shards_are_replayed(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store, num_shards=4, retry_max=0)
        await queue(store, [a_task(3, shard=3)])
        held = keys_of(await claim(store))
        await fail(store, "a", held)
        await register(store, num_shards=1)
        await play(store, ReplayDeadLetters(held, list(IDS.take(1))))
        assert await complete_all(store, shard=0) == [3]

    async def test_one_task_per_entry_while_shards_change(self, open_store: OpenStore) -> None:
        """A matcher at work, entries racing with changes, dispatchers that ask for shards."""
        store, other, third = [await open_store() for _ in range(3)]
        await register(store, from_global_seq=0)
        recorded = await record_some(other, 50)
        await queue(store, recorded)
        done = await complete_all(store)
        changed = asyncio.Event()

        async def record_all(each: Store) -> None:
            for _ in range(20):
                recorded.extend(await record_some(each, 10))
                await asyncio.sleep(0)

        async def change(each: Store) -> None:
            for number in (4, 2, 8, 3, 1, 5):
                await register(each, num_shards=number)
                await register_anew(each, number + 1)
                await asyncio.sleep(0.01)
            changed.set()

        async def dispatch(each: Store) -> None:
            while not (changed.is_set() and len(done) >= 250):
                for shard in (*range(6), -1):
                    held = await claim(each, shard=shard, most=20)
                    settled = await each.tasks.complete_tasks("a", keys_of(held))
                    done.extend(key.source_global_seq for key in settled.done)
                await asyncio.sleep(0)

        matcher = Matcher(store, await lead(store), MatcherSettings(page_entries=7))
        matching = asyncio.create_task(matcher.run())
        async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
            group.create_task(record_all(other))
            group.create_task(change(third))
            group.create_task(dispatch(other))
        await until(lambda: caught_up(store, recorded[-1]))
        matching.cancel()
        await asyncio.gather(matching, return_exceptions=True)
        assert sorted(done) == sorted(recorded)
        assert sorted(await sources_with(store, None)) == sorted(recorded)


async def one_done(store: Store) -> int:
    held = await claim(store, most=1)
    await store.tasks.complete_tasks("a", keys_of(held))
    return held[0].source_global_seq


async def due(store: Store) -> bool:
    return await store.tasks.read_next_due_ms(["r"]) is None


async def caught_up(store: Store, upto: int) -> bool:
    (state,) = await store.matching.list_reactions()
    return state.position >= upto
