"""The dispatcher: claims tasks, has them done, and says what became of them.

    claim ──▶ held ──work──▶ outcome ──settle──▶ gone
                └──── renewed every third of the lease

Limits are the store's to keep, so they hold over any number of dispatchers; a slot is free again
when the outcome has been settled, not before. Outcomes are settled many at a time. Whoever stops a
dispatcher lets it finish what it holds, and gives back what does not finish in time.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tape.errors import BrokerUnavailable, Overloaded, StoreUnavailable, TapeError
from tape.model.task import ANY_SHARD, Task, TaskOutcome, TaskStatus, clipped_error
from tape.ports.tasks import Claim, Want
from tape.ports.user_code import as_failure
from tape.ports.user_traceback import TracebackBlock
from tape.reactions.work import BrokerAway, TaskWork, described
from tape.settings import DispatcherSettings
from tape.telemetry import metrics
from tape.telemetry.loop_watch import WHAT_TO_DO, last_block
from tape.telemetry.metrics import AttemptOutcome
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.dispatcher")

PAUSE_FIRST_S = 0.1
PAUSE_MOST_S = 5.0
AWAY_FIRST_S = 1.0
AWAY_MOST_S = 30.0
LISTEN_MS = 1_000
NAMES_MOST = 1_000
"""How many reactions one claim may name."""
TO_RETRY = (TaskStatus.PENDING, TaskStatus.CLAIMED)
SETTLE_S = 10.0
"""How long a stopping dispatcher waits for a store that is away, besides its grace."""


class TaskSource(Protocol):
    """The operations on tasks that a dispatcher needs, of a bus or a client."""

    async def claim_tasks(self, claim: Claim, wait_ms: int = 0) -> list[Task]: ...

    async def listen_for_tasks(
        self, reaction_ids: Sequence[str], heard: int, wait_ms: int
    ) -> int: ...

    async def extend_tasks(
        self, owner: str, lease_ms: int, task_ids: Sequence[str]
    ) -> list[str]: ...

    async def settle_tasks(
        self, owner: str, outcomes: Sequence[TaskOutcome]
    ) -> list[TaskStatus | TapeError]: ...


class ReactionJob(NamedTuple):
    """One reaction's work and how many of its tasks may be in hand at once."""

    work: TaskWork
    max_concurrency: int
    shard: int = ANY_SHARD


class _ClaimedTask:
    """A task in hand, from its claim until its outcome is settled."""

    __slots__ = ("is_settling", "since", "task", "warned_at")

    def __init__(self, task: Task, now: float) -> None:
        self.task = task
        self.since = now
        self.warned_at = now
        self.is_settling = False


class Dispatcher:
    def __init__(
        self,
        source: TaskSource,
        jobs: Mapping[str, ReactionJob],
        owner: str,
        settings: DispatcherSettings,
    ) -> None:
        self._source = source
        self._jobs = jobs
        self._owner = owner
        self._settings = settings
        self._lease_ms = int(settings.lease_s * 1000)
        self._held: dict[str, _ClaimedTask] = {}
        self._claimed_again: dict[str, Task] = {}
        """Tasks to retry that were claimed before we were told that their failure is settled."""
        self._in_hand = dict.fromkeys(jobs, 0)
        self._in_threads = 0
        self._breaks: dict[str, _BrokerPause] = {}
        self._turn = 0
        self._outcomes: list[TaskOutcome] = []
        self._to_settle = asyncio.Event()
        self._freed = asyncio.Event()
        self._working: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._claiming = Retrying(log, "claiming tasks")
        self._settling = Retrying(log, "settling tasks")
        self._renewing = Retrying(log, "renewing the leases of tasks")
        self._publishing = {name: Retrying(log, f"reaction {name}") for name in jobs}

    @property
    def held(self) -> int:
        """How many tasks are in hand."""
        return len(self._held)

    async def run(self, stop: asyncio.Event) -> None:
        """Dispatch until told to stop; then finish what is in hand, for at most `grace_s`."""
        async with asyncio.TaskGroup() as group:
            upkeep = [
                group.create_task(self._settle_all(group), name="tape-settle"),
                group.create_task(self._renew_all(), name="tape-renew"),
            ]
            stopping = group.create_task(_wait(stop), name="tape-stop")
            await self._feed(group, stopping)
            await self._drain()
            for task in upkeep:
                task.cancel()
            for reaction_id in self._jobs:  # nothing is running here any more
                metrics.DISPATCHER_LONGEST_RUNNING.labels(reaction_id).set(0.0)

    async def _feed(self, group: asyncio.TaskGroup, stopping: asyncio.Task[None]) -> None:
        pause, heard = PAUSE_FIRST_S, 0
        while not stopping.done():
            self._freed.clear()
            wants, limited = self._wants()
            if not wants:
                await _first((self._freed.wait(),), stopping, LISTEN_MS / 1000)
                continue
            try:
                tasks = await self._claim(wants)
                if not tasks:
                    heard = await self._listen(wants, heard, stopping, or_freed=limited)
                pause = PAUSE_FIRST_S
                self._claiming.succeeded()
            except (StoreUnavailable, Overloaded) as error:
                self._claiming.failed(error, pause)
                await _first((), stopping, pause)
                pause = min(2 * pause, PAUSE_MOST_S)
            else:
                self._start(tasks, group)
                await asyncio.sleep(0)  # handlers begin before the next claim is put together

    def _wants(self) -> tuple[list[Want], bool]:
        """What there is room for, and whether any reaction has less than it could have."""
        now = asyncio.get_running_loop().time()
        room = min(self._settings.concurrency - len(self._held), self._settings.claim_most)
        wants: list[Want] = []
        limited = False
        for reaction_id, job in self._jobs.items():
            free = min(job.max_concurrency - self._in_hand[reaction_id], room)
            if job.work.threaded:
                free = min(free, self._settings.threads - self._in_threads)
            on_break = self._breaks.get(reaction_id)
            if free <= 0 or (on_break is not None and on_break.until > now):
                limited = True
                continue
            wants.append(Want(reaction_id, job.shard, free))
        return wants, limited

    async def _claim(self, wants: list[Want]) -> list[Task]:
        """As many as there is room for; of the others too if one claim cannot name them all."""
        most = self._settings.concurrency - len(self._held)
        if any(self._jobs[want.reaction_id].work.threaded for want in wants):
            # What has no thread would only be kept from other dispatchers.
            most = min(most, self._settings.threads - self._in_threads)
        if len(wants) > NAMES_MOST:
            self._turn = (self._turn + NAMES_MOST) % len(wants)
            wants = wants[self._turn :] + wants[: self._turn]
        for start in range(0, len(wants), NAMES_MOST):
            named = wants[start : start + NAMES_MOST]
            tasks = await self._source.claim_tasks(Claim(self._owner, self._lease_ms, named, most))
            if tasks:
                return tasks
        return []

    async def _listen(
        self, wants: Sequence[Want], heard: int, stopping: asyncio.Task[None], *, or_freed: bool
    ) -> int:
        listening = asyncio.ensure_future(
            self._source.listen_for_tasks([want.reaction_id for want in wants], heard, LISTEN_MS)
        )
        waits = (listening, self._freed.wait()) if or_freed else (listening,)
        await _first(waits, stopping, 2 * LISTEN_MS / 1000)
        return heard if listening.cancelled() else listening.result()

    def _start(self, tasks: Sequence[Task], group: asyncio.TaskGroup) -> None:
        now = asyncio.get_running_loop().time()
        by_reaction: dict[str, list[Task]] = {}
        for task in tasks:
            held = self._held.get(task.task_id)
            if held is None:
                self._held[task.task_id] = _ClaimedTask(task, now)
                by_reaction.setdefault(task.reaction_id, []).append(task)
            elif held.is_settling:
                self._claimed_again[task.task_id] = task
            # Else it ran past its lease and came back to whom still runs it.
        for reaction_id, some in by_reaction.items():
            job = self._jobs[reaction_id]
            self._count(reaction_id, len(some))
            for start in range(0, len(some), job.work.batch):
                working = group.create_task(
                    self._do(job, some[start : start + job.work.batch]), name="tape-task"
                )
                self._working.add(working)
                working.add_done_callback(self._working.discard)

    def _count(self, reaction_id: str, change: int) -> None:
        self._in_hand[reaction_id] += change
        if self._jobs[reaction_id].work.threaded:
            self._in_threads += change
        metrics.DISPATCHER_RUNNING.labels(reaction_id).set(self._in_hand[reaction_id])

    async def _do(self, job: ReactionJob, tasks: Sequence[Task]) -> None:
        loop = asyncio.get_running_loop()
        reaction_id, started = tasks[0].reaction_id, loop.time()
        _observe_wait(tasks)
        try:
            outcomes = await job.work.do(tasks)
            if self._breaks.pop(reaction_id, None):
                self._publishing[reaction_id].succeeded()
        except BrokerAway as away:
            outcomes = away.outcomes
            self._take_a_break(reaction_id, str(away))
        except asyncio.CancelledError as error:
            if not self._is_draining:
                outcomes = _failed(tasks, error)
            elif job.work.threaded:
                # It still runs: given back, it would run twice at once.
                self._abandon(tasks)
                return
            else:
                outcomes = [TaskOutcome(task.task_id, "given_back") for task in tasks]
        except BaseException as error:
            failure = as_failure(error)
            log.exception("the dispatcher of reaction %s failed unexpectedly", reaction_id)
            outcomes = _failed(tasks, failure)
        metrics.TASK_HANDLING.labels(reaction_id).observe(loop.time() - started)
        self._settle(outcomes)

    def _settle(self, outcomes: Sequence[TaskOutcome]) -> None:
        for outcome in outcomes:
            if held := self._held.get(outcome.task_id):
                held.is_settling = True
        self._outcomes += outcomes
        self._to_settle.set()

    def _take_a_break(self, reaction_id: str, reason: str) -> None:
        before = self._breaks.get(reaction_id)
        pause = min(2 * before.pause, AWAY_MOST_S) if before else AWAY_FIRST_S
        until = asyncio.get_running_loop().time() + pause
        self._breaks[reaction_id] = _BrokerPause(until, pause)
        self._publishing[reaction_id].failed(BrokerUnavailable(reason), pause)

    def _abandon(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            log.warning(
                "task %s has not ended and stays claimed until its lease expires", task.task_id
            )
            self._release(task.task_id)

    async def _settle_all(self, group: asyncio.TaskGroup) -> None:
        pause = PAUSE_FIRST_S
        while True:
            await self._to_settle.wait()
            self._to_settle.clear()
            outcomes, self._outcomes = self._outcomes, []
            try:
                results = await self._source.settle_tasks(self._owner, outcomes)
            except (StoreUnavailable, Overloaded) as error:
                self._settling.failed(error, pause)
                self._outcomes = outcomes + self._outcomes
                self._to_settle.set()
                for outcome in outcomes:  # told again, it ends that claim too
                    self._claimed_again.pop(outcome.task_id, None)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MOST_S)
                continue
            pause = PAUSE_FIRST_S
            self._settling.succeeded()
            again: list[Task] = []
            for outcome, result in zip(outcomes, results, strict=True):
                self._settled(outcome, result)
                task = self._claimed_again.pop(outcome.task_id, None)
                if task is not None and result in TO_RETRY:  # else that claim ended with it
                    again.append(task)
            self._start_again(again, group)
            self._freed.set()

    def _start_again(self, again: Sequence[Task], group: asyncio.TaskGroup) -> None:
        if not self._is_draining:
            self._start(again, group)
        elif again:  # nobody waits for work that begins now
            for task in again:
                self._held[task.task_id] = _ClaimedTask(task, asyncio.get_running_loop().time())
                self._count(task.reaction_id, 1)
            self._settle([TaskOutcome(task.task_id, "given_back") for task in again])

    def _settled(self, outcome: TaskOutcome, result: TaskStatus | TapeError) -> None:
        held = self._held.get(outcome.task_id)
        if held is None:
            return
        if isinstance(result, TapeError):
            log.warning("task %s: %s", outcome.task_id, result)
        elif outcome.error:
            verb = "dead-lettered" if result is TaskStatus.DLQ else outcome.verdict
            repeated = held.task.last_error == clipped_error(outcome.error)
            block = TracebackBlock("" if repeated else outcome.traceback)
            log.warning("task %s %s: %s%s", outcome.task_id, verb, outcome.error, block)
        reaction_id = held.task.reaction_id
        metrics.TASK_ATTEMPTS.labels(reaction_id, _label(outcome, result)).inc()
        self._release(outcome.task_id)

    def _release(self, task_id: str) -> None:
        held = self._held.pop(task_id, None)
        if held is not None:
            self._count(held.task.reaction_id, -1)
            self._freed.set()

    async def _renew_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            self._log_stuck(loop.time())
            ids = list(self._held)
            if not ids:
                continue
            try:
                kept = await self._source.extend_tasks(self._owner, self._lease_ms, ids)
            except (StoreUnavailable, Overloaded) as error:
                self._renewing.failed(error)
                continue
            self._renewing.succeeded()
            for task_id in set(ids).difference(kept).intersection(self._held):
                block = last_block(within_s=self._settings.lease_s)
                why = f" while {block.what} blocked the event loop: {WHAT_TO_DO}" if block else ""
                log.warning("task %s is no longer held: its lease ran out%s", task_id, why)

    def _log_stuck(self, now: float) -> None:
        longest = dict.fromkeys(self._jobs, 0.0)
        for held in self._held.values():
            reaction_id, age = held.task.reaction_id, now - held.since
            longest[reaction_id] = max(longest[reaction_id], age)
            if now - held.warned_at > self._settings.stuck_s:
                held.warned_at = now
                log.warning("task %s has been running for %.0f s", held.task.task_id, age)
        for reaction_id, age in longest.items():
            metrics.DISPATCHER_LONGEST_RUNNING.labels(reaction_id).set(age)

    async def _drain(self) -> None:
        if self._working:
            log.info("finishing %d tasks", len(self._held))
            await asyncio.wait(self._working, timeout=self._settings.grace_s)
        self._is_draining = True
        for working in tuple(self._working):
            working.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while self._held:
                    self._freed.clear()
                    await self._freed.wait()
        for task_id in tuple(self._held):
            log.warning(
                "task %s could not be settled and stays claimed until its lease expires", task_id
            )
            self._release(task_id)


class _BrokerPause(NamedTuple):
    until: float
    pause: float


def _failed(tasks: Sequence[Task], error: BaseException) -> list[TaskOutcome]:
    return [TaskOutcome(task.task_id, "failed", described(error)) for task in tasks]


def _observe_wait(tasks: Sequence[Task]) -> None:
    now = time.time()
    wait = metrics.TASK_WAIT.labels(tasks[0].reaction_id)
    for task in tasks:
        wait.observe(max(0.0, now - task.entry.ts_ms / 1000))


def _label(outcome: TaskOutcome, result: TaskStatus | TapeError) -> AttemptOutcome:
    if isinstance(result, TapeError):
        return AttemptOutcome.LOST
    match result:
        case TaskStatus.DONE:
            return AttemptOutcome.DONE
        case TaskStatus.DLQ:
            return AttemptOutcome.DEAD_LETTERED
        case TaskStatus.FAILED:
            return AttemptOutcome.FAILED
        case TaskStatus.PENDING | TaskStatus.CLAIMED:
            return (
                AttemptOutcome.RELEASED
                if outcome.verdict == "given_back"
                else AttemptOutcome.RETRIED
            )


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _first(
    waits: Iterable[Awaitable[Any]], stopping: asyncio.Task[None], timeout_s: float
) -> None:
    """Until one of them is done, or for so long; they are given up, `stopping` is not."""
    futures = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(
            (*futures, stopping), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        pending = [future for future in futures if not future.done()]
        for future in pending:
            future.cancel()
        if pending:
            await asyncio.gather(*pending, return_exceptions=True)
