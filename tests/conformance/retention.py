"""Retention: old entries go in steps, but nothing that a cursor, a run or a task still needs."""

import asyncio
from collections.abc import Sequence

import pytest

from tape.errors import InvalidArgument, Pruned
from tape.model.event import NewEvent
from tape.model.run import RunStatus
from tape.ports.matching import QueueTasks
from tape.ports.retention import PruneStep, StepDone
from tape.ports.store import ReadEntries, Store
from tests.conformance.order import FAR
from tests.conformance.playing import (
    MANY,
    OpenStore,
    a_run,
    record,
    save_run,
)
from tests.conformance.reacting import (
    a_cursor,
    a_task,
    claim,
    deregister,
    fail,
    keys_of,
    queue,
    record_some,
    register,
    step,
)


async def prune_all(store: Store, upto: int = FAR, most: int = 4) -> list[StepDone]:
    """Steps from where the journal is pruned to, until one does not get on."""
    steps, at = [], await store.retention.read_pruned_through()
    while (done := await store.retention.prune(PruneStep(at, upto, most))).through > at:
        steps.append(done)
        at = done.through
    return steps


async def left(store: Store) -> list[int]:
    """What the database has: a page of few entries is not read from memory."""
    found = await store.read_entries(ReadEntries(0, FAR, 100, 1 << 40))
    return [entry.global_seq for entry in found.entries]


async def holds(store: Store) -> dict[str, int]:
    return {hold.name: hold.upto for hold in (await store.retention.read_retention()).holds}


def removed(steps: Sequence[StepDone]) -> int:
    return sum(done.removed for done in steps)


class RetentionContract:
    async def test_a_new_journal_is_whole(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert await store.retention.read_retention() == (0, 0, 0, [])
        assert await store.retention.read_pruned_through() == 0
        assert await prune_all(store) == []

    async def test_it_goes_in_steps_and_keeps_the_newest(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await record_some(store, 10)
        steps = await prune_all(store, most=4)
        assert [(done.through, done.removed) for done in steps] == [(4, 4), (8, 4), (9, 1)]
        assert await left(other) == [10]
        assert (await other.retention.read_retention())[:3] == (9, 10, 10)
        assert await record_some(other, 1) == [11]

    async def test_no_further_than_asked(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 10)
        assert removed(await prune_all(store, upto=7)) == 7
        assert await left(store) == [8, 9, 10]
        assert await store.retention.read_pruned_through() == 7
        assert await store.retention.measure(0, FAR) == (3, 8, 10)
        assert await store.retention.measure(8, 9) == (1, 9, 9)
        assert await store.retention.measure(0, 7) == (0, 0, 0)

    async def test_no_hole_is_left_behind(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 10)
        with pytest.raises(InvalidArgument):
            await store.retention.prune(PruneStep(3, 6, 4))
        assert len(await left(store)) == 10

    async def test_a_forgotten_key_can_be_used_again(self, open_store: OpenStore) -> None:
        store = await open_store()
        (first,) = await record(store, NewEvent("a", idempotency_key="k"))
        await record_some(store, 2)
        await prune_all(store, upto=1)
        (again,) = await record(store, NewEvent("a", idempotency_key="k"))
        assert (first.global_seq, again.global_seq, again.duplicate) == (1, 4, False)

    async def test_a_reaction_that_is_late_holds_it(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 10)
        await register(store, "late", from_global_seq=3)
        await register(store, "spark", engine="spark", from_global_seq=5)
        assert await holds(store) == {"reaction late": 3, "reaction spark": 5}
        assert removed(await prune_all(store)) == 3
        await deregister(store, "late")
        assert removed(await prune_all(store)) == 2
        await deregister(store, "spark")
        assert removed(await prune_all(store)) == 4

    async def test_the_matcher_holds_it_for_those_that_follow(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 4)
        await register(store)  # from the head, 4: the matcher itself is at 0
        await record_some(store, 6)
        assert await holds(store) == {"matcher": 4}
        assert removed(await prune_all(store)) == 4
        assert await step(store, position=7, cursors=[a_cursor(7)]) == "made"
        assert removed(await prune_all(store)) == 3

    async def test_entries_of_tasks_stay_until_they_are_done(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 12)
        await register(store, retry_max=0, dlq_after_n=1)
        await queue(store, [2, 3, 5, 7])
        await claim(store, most=2)
        dead = keys_of(await claim(store, most=1))
        await fail(store, "a", dead)
        (done,) = await prune_all(store, most=100)
        assert done.removed == done.through - 4
        assert done.kept == {"tasks": 3, "dead letters": 1}
        assert (await left(store))[:4] == [2, 3, 5, 7]
        assert [task.entry.event_type for task in await claim(store)] == ["a"]
        await store.tasks.complete_tasks(
            "a", [dead[0]._replace(source_global_seq=n) for n in (2, 7)]
        )
        again = await store.retention.prune(PruneStep(0, done.through, 100))
        assert (again.removed, again.pruned_through) == (2, done.through)
        assert (await left(store))[:2] == [3, 5]

    async def test_entries_of_runs_stay_until_they_end(self, open_store: OpenStore) -> None:
        store = await open_store()
        kept = [status for status in RunStatus if status not in (4, 5, 8)]
        for number, status in enumerate(RunStatus, 1):
            run = a_run(f"r{number}")
            await save_run(store, run)
            await record(store, NewEvent("of run", run_id=run.run_id, fencing_token=1))
            await save_run(store, run._replace(status=status.value, seq_cursor=1))
        await record_some(store, 2)
        (done,) = await prune_all(store, most=100)
        assert done.kept == {"runs": len(kept)}
        assert (await left(store))[: len(kept)] == [status.value for status in kept]

    async def test_a_small_step_gets_past_what_stays(self, open_store: OpenStore) -> None:
        store = await open_store()
        await record_some(store, 12)
        await register(store)
        await queue(store, [1, 2, 3, 4, 5, 6])
        steps = await prune_all(store, most=2)
        assert removed(steps) == 5
        # Once it is pruned, looking again walks over what is left, not over numbers.
        again, at = 0, 0
        while at < 11:
            at = (await store.retention.prune(PruneStep(at, 11, 2))).through
            again += 1
        assert again == 4

    async def test_a_reader_is_told_what_it_would_miss(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await record_some(store, 10)
        await register(store)
        await queue(store, [3])
        await prune_all(store, upto=6)
        query = ReadEntries(0, 10, MANY, 1 << 40, unbroken=True)
        for after in (0, 2, 5):
            with pytest.raises(Pruned, match="up to 6"):
                await other.read_entries(query._replace(after=after))
        with pytest.raises(Pruned, match="up to 6"):  # before the one that stayed there was one
            await other.read_entries(query._replace(after=1, limit=1))
        for after in (6, 8):
            found = await other.read_entries(query._replace(after=after, kind="event"))
            assert (len(found.entries), found.through) == (10 - after, 10)
        assert len((await other.read_entries(query._replace(unbroken=False))).entries) == 5

    async def test_prunes_at_once_remove_each_entry_once(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(3)]
        await record_some(stores[0], 60)
        found = await asyncio.gather(*(prune_all(store, most=7) for store in stores))
        assert sum(removed(steps) for steps in found) == 59
        assert await left(stores[0]) == [60]

    async def test_archived_entries_come_back_for_their_tasks(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await record(
            store, NewEvent("a", '{"n":1}', "b", "c", "key", "cause", "src", 5, 2),
            *(NewEvent("a", entity_id=str(number)) for number in range(9)),
        )  # fmt: skip
        archived = (await store.read_entries(ReadEntries(0, FAR, 100, 1 << 40))).entries
        await prune_all(store)
        await record(store, NewEvent("a", idempotency_key="key"))
        await register(store)
        version = (await store.matching.read_reactions()).version
        tasks = [a_task(source) for source in (1, 3, 10)]
        with pytest.raises(Pruned, match="entry 1 has been pruned"):
            await store.matching.queue_tasks(QueueTasks(version, tasks, entries=archived[2:3]))
        assert await left(other) == [10, 11]
        assert await claim(other, most=10) == []

        wanted = [archived[0], archived[2], archived[9]]
        assert await store.matching.queue_tasks(QueueTasks(version, tasks, entries=wanted)) == (
            "made", {"r": 3},
        )  # fmt: skip
        assert await left(other) == [1, 3, 10, 11]
        held = await claim(other, most=10)
        assert [task.entry for task in held] == [
            archived[0]._replace(idempotency_key=""),
            *wanted[1:],
        ]
        again = await store.matching.queue_tasks(QueueTasks(version, tasks, entries=wanted))
        assert again == ("made", {})

        await store.retention.prune(PruneStep(0, 9, 100))
        assert await left(other) == [1, 3, 10, 11]
        await other.tasks.complete_tasks(held[0].lease_owner, keys_of(held))
        assert (await store.retention.prune(PruneStep(0, 9, 100))).removed == 2
        assert await left(other) == [10, 11]
