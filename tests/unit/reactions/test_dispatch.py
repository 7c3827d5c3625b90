"""The dispatcher over a source that does what a test wants: time, faults, stopping."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tape.errors import NotHeld, Overloaded, StoreUnavailable, TapeError
from tape.model.entry import Entry
from tape.model.task import Task, TaskOutcome, TaskStatus
from tape.ports.tasks import Claim
from tape.reactions import dispatch
from tape.reactions.dispatch import Dispatcher, ReactionJob
from tape.reactions.threads import HandlerThreads
from tape.reactions.work import BrokerAway, CallHandler, TaskWork
from tape.settings import DispatcherSettings
from tape.telemetry import metrics
from tests.conformance.reacting import until

QUICK = DispatcherSettings(lease_s=0.3, grace_s=5.0)
AWAY = StoreUnavailable("away for a while")


def a_task(seq: int, reaction_id: str = "r") -> Task:
    entry = Entry(
        seq, "", 0, "event", "/tape/event/recorded/a/_/_", "{}", 1, "", "", "", 1_000, f"id-{seq}",
        "a", "", "", "", "", 0, "",
    )  # fmt: skip
    task_id = f"{reaction_id}/0/{seq}"
    return Task(
        task_id, reaction_id, 0, seq, TaskStatus.CLAIMED.value, 1, 0, "", 0, 0, "", 0, 0, entry
    )


@dataclass
class FakeSource:
    """A queue in memory, with faults."""

    queue: list[Task] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    extended: list[list[str]] = field(default_factory=list)
    settled: list[TaskOutcome] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    lost: set[str] = field(default_factory=set)
    bell: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, *tasks: Task) -> None:
        self.queue += tasks
        self.bell.set()

    async def claim_tasks(self, claim: Claim, wait_ms: int = 0) -> list[Task]:
        self.claims.append(claim)
        self._fail("claim")
        wants = {want.reaction_id: want.most for want in claim.wants}
        given: list[Task] = []
        for task in tuple(self.queue):
            if wants.get(task.reaction_id, 0) > 0 and len(given) < claim.most:
                wants[task.reaction_id] -= 1
                given.append(task)
                self.queue.remove(task)
        return given

    async def listen_for_tasks(self, reaction_ids: Sequence[str], heard: int, wait_ms: int) -> int:
        self._fail("listen")
        self.bell.clear()
        await self.bell.wait()
        return heard + 1

    async def extend_tasks(self, owner: str, lease_ms: int, task_ids: Sequence[str]) -> list[str]:
        self._fail("extend")
        self.extended.append(list(task_ids))
        return [task_id for task_id in task_ids if task_id not in self.lost]

    async def settle_tasks(
        self, owner: str, outcomes: Sequence[TaskOutcome]
    ) -> list[TaskStatus | TapeError]:
        self._fail("settle")
        self.settled += outcomes
        return [
            NotHeld(f"{one.task_id} is another's") if one.task_id in self.lost else TaskStatus.DONE
            for one in outcomes
        ]

    def _fail(self, call: str) -> None:
        if self.faults[call]:
            self.faults[call] -= 1
            raise AWAY


@pytest.fixture
def threads() -> Iterator[HandlerThreads]:
    executor = HandlerThreads(32)
    yield executor
    executor.shutdown()


@asynccontextmanager
async def dispatching(
    source: FakeSource, jobs: dict[str, ReactionJob], settings: DispatcherSettings = QUICK
) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher(source, jobs, "me", settings)
    stop = asyncio.Event()
    running = asyncio.create_task(dispatcher.run(stop))
    try:
        yield dispatcher
    finally:
        stop.set()
        async with asyncio.timeout(20):
            await running
    assert dispatcher.held == 0
    assert all(metrics.DISPATCHER_RUNNING.labels(name).value == 0 for name in jobs)
    assert dispatcher._in_threads == 0


async def settled(source: FakeSource, count: int) -> list[TaskOutcome]:
    await until_true(lambda: len(source.settled) >= count)
    return sorted(source.settled)


async def until_true(ask: Callable[[], object]) -> None:
    async def answer() -> bool:
        return bool(ask())

    await until(answer)


def on_the_loop(
    handler: Callable[[dict[str, Any]], Awaitable[None]], most: int = 10
) -> ReactionJob:
    return ReactionJob(CallHandler(handler, HandlerThreads(1)), most)


async def quick(envelope: dict[str, Any]) -> None:
    pass


async def test_tasks_are_done_and_settled() -> None:
    source = FakeSource()
    async with dispatching(source, {"r": on_the_loop(quick)}):
        source.add(*map(a_task, range(1, 26)))
        outcomes = await settled(source, 25)
    assert {outcome.task_id for outcome in outcomes} == {f"r/0/{k}" for k in range(1, 26)}
    assert len(outcomes) == 25


@dataclass
class SlowToTell(FakeSource):
    """Has settled before it says so: what is to be retried can be claimed in between."""

    retries: list[Task] = field(default_factory=list)
    told: asyncio.Event = field(default_factory=asyncio.Event)

    async def settle_tasks(
        self, owner: str, outcomes: Sequence[TaskOutcome]
    ) -> list[TaskStatus | TapeError]:
        await super().settle_tasks(owner, outcomes)
        if self.retries:
            self.add(self.retries.pop())
            await self.told.wait()
            self._fail("tell")
        return [TaskStatus.DONE if o.verdict == "done" else TaskStatus.PENDING for o in outcomes]


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_retry_that_comes_before_its_failure_is_told_is_done(
    threaded: bool, threads: HandlerThreads
) -> None:
    source, tried = SlowToTell(retries=[a_task(1)._replace(attempts=2)]), []

    async def fail_once(envelope: dict[str, Any]) -> None:
        tried.append(envelope["attempt"])
        if envelope["attempt"] == 1:
            raise ValueError("not today")

    def in_thread(envelope: dict[str, Any]) -> None:
        asyncio.run(fail_once(envelope))

    job = ReactionJob(CallHandler(in_thread if threaded else fail_once, threads), 10)
    async with dispatching(source, {"r": job, "other": on_the_loop(quick)}):
        source.add(a_task(1))
        await until_true(lambda: source.retries == source.queue == [] and len(source.claims) > 1)
        source.told.set()
        outcomes = await settled(source, 2)
    assert tried == [1, 2]
    assert [outcome.verdict for outcome in outcomes] == ["done", "failed"]


async def test_what_was_done_after_its_lease_and_claimed_again_meanwhile_is_not_done_twice() -> (
    None
):
    source, tried = SlowToTell(retries=[a_task(1)._replace(attempts=2)]), []

    async def note(envelope: dict[str, Any]) -> None:
        tried.append(envelope["attempt"])

    async with dispatching(source, {"r": on_the_loop(note)}):
        source.add(a_task(1))
        await until_true(lambda: source.retries == source.queue == [] and len(source.claims) > 1)
        source.told.set()
        await until_true(lambda: len(source.settled) == 1)
    assert tried == [1]


async def test_a_retry_that_comes_while_it_stops_is_given_back() -> None:
    source = SlowToTell(retries=[a_task(1)._replace(attempts=2)])

    async def fail(envelope: dict[str, Any]) -> None:
        raise ValueError("not today")

    async with dispatching(source, {"r": on_the_loop(fail)}):
        source.add(a_task(1))
        await until_true(lambda: source.retries == source.queue == [] and len(source.claims) > 1)
        asyncio.get_running_loop().call_later(0.1, source.told.set)
    assert [outcome.verdict for outcome in source.settled] == ["failed", "given_back"]


async def test_a_retry_whose_failure_is_told_again_is_not_done_here() -> None:
    """For the failure ends that claim as well, and the next one brings it."""
    source = SlowToTell(retries=[a_task(1)._replace(attempts=2)], faults=Counter(tell=1))
    tried = []

    async def fail_once(envelope: dict[str, Any]) -> None:
        tried.append(envelope["attempt"])
        if envelope["attempt"] == 1:
            raise ValueError("not today")

    async with dispatching(source, {"r": on_the_loop(fail_once)}):
        source.add(a_task(1))
        await until_true(lambda: source.retries == source.queue == [] and len(source.claims) > 1)
        source.told.set()
        await settled(source, 2)
        source.add(a_task(1)._replace(attempts=3))
        await settled(source, 3)
    assert tried == [1, 3]


async def test_no_more_are_in_hand_than_the_reaction_and_the_dispatcher_allow() -> None:
    source, release = FakeSource(), asyncio.Event()
    most: Counter[str] = Counter()
    now: Counter[str] = Counter()

    async def handler(envelope: dict[str, Any]) -> None:
        for name in ("all", envelope["reaction_id"]):
            now[name] += 1
            most[name] = max(most[name], now[name])
        await release.wait()
        for name in ("all", envelope["reaction_id"]):
            now[name] -= 1

    jobs = {"r": on_the_loop(handler, 3), "s": on_the_loop(handler, 50)}
    bounded = DispatcherSettings(concurrency=8)
    async with dispatching(source, jobs, bounded) as dispatcher:
        source.add(*(a_task(k, name) for k in range(1, 31) for name in ("r", "s")))
        await until_true(lambda: dispatcher.held == 8)
        release.set()
        await settled(source, 60)
    assert (most["r"], most["all"]) == (3, 8)


async def test_of_all_reactions_together_no_more_are_taken_than_there_are_threads(
    threads: HandlerThreads,
) -> None:
    source, release = FakeSource(), threading.Event()
    jobs = {
        name: ReactionJob(CallHandler(lambda _: release.wait(20), threads), 10) for name in "abcdef"
    }
    few = DispatcherSettings(threads=4)
    async with dispatching(source, jobs, few) as dispatcher:
        source.add(*(a_task(k, name) for k in range(1, 4) for name in jobs))
        await until_true(lambda: dispatcher.held == 4)
        claims = len(source.claims)
        source.bell.set()
        await asyncio.sleep(0)
        assert dispatcher.held == 4
        assert all(claim.most <= 4 for claim in source.claims)
        release.set()
        await settled(source, 18)
        assert len(source.claims) > claims


async def test_asynchronous_handlers_do_not_wait_for_threads(threads: HandlerThreads) -> None:
    source, release = FakeSource(), threading.Event()
    jobs = {
        "slow": ReactionJob(CallHandler(lambda _: release.wait(20), threads), 10),
        "r": on_the_loop(quick),
    }
    async with dispatching(source, jobs, DispatcherSettings(threads=1)) as dispatcher:
        source.add(a_task(1, "slow"))
        await until_true(lambda: dispatcher.held == 1)
        source.add(*map(a_task, range(1, 20)))
        await settled(source, 19)
        release.set()


async def test_while_the_store_is_away_outcomes_are_kept_and_settled_later() -> None:
    source, calls = FakeSource(), Counter[int]()

    async def handler(envelope: dict[str, Any]) -> None:
        calls[envelope["global_seq"]] += 1

    source.faults = Counter(settle=3, claim=1, listen=1)
    async with dispatching(source, {"r": on_the_loop(handler)}):
        source.add(*map(a_task, (1, 2, 3)))
        await settled(source, 3)
    assert source.faults.total() == 0
    assert calls == {1: 1, 2: 1, 3: 1}
    assert len(source.settled) == 3


async def test_an_overloaded_server_is_given_time() -> None:
    source = FakeSource()
    faults: list[TapeError] = [Overloaded()]
    real = source.settle_tasks

    async def settle(owner: str, outcomes: Sequence[TaskOutcome]) -> list[TaskStatus | TapeError]:
        if faults:
            raise faults.pop()
        return await real(owner, outcomes)

    source.settle_tasks = settle  # type: ignore[method-assign]
    async with dispatching(source, {"r": on_the_loop(quick)}):
        source.add(a_task(1))
        await settled(source, 1)


async def test_what_is_in_hand_is_renewed_until_it_is_settled() -> None:
    source, release = FakeSource(), asyncio.Event()

    async def handler(envelope: dict[str, Any]) -> None:
        await release.wait()

    async with dispatching(source, {"r": on_the_loop(handler)}):
        source.add(a_task(1), a_task(2))
        await until_true(lambda: len(source.extended) >= 4)
        assert {tuple(sorted(ids)) for ids in source.extended} == {("r/0/1", "r/0/2")}
        release.set()
        await settled(source, 2)


async def test_a_renewal_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    source, release = FakeSource(faults=Counter(extend=2)), asyncio.Event()

    async def handler(envelope: dict[str, Any]) -> None:
        await release.wait()

    async with dispatching(source, {"r": on_the_loop(handler)}):
        source.add(a_task(1))
        await until_true(lambda: len(source.extended) >= 2)
        release.set()
    assert caplog.text.count("renewing the leases of tasks waits") == 1
    assert caplog.text.count("renewing the leases of tasks goes on") == 1


async def test_a_lease_that_another_has_now_is_told(caplog: pytest.LogCaptureFixture) -> None:
    source, release = FakeSource(lost={"r/0/1"}), asyncio.Event()
    lost = metrics.TASK_ATTEMPTS.labels("r", "lost")
    before = lost.value

    async def handler(envelope: dict[str, Any]) -> None:
        await release.wait()

    async with dispatching(source, {"r": on_the_loop(handler)}):
        source.add(a_task(1))
        await until_true(lambda: "r/0/1 is no longer held" in caplog.text)
        release.set()
        await settled(source, 1)
    assert "r/0/1 is another's" in caplog.text
    assert lost.value == before + 1


async def test_a_task_that_comes_back_while_it_runs_is_not_started_again() -> None:
    source, release = FakeSource(), asyncio.Event()
    calls: list[int] = []

    async def handler(envelope: dict[str, Any]) -> None:
        calls.append(envelope["global_seq"])
        await release.wait()

    async with dispatching(source, {"r": on_the_loop(handler)}) as dispatcher:
        source.add(a_task(1))
        await until_true(lambda: calls)
        source.add(a_task(1)._replace(attempts=2), a_task(2))
        await until_true(lambda: 2 in calls)
        assert (calls, dispatcher.held) == ([1, 2], 2)
        release.set()
        await settled(source, 2)
        source.add(*map(a_task, range(3, 30)))
        await settled(source, 29)


class FakeWork:
    """Work that fails in a way of its own."""

    batch = 10
    threaded = False

    def __init__(self, *errors: BaseException) -> None:
        self._errors = list(errors)
        self.given: list[list[str]] = []
        self.times: list[float] = []

    async def do(self, tasks: Sequence[Task]) -> Sequence[TaskOutcome]:
        self.times.append(asyncio.get_running_loop().time())
        self.given.append([task.task_id for task in tasks])
        if self._errors:
            raise self._errors.pop(0)
        return [TaskOutcome(task.task_id) for task in tasks]


async def test_work_that_fails_in_any_way_costs_its_own_tasks_alone() -> None:
    source = FakeSource()
    work: TaskWork = FakeWork(ZeroDivisionError("a mistake"), asyncio.CancelledError("of its own"))
    jobs = {"odd": ReactionJob(work, 1), "r": on_the_loop(quick)}
    async with dispatching(source, jobs):
        source.add(a_task(1, "odd"), a_task(2, "odd"), a_task(3, "odd"), a_task(4))
        outcomes = await settled(source, 4)
    assert outcomes == [
        TaskOutcome("odd/0/1", "failed", "ZeroDivisionError: a mistake"),
        TaskOutcome("odd/0/2", "failed", "CancelledError: of its own"),
        TaskOutcome("odd/0/3"),
        TaskOutcome("r/0/4"),
    ]


async def test_where_a_broker_is_away_there_is_a_pause_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "AWAY_FIRST_S", 1.0)
    monkeypatch.setattr(dispatch, "LISTEN_MS", 100)
    source = FakeSource()
    given_back = [TaskOutcome("p/0/1", "given_back", "no route")]
    work = FakeWork(BrokerAway(given_back, "no route"), BrokerAway(given_back, "no route"))
    jobs = {"p": ReactionJob(work, 10), "r": on_the_loop(quick)}
    async with dispatching(source, jobs):
        source.add(a_task(1, "p"))
        await settled(source, 1)
        source.add(a_task(1, "p"), a_task(5))
        await until_true(lambda: TaskOutcome("r/0/5") in source.settled)
        assert len(work.times) == 1, "it was tried again without a pause"
        await settled(source, 3)
        source.add(a_task(1, "p"))
        await settled(source, 4)
    first, second, third = work.times
    assert second - first >= 1.0
    assert third - second >= 2.0, "the pause doubles"
    assert TaskOutcome("p/0/1") in source.settled


async def test_whoever_is_stopped_finishes_what_is_in_hand() -> None:
    source, release = FakeSource(), asyncio.Event()

    async def handler(envelope: dict[str, Any]) -> None:
        await release.wait()

    async with dispatching(source, {"r": on_the_loop(handler)}) as dispatcher:
        source.add(*map(a_task, (1, 2, 3)))
        await until_true(lambda: dispatcher.held == 3)
        asyncio.get_running_loop().call_later(0.3, release.set)
    assert sorted(source.settled) == [TaskOutcome(f"r/0/{k}") for k in (1, 2, 3)]


async def test_what_does_not_finish_in_time_is_given_back(threads: HandlerThreads) -> None:
    source, release = FakeSource(), asyncio.Event()

    async def handler(envelope: dict[str, Any]) -> None:
        if envelope["global_seq"] == 1:
            await release.wait()

    impatient = DispatcherSettings(grace_s=0.2)
    async with dispatching(source, {"r": on_the_loop(handler)}, impatient):
        source.add(a_task(1), a_task(2))
        await settled(source, 1)
    assert sorted(source.settled) == [TaskOutcome("r/0/1", "given_back"), TaskOutcome("r/0/2")]


async def test_a_thread_that_does_not_end_keeps_its_task(
    threads: HandlerThreads, caplog: pytest.LogCaptureFixture
) -> None:
    """Given back it would run twice at once."""
    source, release = FakeSource(), threading.Event()
    jobs = {"r": ReactionJob(CallHandler(lambda _: release.wait(30), threads), 10)}
    async with dispatching(source, jobs, DispatcherSettings(grace_s=0.2)) as dispatcher:
        source.add(a_task(1))
        await until_true(lambda: dispatcher.held == 1)
    release.set()
    assert source.settled == []
    assert "task r/0/1 has not ended and stays claimed until its lease" in caplog.text


async def test_it_ends_though_the_store_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatch, "SETTLE_S", 0.3)
    source = FakeSource()
    source.faults["settle"] = 1_000_000
    async with dispatching(source, {"r": on_the_loop(quick)}) as dispatcher:
        source.add(a_task(1))
        await until_true(lambda: dispatcher.held == 1)
    assert "task r/0/1 could not be settled and stays claimed until its lease" in caplog.text


async def test_one_that_runs_for_long_is_told(caplog: pytest.LogCaptureFixture) -> None:
    source, release = FakeSource(), asyncio.Event()

    async def handler(envelope: dict[str, Any]) -> None:
        await release.wait()

    longest = metrics.DISPATCHER_LONGEST_RUNNING.labels("r")
    impatient = DispatcherSettings(lease_s=0.15, stuck_s=0.3)
    async with dispatching(source, {"r": on_the_loop(handler)}, impatient):
        source.add(a_task(1))
        await until_true(lambda: caplog.text.count("task r/0/1 has been running for") >= 2)
        assert longest.value > 0.5
        release.set()
        await until_true(lambda: longest.value == 0)


async def test_a_dispatcher_that_stopped_has_nothing_running() -> None:
    source, release = FakeSource(), asyncio.Event()

    async def handler(envelope: dict[str, Any]) -> None:
        await release.wait()

    longest = metrics.DISPATCHER_LONGEST_RUNNING.labels("r")
    async with dispatching(source, {"r": on_the_loop(handler)}, DispatcherSettings(lease_s=0.15)):
        source.add(a_task(1))
        await until_true(lambda: longest.value > 0)
        asyncio.get_running_loop().call_soon(release.set)
    assert longest.value == 0


async def test_there_may_be_more_reactions_than_one_claim_names() -> None:
    source = FakeSource()
    jobs = {f"r{k}": on_the_loop(quick) for k in range(2_500)}
    async with dispatching(source, jobs, DispatcherSettings(concurrency=3_000)):
        source.add(*(a_task(k, f"r{k}") for k in range(2_500)))
        await settled(source, 2_500)
    assert max(len(claim.wants) for claim in source.claims) <= 1_000
