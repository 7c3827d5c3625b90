"""Tasks that fail: retried, given back, expired, dead-lettered, replayed, dropped, on record."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from tape.errors import NotFound, NotHeld
from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.model.task import (
    DropDeadLetters,
    ExpireTasks,
    ReplayDeadLetters,
    Task,
    TaskKey,
    TaskStatus,
)
from tape.ports.store import Store
from tests.conformance.playing import (
    IDS,
    MANY,
    OpenStore,
    attempt,
    play,
    read_all,
    recording,
)
from tests.conformance.reacting import (
    BOUND_S,
    HOUR_MS,
    Sound,
    a_task,
    claim,
    deregister,
    fail,
    failing,
    keys_of,
    queue,
    record_some,
    register,
    sources_of,
    sources_with,
    tally_of,
)

PENDING, DONE, FAILED, DLQ = (
    TaskStatus.PENDING,
    TaskStatus.DONE,
    TaskStatus.FAILED,
    TaskStatus.DLQ,
)


def expiring(keys: Sequence[TaskKey]) -> ExpireTasks:
    return ExpireTasks(keys, list(IDS.take(len(keys))))


def replaying(keys: Sequence[TaskKey]) -> ReplayDeadLetters:
    return ReplayDeadLetters(keys, list(IDS.take(len(keys))))


def dropping(keys: Sequence[TaskKey]) -> DropDeadLetters:
    return DropDeadLetters(keys, list(IDS.take(len(keys))))


async def about_tasks(store: Store) -> list[Entry]:
    return [entry for entry in await read_all(store) if entry.kind == "task"]


async def claimed_of(store: Store, count: int, **settings: Any) -> list[TaskKey]:
    """Tasks of the reaction `r`, in the hands of `a`."""
    await register(store, **settings)
    await queue(store, await record_some(store, count))
    return keys_of(await claim(store))


async def letters_of(store: Store, count: int) -> list[TaskKey]:
    keys = await claimed_of(store, count, retry_max=0)
    assert await fail(store, "a", keys) == [DLQ] * count
    return keys


async def task_of(store: Store, key: TaskKey) -> Task:
    task = await store.tasks.get_task(key)
    assert task is not None
    return task


class DeadLettersContract(Sound):
    async def test_a_failure_is_tried_again_later(self, open_store: OpenStore) -> None:
        store = await open_store()
        (key,) = await claimed_of(store, 1, retry_backoff_ms=HOUR_MS)
        assert await fail(store, "a", [key], "odd\0thing") == [PENDING]
        task = await task_of(store, key)
        assert (task.status, task.attempts, task.last_error) == (PENDING, 1, "odd\\0thing")
        assert task.next_attempt_at_ms >= task.claimed_at_ms + HOUR_MS
        assert await about_tasks(store) == []
        assert await fail(store, "a", [key]) == [PENDING]
        assert await task_of(store, key) == task

    @pytest.mark.parametrize(
        ("span_id", "parent_span_id"), [("cd" * 8, ""), ("", "cd" * 8), ("cd" * 8, "ef" * 8)]
    )
    async def test_used_up_it_is_a_dead_letter_and_on_record(
        self, open_store: OpenStore, span_id: str, parent_span_id: str
    ) -> None:
        store = await open_store()
        event = NewEvent("odd", trace_id="ab" * 16, span_id=span_id, parent_span_id=parent_span_id)
        await play(store, recording(event))
        await register(store, dlq_after_n=2, retry_backoff_ms=0)
        await queue(store, [1])
        for expected in (PENDING, DLQ):
            (task,) = await claim(store)
            assert await fail(store, "a", [task.key], "broken") == [expected]
        letter = await task_of(store, task.key)
        assert letter[:6] == ("r/0/1", "r", 0, 1, DLQ, 2)
        assert (letter.lease_owner, letter.last_error) == ("a", "broken")
        assert letter.entry == (await read_all(store))[0]
        (entry,) = await about_tasks(store)
        assert entry.subject == "/tape/task/dead_lettered/r/r%2F0%2F1"
        assert (entry.trace_id, entry.parent_span_id) == ("ab" * 16, "cd" * 8)
        assert orjson.loads(entry.payload_json) == {
            "task_id": "r/0/1", "reaction_id": "r", "shard": 0, "source_global_seq": 1,
            "subject": letter.entry.subject, "attempts": 2, "error": "broken",
        }  # fmt: skip
        assert letter.completed_at_ms == entry.ts_ms

    async def test_a_failure_keeps_its_traceback(self, open_store: OpenStore) -> None:
        store = await open_store()
        (key,) = await claimed_of(store, 1, retry_backoff_ms=0, dlq_after_n=2)
        await fail(store, "a", [key], "one", traceback="at \0 one")
        assert (await task_of(store, key)).last_traceback == "at \\0 one"
        assert [task.last_traceback for task in await claim(store)] == [""]
        await fail(store, "a", [key], "", given_back=True)
        assert (await task_of(store, key)).last_traceback == "at \\0 one"
        await claim(store)
        await fail(store, "a", [key], "two", traceback="at two")
        (letter,) = await store.tasks.list_tasks("", DLQ, None, MANY)
        assert (letter.last_error, letter.last_traceback) == ("two", "at two")
        assert (await store.tasks.list_tasks("r", None, None, MANY)) == [letter]
        said = orjson.loads((await about_tasks(store))[-1].payload_json)
        assert (said["error"], said["traceback"]) == ("two", "at two")

    async def test_a_traceback_stays_until_the_next_failure(self, open_store: OpenStore) -> None:
        store = await open_store()
        (key,) = await claimed_of(store, 1, dlq_after_n=1, retry_backoff_ms=0)
        await fail(store, "a", [key], "one", traceback="at one")
        await play(store, replaying([key]))
        assert (await store.tasks.list_tasks("", PENDING, None, MANY))[0].last_traceback == "at one"
        await claim(store)
        await fail(store, "a", [key], "two")
        assert (await task_of(store, key)).last_traceback == ""
        await play(store, replaying([key]))
        await claim(store)
        await fail(store, "a", [key], "three", traceback="at three")
        await play(store, dropping([key]))
        assert (await task_of(store, key)).last_traceback == "at three"

    async def test_what_is_done_has_no_traceback(self, open_store: OpenStore) -> None:
        store = await open_store()
        (key,) = await claimed_of(store, 1, retry_backoff_ms=0)
        await fail(store, "a", [key], "one", traceback="at one")
        await claim(store)
        await store.tasks.complete_tasks("a", [key])
        assert (await task_of(store, key)).last_traceback == ""
        assert [t.last_traceback for t in await store.tasks.list_tasks("", DONE, None, MANY)] == [
            ""
        ]

    async def test_without_dead_letters_it_is_given_up(self, open_store: OpenStore) -> None:
        store = await open_store()
        keys = await claimed_of(store, 1, retry_max=0, dlq_after_n=0)
        assert await fail(store, "a", keys) == [FAILED]
        assert (await task_of(store, keys[0])).status == FAILED
        assert [entry.subject.split("/")[3] for entry in await about_tasks(store)] == ["failed"]

    async def test_refused_for_good_it_is_not_tried_again(self, open_store: OpenStore) -> None:
        store = await open_store()
        keys = await claimed_of(store, 1)
        assert await fail(store, "a", keys, permanent=True) == [DLQ]

    async def test_given_back_it_is_as_if_never_claimed(self, open_store: OpenStore) -> None:
        store = await open_store()
        keys = await claimed_of(store, 1, retry_max=0)
        assert await fail(store, "a", keys, "", given_back=True) == [PENDING]
        (again,) = await claim(store, owner="b")
        assert (again.attempts, again.lease_owner, again.last_error) == (1, "b", "")

    async def test_a_stranger_cannot_fail_it(self, open_store: OpenStore) -> None:
        store = await open_store()
        (key,) = await claimed_of(store, 1)
        before = await task_of(store, key)
        outcomes = await fail(store, "b", [key, TaskKey("r", 0, 99)])
        assert [type(outcome) for outcome in outcomes] == [NotHeld, NotFound]
        assert await task_of(store, key) == before
        assert await about_tasks(store) == []

    async def test_one_that_has_ended_stays_as_it_ended(self, open_store: OpenStore) -> None:
        store = await open_store()
        first, second = await claimed_of(store, 2, retry_max=0)
        await store.tasks.complete_tasks("a", [first])
        await fail(store, "a", [second])
        assert await fail(store, "a", [first, second]) == [DONE, DLQ]
        assert await fail(store, "b", [first, second]) == [DONE, DLQ]
        assert len(await about_tasks(store)) == 1

    async def test_a_failed_task_its_holder_did_after_all(self, open_store: OpenStore) -> None:
        store = await open_store()
        (key,) = await claimed_of(store, 1)
        await fail(store, "a", [key], "maybe not")
        assert await store.tasks.complete_tasks("b", [key]) == ([], [key])
        assert await store.tasks.complete_tasks("a", [key]) == ([key], [])
        assert (await task_of(store, key)).status == DONE

    async def test_failures_of_several_reactions_in_one_batch(self, open_store: OpenStore) -> None:
        store = await open_store()
        sources = await record_some(store, 600)
        await register(store, "a", retry_max=0)
        await register(store, "b", retry_max=0)
        await queue(store, [a_task(n, name) for name in ("a", "b") for n in sources])
        keys = [key for name in ("a", "b") for key in keys_of(await claim(store, name))]
        one, recorded, other = await attempt(
            store, failing("a", keys[:700]), recording(NewEvent("between")), failing("a", keys)
        )
        assert one == [DLQ] * 700
        assert other == [DLQ] * 1_200
        verbs = [entry.subject.split("/")[3] for entry in (await read_all(store))[600:]]
        assert verbs == ["dead_lettered"] * 700 + ["recorded"] + ["dead_lettered"] * 500
        assert recorded[0].global_seq == 1_301
        assert (await tally_of(store, "a")).dead_letters == 600

    async def test_a_lease_that_ran_out_costs_an_attempt(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store, retry_backoff_ms=HOUR_MS, dlq_after_n=2)
        await queue(store, await record_some(store, 1))
        for expected in (PENDING, DLQ):
            (task,) = await claim(store, owner="gone", lease_ms=0)
            expired = await store.tasks.read_expired(9)
            assert expired == [task.key]
            assert await play(store, expiring(expired)) == 1
            found = await task_of(store, task.key)
            assert (found.status, found.last_error) == (expected, "the lease of gone ran out")
        assert len(await about_tasks(store)) == 1

    async def test_only_leases_that_ran_out_expire(self, open_store: OpenStore) -> None:
        store = await open_store()
        first, second, third = await claimed_of(store, 3)
        await store.tasks.complete_tasks("a", [first])
        await fail(store, "a", [second])
        before = await store.tasks.list_tasks("r", None, None, 9)
        assert await play(store, expiring([first, second, third, TaskKey("r", 0, 99)])) == 0
        assert await store.tasks.list_tasks("r", None, None, 9) == before

    async def test_after_a_takeover_the_first_holder_is_a_stranger(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await register(store)
        await queue(store, [1])
        (task,) = await claim(store, lease_ms=0)
        await play(store, expiring([task.key]))
        (again,) = await claim(store, owner="b")
        assert again.attempts == 2
        assert await store.tasks.complete_tasks("a", [task.key]) == ([], [task.key])
        assert await store.tasks.extend_tasks("a", HOUR_MS, [task.key]) == []
        (outcome,) = await fail(store, "a", [task.key])
        assert isinstance(outcome, NotHeld)
        assert await task_of(store, task.key) == again

    async def test_nobody_took_over_so_it_is_done(self, open_store: OpenStore) -> None:
        store = await open_store()
        await register(store)
        await queue(store, [1])
        (task,) = await claim(store, lease_ms=0)
        await play(store, expiring([task.key]))
        assert await store.tasks.complete_tasks("a", [task.key]) == ([task.key], [])

    async def test_replayed_it_is_queued_anew(self, open_store: OpenStore) -> None:
        store = await open_store()
        first, second = await letters_of(store, 2)
        with pytest.raises(NotFound, match="r/0/99"):
            await play(store, replaying([first, TaskKey("r", 0, 99)]))
        assert await play(store, replaying([first, first])) == 1
        task = await task_of(store, first)
        assert (task.status, task.attempts, task.lease_owner) == (PENDING, 0, "")
        assert await sources_with(store, DLQ) == [second.source_global_seq]
        assert await store.tasks.complete_tasks("a", [first]) == ([], [first])
        (again,) = await claim(store)
        assert (again.key, again.attempts, again.last_error) == (first, 1, "no")
        entry = (await about_tasks(store))[-1]
        assert entry.subject == f"/tape/task/replayed/r/r%2F0%2F{first.source_global_seq}"

    async def test_what_is_queued_again_is_not_made_again(self, open_store: OpenStore) -> None:
        store = await open_store()
        keys = await letters_of(store, 1)
        await play(store, replaying(keys))
        await queue(store, [keys[0].source_global_seq])
        assert len(await store.tasks.list_tasks("r", None, None, MANY)) == 1

    async def test_dropped_it_stays_on_record_as_failed(self, open_store: OpenStore) -> None:
        store = await open_store()
        first, second = await letters_of(store, 2)
        assert await play(store, dropping([first])) == 1
        assert await play(store, dropping([first])) == 0
        assert await play(store, replaying([first])) == 0
        task = await task_of(store, first)
        assert (task.status, task.last_error) == (FAILED, "no")
        assert await sources_with(store, DLQ) == [second.source_global_seq]
        verbs = [entry.subject.split("/")[3] for entry in await about_tasks(store)]
        assert verbs == ["dead_lettered", "dead_lettered", "dropped"]

    async def test_what_is_not_a_dead_letter_is_neither_replayed_nor_dropped(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        first, second = await claimed_of(store, 2)
        await store.tasks.complete_tasks("a", [first])
        before = await store.tasks.list_tasks("r", None, None, 9)
        assert await attempt(store, replaying([first, second]), dropping([first, second])) == [0, 0]
        assert await store.tasks.list_tasks("r", None, None, 9) == before

    async def test_dead_lettered_and_replayed_in_one_batch(self, open_store: OpenStore) -> None:
        store = await open_store()
        keys = await claimed_of(store, 3, retry_max=0)
        _, replayed, failed = await attempt(
            store, failing("a", keys), replaying(keys[:2]), failing("a", keys)
        )
        assert replayed == 2
        assert [type(outcome) for outcome in failed] == [NotHeld, NotHeld, TaskStatus]
        assert await sources_with(store, PENDING) == [1, 2]
        assert await sources_with(store, DLQ) == [3]
        assert sources_of(await claim(store)) == [1, 2]

    async def test_replayed_and_dropped_in_one_batch(self, open_store: OpenStore) -> None:
        store = await open_store()
        keys = await letters_of(store, 3)
        replayed, dropped = await attempt(store, replaying(keys[:2]), dropping(keys))
        assert (replayed, dropped) == (2, 1)
        assert await sources_with(store, PENDING) == [1, 2]
        assert await sources_with(store, FAILED) == [3]

    async def test_letters_of_a_stopped_reaction_are_kept_and_can_be_replayed(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        keys = await letters_of(store, 1)
        await deregister(store)
        assert await play(store, replaying(keys)) == 1
        assert await claim(store) == []
        await register(store)
        assert sources_of(await claim(store)) == [1]

    async def test_a_task_that_fails_in_hand_of_a_stopped_reaction_is_settled(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        first, second = await claimed_of(store, 2, retry_max=0)
        await deregister(store)
        assert await fail(store, "a", [first]) == [DLQ]
        assert await store.tasks.complete_tasks("a", [second]) == ([second], [])

    async def test_those_who_wait_for_tasks_hear_of_a_replay(self, open_store: OpenStore) -> None:
        store = await open_store()
        keys = await letters_of(store, 1)
        heard = store.tasks.task_bell
        await play(store, replaying(keys))
        assert await store.tasks.await_tasks(heard, BOUND_S) > heard
