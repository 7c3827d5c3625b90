"""Matcher and dispatcher on a real store: retries, dead letters, leases, brokers, an end."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from tape.bus import Bus, FollowQuery
from tape.errors import BrokerError, BrokerUnavailable, GiveUp
from tape.model.entry import Entry
from tape.model.event import NewEvent
from tape.model.reaction import HandlerKind, NewReaction
from tape.model.task import Task, TaskStatus
from tape.ports.broker import Outgoing
from tape.programs.connect import open_bus
from tape.reactions import dispatch
from tape.reactions.dispatch import Dispatcher, ReactionJob
from tape.reactions.threads import HandlerThreads
from tape.reactions.work import CallHandler, Handler, PublishTasks, TaskWork
from tape.settings import DispatcherSettings, MatcherSettings, Settings
from tape.telemetry import metrics
from tests.conformance.reacting import expect_sound, until

SETTINGS = Settings(matcher=MatcherSettings(expiry_s=0.1))
THREADS = HandlerThreads(8)
EVENTS = "/tape/event/**"


@pytest.fixture
async def bus(store_url: str) -> AsyncIterator[Bus]:
    opened = await open_bus(store_url, SETTINGS)
    opened.start_matching()
    yield opened
    await expect_sound(opened._store)
    await opened.close()


def reaction(reaction_id: str = "r", **settings: Any) -> NewReaction:
    return NewReaction(reaction_id, EVENTS, HandlerKind.TASK)._replace(**settings)


@asynccontextmanager
async def dispatching(
    bus: Bus, work: dict[str, TaskWork], settings: DispatcherSettings | None = None, most: int = 10
) -> AsyncIterator[Dispatcher]:
    jobs = {name: ReactionJob(each, most) for name, each in work.items()}
    dispatcher = Dispatcher(bus.tasks, jobs, "me", settings or DispatcherSettings())
    stop = asyncio.Event()
    running = asyncio.create_task(dispatcher.run(stop))
    try:
        yield dispatcher
    finally:
        stop.set()
        async with asyncio.timeout(30):
            await running
    assert dispatcher.held == 0
    assert [state.claimed for state in await bus.reactions.list_reactions()] == [0] * len(jobs)


def call(handler: Handler) -> CallHandler:
    return CallHandler(handler, THREADS)


async def until_true(ask: Callable[[], object]) -> None:
    async def answer() -> bool:
        return bool(ask())

    await until(answer)


async def ended(bus: Bus, status: TaskStatus, count: int) -> list[Task]:
    async def ask() -> list[Task] | None:
        found = await bus.tasks.list_tasks("", status)
        return found if len(found) == count else None

    return await until(ask)


async def journal(bus: Bus, pattern: str) -> list[Entry]:
    head = (await bus.info()).head_global_seq
    pages = bus.follow(FollowQuery(pattern, until=head))
    return [entry async for page in pages for entry in page.entries]


async def test_a_handler_that_raises_leaves_its_traceback(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    await bus.reactions.register_reaction(reaction(retry_backoff_ms=0, dlq_after_n=3))
    await bus.reactions.register_reaction(reaction("s", retry_backoff_ms=0, retry_max=0))

    def deeper(attempt: int) -> None:
        raise ValueError("not today" if attempt < 3 else "never")

    async def handler(envelope: dict[str, Any]) -> None:
        deeper(envelope["attempt"])

    def in_thread(envelope: dict[str, Any]) -> None:
        try:
            deeper(1)
        except ValueError as error:
            raise GiveUp("no use") from error

    async with dispatching(bus, {"r": call(handler), "s": call(in_thread)}):
        await bus.record_events([NewEvent("a")])
        letter, refused = await ended(bus, TaskStatus.DLQ, 2)
    shown = letter.last_traceback.split("\n")
    assert shown[0] == "Traceback (most recent call last):"
    assert (shown[1].endswith("in handler"), shown[-1]) == (True, "ValueError: never")
    assert any(line.endswith("in deeper") for line in shown)
    assert "ValueError: not today\n\nThe above exception was the direct cause" in (
        refused.last_traceback
    )
    noted = {e.payload["task_id"]: e for e in await journal(bus, "/tape/task/dead_lettered/**")}
    for each in (letter, refused):
        payload = noted[each.task_id].payload
        assert payload["error"] == each.last_error
        assert payload["traceback"] == each.last_traceback
    told = [r.getMessage() for r in caplog.records if f"task {letter.task_id}" in r.getMessage()]
    assert [line.split("\n")[0] for line in told] == [
        f"task {letter.task_id} failed: ValueError: not today",
        f"task {letter.task_id} failed: ValueError: not today",
        f"task {letter.task_id} dead-lettered: ValueError: never",
    ]
    assert ["    Traceback" in line for line in told] == [True, False, True]


async def test_a_failure_is_retried_ever_later_and_ends_as_a_dead_letter(bus: Bus) -> None:
    await bus.reactions.register_reaction(reaction(retry_backoff_ms=100, dlq_after_n=4))
    times: list[float] = []
    attempts: list[int] = []

    def handler(envelope: dict[str, Any]) -> None:
        times.append(time.monotonic())
        attempts.append(envelope["attempt"])
        raise ValueError("not today")

    async with dispatching(bus, {"r": call(handler)}):
        (recorded,) = await bus.record_events([NewEvent("a", '{"n":1}')])
        (letter,) = await ended(bus, TaskStatus.DLQ, 1)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert attempts == [1, 2, 3, 4]
    for pause, wanted in zip(pauses, (0.1, 0.2, 0.4), strict=True):
        assert wanted <= pause < wanted + 5.0
    assert (letter.attempts, letter.last_error) == (4, "ValueError: not today")
    (entry,) = await journal(bus, "/tape/task/dead_lettered/**")
    assert entry.subject.startswith("/tape/task/dead_lettered/r/")
    assert entry.payload["task_id"] == letter.task_id == f"r/0/{recorded.global_seq}"
    assert entry.payload["error"] == "ValueError: not today"
    assert entry.payload["attempts"] == 4


async def test_a_dead_letter_that_is_replayed_is_handled(bus: Bus) -> None:
    await bus.reactions.register_reaction(reaction(dlq_after_n=1))
    mended = asyncio.Event()
    handled: list[int] = []

    async def handler(envelope: dict[str, Any]) -> None:
        if not mended.is_set():
            raise ValueError("not yet")
        handled.append(envelope["attempt"])

    async with dispatching(bus, {"r": call(handler)}):
        await bus.record_events([NewEvent("a")])
        await ended(bus, TaskStatus.DLQ, 1)
        mended.set()
        assert await bus.tasks.replay_dead_letters("r") == 1
        await ended(bus, TaskStatus.DONE, 1)
    assert handled == [1]


async def test_who_gives_up_is_not_asked_again(bus: Bus) -> None:
    await bus.reactions.register_reaction(reaction())
    calls: list[int] = []

    async def handler(envelope: dict[str, Any]) -> None:
        calls.append(envelope["attempt"])
        raise GiveUp("no such account")

    async with dispatching(bus, {"r": call(handler)}):
        await bus.record_events([NewEvent("a")])
        (letter,) = await ended(bus, TaskStatus.DLQ, 1)
    assert calls == [1]
    assert (letter.attempts, letter.last_error) == (1, "GiveUp: no such account")
    assert len(await journal(bus, "/tape/task/dead_lettered/r/**")) == 1


async def test_handlers_longer_than_their_lease_keep_it_and_are_seen(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    await bus.reactions.register_reaction(reaction("plain"))
    await bus.reactions.register_reaction(reaction("async"))
    calls: Counter[str] = Counter()

    ends, ends_plain = asyncio.Event(), threading.Event()

    def plain(envelope: dict[str, Any]) -> None:
        calls["plain"] += 1
        assert ends_plain.wait(60)

    async def asynchronous(envelope: dict[str, Any]) -> None:
        calls["async"] += 1
        await ends.wait()

    async def are_held_for_longer() -> list[Task]:
        held = await bus.tasks.list_tasks("", TaskStatus.CLAIMED)
        now_ms = time.time_ns() // 1_000_000
        is_so = [now_ms > task.claimed_at_ms + 1_000 * settings.lease_s for task in held]
        return held if is_so == [True, True] else []

    settings = DispatcherSettings(lease_s=4.0, stuck_s=1.0)
    work: dict[str, TaskWork] = {"plain": call(plain), "async": call(asynchronous)}
    longest = [metrics.DISPATCHER_LONGEST_RUNNING.labels(name) for name in work]
    async with dispatching(bus, work, settings):
        await bus.record_events([NewEvent("a")])
        await until_true(lambda: all(gauge.value > 1 for gauge in longest))
        for task in await until(are_held_for_longer):
            assert task.lease_expires_at_ms > task.claimed_at_ms + 4_000, "it was not renewed"
        ends.set()
        ends_plain.set()
        done = await ended(bus, TaskStatus.DONE, 2)
    assert calls == {"plain": 1, "async": 1}
    assert {task.attempts for task in done} == {1}
    for name in ("plain", "async"):
        assert f"task {name}/0/1 has been running for" in caplog.text


class FakeBroker:
    """Away until it is told that it is back."""

    def __init__(self) -> None:
        self.is_back = False
        self.taken: list[Outgoing] = []
        self.tries = 0

    async def publish(self, messages: Sequence[Outgoing]) -> list[BrokerError | None]:
        self.tries += 1
        if not self.is_back:
            return [BrokerUnavailable("no route") for _ in messages]
        self.taken += messages
        return [None for _ in messages]

    async def close(self) -> None: ...


async def test_while_a_broker_is_away_tasks_are_given_back_and_none_is_given_up(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "AWAY_FIRST_S", 0.1)
    monkeypatch.setattr(dispatch, "LISTEN_MS", 100)
    target = reaction(
        handler_kind=HandlerKind.PUBLISH, publish_target="log:", dlq_after_n=2, max_concurrency=10
    )
    await bus.reactions.register_reaction(target)
    broker = FakeBroker()
    async with dispatching(bus, {"r": PublishTasks(broker)}):
        recorded = await bus.record_events([NewEvent("a") for _ in range(5)])
        await until_true(lambda: broker.tries >= 3)
        assert await bus.tasks.list_tasks("", TaskStatus.DLQ) == []
        broker.is_back = True
        done = await ended(bus, TaskStatus.DONE, 5)
    assert {message.entry.global_seq for message in broker.taken} == {
        one.global_seq for one in recorded
    }
    assert all(message.attempt >= 2 for message in broker.taken), "each may be a repeat"
    assert {task.attempts for task in done} == {1}, "a try that was not its fault does not count"


async def test_whoever_is_stopped_under_load_leaves_nothing_in_hand(bus: Bus) -> None:
    await bus.reactions.register_reaction(reaction(max_concurrency=10))
    started: Counter[int] = Counter()
    finished: Counter[int] = Counter()

    async def handler(envelope: dict[str, Any]) -> None:
        started[envelope["global_seq"]] += 1
        await asyncio.sleep(0.05)
        finished[envelope["global_seq"]] += 1

    await bus.record_events([NewEvent("a") for _ in range(200)])
    async with dispatching(bus, {"r": call(handler)}):
        await until_true(lambda: len(started) > 30)
    assert started == finished
    assert set(started.values()) == {1}
    assert len(await bus.tasks.list_tasks("r", TaskStatus.DONE)) == len(finished) < 200
    assert await bus.tasks.list_tasks("r", TaskStatus.CLAIMED) == []


async def test_what_did_not_finish_in_time_is_the_next_ones(bus: Bus) -> None:
    await bus.reactions.register_reaction(reaction())
    never = asyncio.Event()

    async def waits(envelope: dict[str, Any]) -> None:
        await never.wait()

    attempts: list[int] = []

    async def notes(envelope: dict[str, Any]) -> None:
        attempts.append(envelope["attempt"])

    async with dispatching(bus, {"r": call(waits)}, DispatcherSettings(grace_s=0.1)) as first:
        await bus.record_events([NewEvent("a")])
        await until_true(lambda: first.held)
    async with dispatching(bus, {"r": call(notes)}):
        await ended(bus, TaskStatus.DONE, 1)
    assert attempts == [1], "it was not its fault, so it does not count"
