"""Reactions and tasks as a matcher and dispatchers would make and take them, and what must hold."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

from tape.model.event import NewEvent
from tape.model.move import Need
from tape.model.reaction import (
    TALLIES,
    DeregisterReaction,
    HandlerKind,
    NewReaction,
    Reaction,
    ReactionCursor,
    ReactionState,
    RegisterReaction,
    Tally,
)
from tape.model.task import ANY_SHARD, FailTasks, Task, TaskFailure, TaskKey, TaskStatus
from tape.ports.matching import CursorStep, MatcherLease, MatchStep, NewTask, StepResult
from tape.ports.store import Store
from tape.ports.tasks import Claim, Want
from tests.conformance.playing import (
    IDS,
    LIMITS,
    MANY,
    Look,
    OpenStore,
    play,
    record,
)

T = TypeVar("T")

HOUR_MS = 3_600_000
SUBJECT = "/tape/event/recorded/a/_/_"
BOUND_S = 60.0


def registering(reaction_id: str = "r", **settings: Any) -> RegisterReaction:
    """A reaction with as much room as there may be."""
    plain = NewReaction(reaction_id, "/tape/**", HandlerKind.TASK, max_concurrency=100_000)
    return RegisterReaction(plain._replace(**settings), LIMITS)


async def register(store: Store, reaction_id: str = "r", **settings: Any) -> Reaction:
    return await play(store, registering(reaction_id, **settings))


async def deregister(store: Store, reaction_id: str = "r") -> bool:
    return await play(store, DeregisterReaction(reaction_id, LIMITS))


async def record_some(store: Store, count: int) -> list[int]:
    recorded = await record(store, *(NewEvent("a") for _ in range(count)))
    return [one.global_seq for one in recorded]


def a_task(source: int, reaction_id: str = "r", **fields: Any) -> NewTask:
    return NewTask(reaction_id, 0, source, 1_000, SUBJECT, 0)._replace(**fields)


def a_cursor(upto: int, reaction_id: str = "r", **fields: Any) -> CursorStep:
    return CursorStep(reaction_id, 0, upto, 1, 0, 0, 0, "", 0)._replace(**fields)


async def lead(store: Store, owner: str = "matcher", ttl_ms: int = HOUR_MS) -> MatcherLease:
    lease = await store.matching.acquire_matcher(owner, ttl_ms)
    assert lease is not None
    return lease


async def a_step(store: Store, lease: MatcherLease, **fields: Any) -> MatchStep:
    """One that moves nothing, made for how things stand."""
    version = (await store.matching.read_reactions()).version
    return MatchStep(lease, HOUR_MS, version, lease.position, [], [])._replace(**fields)


async def step(store: Store, **fields: Any) -> StepResult:
    """Whoever matched so far makes one more step."""
    return await store.matching.make_step(await a_step(store, await lead(store), **fields))


async def queue(store: Store, tasks: Iterable[NewTask | int]) -> None:
    made = [a_task(one) if isinstance(one, int) else one for one in tasks]
    assert await step(store, tasks=made) == "made"


async def claim(
    store: Store,
    reaction_id: str = "r",
    most: int = 1_000,
    *,
    owner: str = "a",
    lease_ms: int = HOUR_MS,
    shard: int = ANY_SHARD,
) -> list[Task]:
    return await store.tasks.claim_tasks(
        Claim(owner, lease_ms, [Want(reaction_id, shard, most)], most)
    )


def failing(owner: str, keys: Sequence[TaskKey], error: str = "no", **fields: Any) -> FailTasks:
    failures = [TaskFailure(key, error, **fields) for key in keys]
    return FailTasks(owner, failures, list(IDS.take(len(keys))), LIMITS)


async def fail(
    store: Store, owner: str, keys: Sequence[TaskKey], error: str = "no", **fields: Any
) -> list[Any]:
    return await play(store, failing(owner, keys, error, **fields))


def keys_of(tasks: Iterable[Task]) -> list[TaskKey]:
    return [task.key for task in tasks]


def sources_of(tasks: Iterable[Task]) -> list[int]:
    return [task.source_global_seq for task in tasks]


async def sources_with(
    store: Store, status: TaskStatus | None, reaction_id: str = "r"
) -> list[int]:
    return sources_of(await store.tasks.list_tasks(reaction_id, status, None, MANY))


async def cursors_of(store: Store, reaction_id: str = "r") -> list[ReactionCursor]:
    found = await store.matching.read_reactions()
    return [cursor for cursor in found.cursors if cursor.reaction_id == reaction_id]


async def state_of(store: Store, reaction_id: str = "r") -> ReactionState:
    (state,) = [
        state
        for state in await store.matching.list_reactions()
        if state.reaction.reaction_id == reaction_id
    ]
    return state


async def tally_of(store: Store, reaction_id: str = "r") -> Tally:
    (tally,) = await play(store, Look(Need(TALLIES, reaction_id)))
    assert isinstance(tally, Tally)
    return tally


async def until(ask: Callable[[], Awaitable[T | None]]) -> T:
    """Ask until there is an answer, within bounds: for what takes the store's own clock."""
    async with asyncio.timeout(BOUND_S):
        while True:
            if answer := await ask():
                return answer
            await asyncio.sleep(0.002)


async def expect_sound(store: Store) -> None:
    """No task is there twice, and the tallies are what counting finds."""
    found = {status: await store.tasks.list_tasks("", status, None, MANY) for status in TaskStatus}
    keys = Counter(task.key for tasks in found.values() for task in tasks)
    assert [key for key, count in keys.items() if count > 1] == []
    assert all(task.lease_owner and task.attempts for task in found[TaskStatus.CLAIMED])
    counts = {
        status: Counter(task.reaction_id for task in tasks) for status, tasks in found.items()
    }
    states = {state.reaction.reaction_id: state for state in await store.matching.list_reactions()}
    for reaction_id in {*states, *(key.reaction_id for key in keys)}:
        pending, claimed, *_, dead = (counts[status][reaction_id] for status in TaskStatus)
        tally = await tally_of(store, reaction_id)
        assert tally[1:4] == (pending + claimed, claimed, dead), reaction_id
        if state := states.get(reaction_id):
            assert (state.pending, state.claimed, state.dead_letters) == (pending, claimed, dead)


class Sound:
    """A contract whose every test leaves the tasks of a database in order."""

    @pytest.fixture(autouse=True)
    async def sound_afterwards(self, open_store: OpenStore) -> AsyncIterator[None]:
        yield
        await expect_sound(await open_store())
