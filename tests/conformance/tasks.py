"""The queue of tasks: who gets what, in which order, how much at once, and how it is done."""

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest

from tape.errors import Closed
from tape.model.task import Task, TaskKey, TaskStatus
from tape.ports.store import Store
from tape.ports.tasks import Claim, Want
from tests.conformance.playing import MANY, OpenStore, read_all
from tests.conformance.reacting import (
    HOUR_MS,
    Sound,
    a_task,
    claim,
    deregister,
    expect_sound,
    fail,
    keys_of,
    queue,
    record_some,
    register,
    sources_of,
    sources_with,
    tally_of,
    until,
)

PENDING, CLAIMED, DONE, FAILED, DLQ = TaskStatus
CATCH_UP_S = 0.1
CLOCK_S = 0.002
"""The store's clock tells whole milliseconds, and is not the loop's."""
R = [TaskKey("r", 0, source) for source in range(10)]


async def ready(store: Store, count: int, **settings: Any) -> None:
    """The reaction `r` with so many tasks."""
    await register(store, **settings)
    await queue(store, range(1, count + 1))


class TasksContract(Sound):
    async def test_a_claimed_task_says_all_there_is_to_know(self, open_store: OpenStore) -> None:
        store = await open_store()
        (source,) = await record_some(store, 1)
        await register(store)
        await queue(store, [source])
        (task,) = await claim(store, owner="me", lease_ms=5_000)
        (entry,) = await read_all(store)
        now = task.claimed_at_ms
        assert now >= task.created_at_ms > 1_600_000_000_000
        assert task == Task(
            f"r/0/{source}",
            "r",
            0,
            source,
            CLAIMED,
            1,
            0,
            "me",
            now + 5_000,
            now,
            "",
            task.created_at_ms,
            0,
            entry,
        )
        assert await store.tasks.get_task(task.key) == task
        assert await (await open_store()).tasks.list_tasks("r", None, None, 9) == [task]

    async def test_a_task_whose_entry_is_gone_is_still_a_task(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 1)
        (task,) = await claim(store)
        assert task.entry.global_seq == 1
        assert (task.entry.subject, task.entry.payload_json, task.entry.ts_ms) == ("", "", 0)
        assert await store.tasks.get_task(task.key) == task

    async def test_tasks_come_in_the_order_of_their_sources(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store)
        await queue(store, [3, 1, 2])
        await queue(store, [5, 4])
        assert sources_of(await claim(store, most=2)) == [1, 2]
        assert sources_of(await claim(store)) == [3, 4, 5]

    async def test_those_that_waited_come_first_in_the_order_of_their_time(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await ready(store, 5, retry_backoff_ms=0)
        await claim(store, most=3)
        for source in (3, 1, 2):
            await fail(store, "a", [R[source]])
            await asyncio.sleep(0.002)  # the store's clock counts milliseconds
        assert sources_of(await claim(store, most=2)) == [3, 1]
        assert sources_of(await claim(store)) == [2, 4, 5]

    async def test_the_order_of_time_outlives_many_retries(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 30, retry_backoff_ms=0, retry_max=9, dlq_after_n=9)
        tasks = await claim(store)
        for turn in range(6):  # each writes every row anew, wherever the store finds room
            random.Random(turn).shuffle(tasks)
            for task in tasks:
                await fail(store, "a", [task.key])
                await asyncio.sleep(0.002)
            again = await claim(store)
            assert sources_of(again) == sources_of(tasks)
            tasks = again

    async def test_one_that_waits_is_not_due_before_its_time(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 2, retry_backoff_ms=60_000)
        (first,) = await claim(store, most=1)
        await fail(store, "a", [first.key])
        assert sources_of(await claim(store)) == [2]

    async def test_one_that_has_waited_is_due(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 1, retry_backoff_ms=60)
        (first,) = await claim(store)
        await fail(store, "a", [first.key])
        (again,) = await until(lambda: claim(store))
        assert again.attempts == 2
        assert again.claimed_at_ms >= first.claimed_at_ms + 60

    async def test_a_task_in_hand_is_not_given_again(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await ready(store, 3)
        assert sources_of(await claim(store, most=2)) == [1, 2]
        assert sources_of(await claim(other, owner="b")) == [3]
        assert await claim(store) == []

    async def test_a_lease_that_ran_out_is_not_given_before_it_is_expired(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await ready(store, 1)
        await claim(store, lease_ms=0)
        assert await claim(store, owner="b") == []

    async def test_no_more_are_in_hand_than_a_reaction_allows(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await ready(store, 9, max_concurrency=3)
        assert sources_of(await claim(store, most=2)) == [1, 2]
        assert sources_of(await claim(other, owner="b")) == [3]
        assert await claim(store) == []
        await store.tasks.complete_tasks("a", [R[1]])
        await fail(store, "b", [R[3]])
        assert sources_of(await claim(other, owner="b")) == [4, 5]
        assert (await tally_of(store)).in_flight == 3

    async def test_a_limit_that_was_lowered_holds_from_then_on(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 5, max_concurrency=3)
        await claim(store)
        await register(store, max_concurrency=1)
        await store.tasks.complete_tasks("a", R[1:3])
        assert await claim(store) == []
        await store.tasks.complete_tasks("a", R[3:4])
        assert sources_of(await claim(store)) == [4]

    async def test_one_shard_or_any(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store, num_shards=3)
        await queue(store, [a_task(source, shard=source % 3) for source in range(1, 10)])
        assert sources_of(await claim(store, shard=1)) == [1, 4, 7]
        assert await claim(store, shard=1) == []
        assert await claim(store, shard=7) == []
        rest = await claim(store)
        assert sorted(sources_of(rest)) == [2, 3, 5, 6, 8, 9]

    async def test_a_shard_that_waited_is_found_by_its_shard(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store, num_shards=2, retry_backoff_ms=0)
        await queue(store, [a_task(1, shard=0), a_task(2, shard=1)])
        await fail(store, "a", keys_of(await claim(store)))
        assert sources_of(await claim(store, shard=1)) == [2]
        assert sources_of(await claim(store, shard=0)) == [1]

    async def test_shards_a_reaction_no_longer_has_are_still_emptied(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await register(store, num_shards=3)
        await queue(store, [a_task(1, shard=2)])
        await register(store, num_shards=1)
        assert sources_of(await claim(store)) == [1]

    async def test_several_reactions_at_once(self, open_store: OpenStore) -> None:
        store = await open_store()
        for name in ("a", "b"):
            await register(store, name)
            await queue(store, [a_task(source, name) for source in range(1, 4)])
        wants = [Want("b", 0, 2), Want("nobody", -1, 5), Want("a", -1, 1)]
        found = await store.tasks.claim_tasks(Claim("me", HOUR_MS, wants))
        assert sorted(keys_of(found)) == [("a", 0, 1), ("b", 0, 1), ("b", 0, 2)]

    async def test_a_claim_has_a_bound_over_all_it_wants(self, open_store: OpenStore) -> None:
        store = await open_store()
        for name in ("a", "b", "c"):
            await register(store, name, num_shards=2, retry_backoff_ms=0)
            await queue(store, [a_task(n, name, shard=n % 2) for n in range(1, 5)])
        wants = [Want(name, -1, 4) for name in ("a", "b", "c")]
        found = await store.tasks.claim_tasks(Claim("me", HOUR_MS, wants, 5))
        assert len(found) == 5
        await fail(store, "me", keys_of(found))
        again = await store.tasks.claim_tasks(Claim("me", HOUR_MS, wants, 7))
        assert len(again) == 7
        waited = [task.attempts > 1 for task in again]
        assert waited == sorted(waited, reverse=True)
        fresh = [task.source_global_seq for task in again if task.attempts == 1]
        assert fresh == sorted(fresh)
        assert await store.tasks.claim_tasks(Claim("me", HOUR_MS, wants, 0)) == []

    async def test_none_of_several_reactions_and_shards_starves(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        for name in ("a", "b"):
            await register(store, name, num_shards=2)
            await queue(store, [a_task(n, name, shard=n % 2) for n in range(1, 101)])
        wants = [Want("a", -1, 1), Want("b", -1, 1)]
        found = [
            task
            for _ in range(60)
            for task in await store.tasks.claim_tasks(Claim("me", HOUR_MS, wants, 1))
        ]
        assert {(task.reaction_id, task.shard) for task in found} == {
            ("a", 0), ("a", 1), ("b", 0), ("b", 1),
        }  # fmt: skip

    async def test_unknown_and_stopped_reactions_have_none(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 2)
        await deregister(store)
        assert await claim(store) == []
        assert await claim(store, "nobody") == []

    async def test_starts_keep_to_the_rate(self, open_store: OpenStore) -> None:
        """Not faster than it, with a tenth of a second to catch up; and not slower either."""
        store = await open_store()
        rate = 200
        await ready(store, 300, rate_limit_per_s=rate)
        loop = asyncio.get_running_loop()
        began = loop.time()
        claims: list[tuple[float, float]] = []
        started = 0
        while loop.time() < began + 0.4:
            asked = loop.time()
            started += len(await claim(store))
            claims.append((asked, loop.time()))
            await asyncio.sleep(0.005)
        elapsed = claims[-1][1] - began + CLOCK_S
        assert started <= rate * (elapsed + CATCH_UP_S) + 1
        # The store decides at some moment between question and answer. What busy cores hold up for
        # longer than may be caught up is lost.
        lost = sum(
            max(0.0, answered - asked - CATCH_UP_S)
            for (asked, _), (_, answered) in pairwise(claims)
        )
        kept_up = claims[-1][0] - claims[0][1] - lost
        assert started >= rate * (kept_up - 0.02) - 2

    async def test_the_rate_holds_over_all_who_claim(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(2)]
        rate = 100
        await ready(stores[0], 200, rate_limit_per_s=rate)
        loop = asyncio.get_running_loop()
        began = loop.time()
        found: list[Task] = []
        while loop.time() < began + 0.2:
            for batch in await asyncio.gather(*(claim(store) for store in stores * 2)):
                found += batch
        assert len(found) <= rate * (loop.time() - began + CLOCK_S + CATCH_UP_S) + 1
        assert len(set(sources_of(found))) == len(found)

    async def test_how_long_until_there_is_something_to_claim(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 1, retry_backoff_ms=HOUR_MS)
        await register(store, "other")
        assert await store.tasks.read_next_due_ms([]) is None
        assert await store.tasks.read_next_due_ms(["r", "other", "nobody"]) is None
        await fail(store, "a", keys_of(await claim(store)))
        due_ms = await store.tasks.read_next_due_ms(["other", "r"])
        assert due_ms is not None
        assert HOUR_MS - 60_000 < due_ms <= HOUR_MS
        assert await store.tasks.read_next_due_ms(["other"]) is None

    async def test_how_long_until_the_rate_allows_one(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 9, rate_limit_per_s=1)
        assert len(await claim(store)) == 1
        due_ms = await store.tasks.read_next_due_ms(["r"])
        assert due_ms is not None
        assert 0 < due_ms <= 1_001

    async def test_only_leases_that_are_held_are_prolonged(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 5)
        await claim(store, most=2, lease_ms=0)
        await claim(store, most=1, owner="b", lease_ms=0)
        await store.tasks.complete_tasks("a", [R[1]])
        held = await store.tasks.extend_tasks("a", HOUR_MS, [*R[1:6], TaskKey("nobody", 0, 1)])
        assert held == [R[2]]
        assert await store.tasks.read_expired(9) == [R[3]]
        task = await store.tasks.get_task(R[2])
        assert task is not None
        assert task.lease_expires_at_ms >= task.claimed_at_ms + HOUR_MS
        assert task.attempts == 1

    async def test_leases_that_ran_out_are_found_longest_first(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 4)
        await claim(store, most=1)
        for _ in range(3):
            await claim(store, most=1, lease_ms=0)
            await asyncio.sleep(0.002)  # the store's clock counts milliseconds
        assert await store.tasks.read_expired(2) == R[2:4]
        assert await store.tasks.read_expired(9) == R[2:5]

    async def test_done_by_its_holder(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 2)
        first, second = await claim(store)
        settlement = await store.tasks.complete_tasks("a", [first.key])
        assert settlement == ([first.key], [])
        done = await store.tasks.get_task(first.key)
        assert done is not None
        assert done[:6] == ("r/0/1", "r", 0, 1, DONE, 1)
        assert (done.lease_owner, done.lease_expires_at_ms) == ("a", 0)
        assert done.created_at_ms == first.created_at_ms
        assert done.completed_at_ms >= first.claimed_at_ms
        assert await store.tasks.list_tasks("r", CLAIMED, None, 9) == [second]

    async def test_done_by_a_holder_whose_lease_ran_out(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 1)
        await claim(store, lease_ms=0)
        assert await store.tasks.read_expired(9) == [R[1]]
        assert await store.tasks.complete_tasks("a", [R[1]]) == ([R[1]], [])
        assert await store.tasks.read_expired(9) == []

    async def test_done_by_a_stranger_is_refused(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 2)
        held = await claim(store, most=1)
        settlement = await store.tasks.complete_tasks("b", R[1:4])
        assert settlement.done == []
        assert sorted(settlement.others) == R[1:4]
        assert await store.tasks.list_tasks("r", CLAIMED, None, 9) == held
        assert await sources_with(store, PENDING) == [2]

    async def test_done_twice_is_done_once(self, open_store: OpenStore) -> None:
        store = await open_store()
        await ready(store, 3)
        await claim(store, most=2)
        assert await store.tasks.complete_tasks("a", [R[1], R[1]]) == ([R[1]], [])
        before = await store.tasks.get_task(R[1])
        settlement = await store.tasks.complete_tasks("a", [R[1], R[2]])
        assert settlement == ([R[2]], [R[1]])
        assert await store.tasks.get_task(R[1]) == before

    async def test_many_are_done_at_once(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store, "a", num_shards=2)
        await register(store, "b")
        tasks = [a_task(n, "a", shard=n % 2) for n in range(1, 1_201)]
        await queue(store, tasks + [a_task(n, "b") for n in range(1, 301)])
        wants = [Want("a", -1, 2_000), Want("b", -1, 200)]
        keys = keys_of(await store.tasks.claim_tasks(Claim("me", HOUR_MS, wants, MANY)))
        assert len(keys) == 1_400
        settlement = await store.tasks.complete_tasks("me", keys)
        assert set(settlement.done) == set(keys)
        assert len(await sources_with(store, DONE, "a")) == 1_200
        assert len(await sources_with(store, PENDING, "b")) == 100

    async def test_nothing_is_asked_and_nothing_answered(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert await store.tasks.extend_tasks("a", HOUR_MS, []) == []
        assert await store.tasks.complete_tasks("a", []) == ([], [])
        assert await store.tasks.read_expired(9) == []
        assert await store.tasks.get_task(R[1]) is None
        assert await store.tasks.list_tasks("", None, None, 9) == []

    async def test_tasks_are_listed_page_by_page(self, open_store: OpenStore) -> None:
        store = await open_store()
        names = ["q", "r", "r/0", "s"]
        for name in names:
            await register(store, name, num_shards=2, retry_max=0)
            await queue(store, [a_task(n, name, shard=n % 2) for n in range(1, 25)])
            for owner, most in (("a", 4), ("b", 4), ("c", 2)):
                await claim(store, name, most, owner=owner, shard=0)
                await claim(store, name, most, owner=owner, shard=1)
            held = await store.tasks.list_tasks(name, CLAIMED, None, MANY)
            await store.tasks.complete_tasks("a", [t.key for t in held if t.lease_owner == "a"])
            await fail(store, "b", [t.key for t in held if t.lease_owner == "b"])
        counts = {None: 96, PENDING: 16, CLAIMED: 16, DONE: 32, FAILED: 0, DLQ: 32}
        for status, count in counts.items():
            everything = await store.tasks.list_tasks("", status, None, MANY)
            assert len(everything) == count
            for name in ("", *names):
                expected = [t for t in everything if name in ("", t.reaction_id)]
                found: list[Task] = []
                after = None
                while page := await store.tasks.list_tasks(name, status, after, 5):
                    found += page
                    after = page[-1].key
                assert found == expected
                assert keys_of(found) == sorted(keys_of(found))

    async def test_one_that_ends_between_two_pages_hides_no_other(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await ready(store, 6)
        await claim(store, most=4)
        await store.tasks.complete_tasks("a", [R[2]])
        first = await store.tasks.list_tasks("r", None, None, 3)
        await store.tasks.complete_tasks("a", [R[1], R[3]])
        second = await store.tasks.list_tasks("r", None, first[-1].key, 9)
        assert keys_of([*first, *second]) == R[1:7]

    async def test_a_closed_store_says_so(self, open_store: OpenStore) -> None:
        store = await open_store()
        waiting = asyncio.create_task(store.tasks.await_tasks(MANY, 60))
        await asyncio.sleep(0)
        await store.close()
        for use in (
            waiting,
            claim(store),
            store.tasks.complete_tasks("a", R),
            store.tasks.extend_tasks("a", 1, R),
            store.matching.acquire_matcher("m", 1),
            store.matching.list_reactions(),
            store.tasks.await_tasks(MANY, 60),
        ):
            with pytest.raises(Closed):
                await use

    @pytest.mark.parametrize("count", [1, 2], ids=["one store", "two stores"])
    async def test_racing_claimers_share_without_sharing_a_task(
        self, open_store: OpenStore, count: int
    ) -> None:
        stores = [await open_store() for _ in range(count)]
        room, total = 7, 160
        await register(stores[0], num_shards=2, max_concurrency=room, retry_backoff_ms=0)
        await queue(stores[0], [a_task(n, shard=n % 2) for n in range(1, total + 1)])
        held: set[TaskKey] = set()
        done: list[TaskKey] = []
        failed: set[TaskKey] = set()

        async def work(number: int) -> None:
            store, owner = stores[number % count], f"w{number}"
            shard = (-1, 0, 1)[number % 3]
            while len(done) < total:
                keys = keys_of(await claim(store, most=3, owner=owner, shard=shard))
                assert not held.intersection(keys)
                held.update(keys)
                assert len(held) <= room
                await asyncio.sleep(0)
                held.difference_update(keys)
                broken = [key for key in keys if key.source_global_seq % 5 == 0]
                broken = [key for key in broken if key not in failed]
                failed.update(broken)
                if broken:
                    await fail(store, owner, broken)
                if good := [key for key in keys if key not in broken]:
                    settlement = await store.tasks.complete_tasks(owner, good)
                    assert settlement.others == []
                    done.extend(settlement.done)

        await asyncio.gather(*(work(number) for number in range(8)))
        assert sorted(done) == sorted({TaskKey("r", n % 2, n) for n in range(1, total + 1)})
        await expect_sound(stores[0])
