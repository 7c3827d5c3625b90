"""What a dispatcher does with a task: call a handler, or publish to a broker."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextvars import Context
from functools import partial
from typing import Any, Protocol

from tape.errors import BrokerError, BrokerUnavailable, GiveUp
from tape.journal.follow import envelope
from tape.model.task import Task, TaskOutcome
from tape.ports.broker import Broker, Outgoing
from tape.ports.user_code import as_failure, called
from tape.ports.user_traceback import traceback_of
from tape.telemetry.tracing import handling, is_tracing

Handler = Callable[[dict[str, Any]], Any]


class BrokerAway(Exception):
    """The broker cannot be reached; it is not the tasks' fault."""

    def __init__(self, outcomes: Sequence[TaskOutcome], reason: str) -> None:
        super().__init__(reason)
        self.outcomes = outcomes


class TaskWork(Protocol):
    """How the tasks of one reaction are done. `batch`: how many at a time."""

    @property
    def batch(self) -> int: ...

    @property
    def threaded(self) -> bool: ...

    async def do(self, tasks: Sequence[Task]) -> Sequence[TaskOutcome]:
        """What became of each. Raises Away if it is of no use to go on for now."""


def handler_envelope(task: Task) -> dict[str, Any]:
    """What a handler is given: what a predicate sees of the entry, and where the task stands."""
    entry = task.entry
    return {
        **envelope(entry, with_payload=True),
        "span_id": entry.span_id,
        "occurred_at_ms": entry.occurred_at_ms,
        "task_id": task.task_id,
        "reaction_id": task.reaction_id,
        "attempt": task.attempts,
    }


class CallHandler:
    """A handler of ours: asynchronous ones on the loop, others in a thread."""

    batch = 1

    def __init__(self, handler: Handler, executor: Executor) -> None:
        self._handler = handler
        self._qualname = getattr(handler, "__qualname__", type(handler).__name__)
        self._name = f"react {self._qualname}"
        self._executor = executor
        self.threaded = not inspect.iscoroutinefunction(handler)

    async def do(self, tasks: Sequence[Task]) -> Sequence[TaskOutcome]:
        return [await self._one(task) for task in tasks]

    async def _one(self, task: Task) -> TaskOutcome:
        entry, task_id = task.entry, task.task_id
        if not entry.event_id:
            return TaskOutcome(task_id, "refused", "the entry that made this task is gone")
        if working := asyncio.current_task():
            working.set_name(f"handler {self._qualname} of task {task_id}")
        try:
            if is_tracing(entry.trace_id):
                facts = {"tape.task_id": task_id, "tape.subject": entry.subject}
                parent_id = entry.span_id or entry.parent_span_id
                with handling(self._name, entry.trace_id, parent_id, facts) as context:
                    await self._call(task, context)
            else:
                await self._call(task, None)
        except GiveUp as error:
            return TaskOutcome(task_id, "refused", described(error), traceback_of(error))
        except BaseException as raised:  # noqa: BLE001 - whatever a handler raises fails its task
            failure = as_failure(raised)
            return TaskOutcome(task_id, "failed", described(failure), traceback_of(failure))
        return TaskOutcome(task_id)

    async def _call(self, task: Task, context: Context | None) -> None:
        if not self.threaded:
            await self._handler(handler_envelope(task))
            return
        call = partial(called, self._handler, handler_envelope(task))
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(
            self._executor, call if context is None else partial(context.run, call)
        )
        if inspect.isawaitable(result):
            await result


class PublishTasks:
    """To a broker, many at a time, each done when the broker has acknowledged it."""

    threaded = False

    def __init__(self, broker: Broker, batch: int = 200) -> None:
        self._broker = broker
        self._turn = asyncio.Lock()
        self.batch = batch

    async def do(self, tasks: Sequence[Task]) -> Sequence[TaskOutcome]:
        messages = [
            Outgoing(
                task.entry,
                task.task_id,
                task.entry.run_id or task.entry.subject,
                # One that was given back may have reached the broker all the same.
                max(task.attempts, 2 if task.last_error else 1),
            )
            for task in tasks
        ]
        # The broker keeps the order of a key within a call, so one call comes after the other.
        async with self._turn:
            results = await self._broker.publish(messages)
        outcomes: list[TaskOutcome] = []
        away = ""
        refused: dict[str, BrokerError] = {}
        for task, message, error in zip(tasks, messages, results, strict=True):
            if error is None:
                outcomes.append(TaskOutcome(task.task_id))
            elif refused.get(message.ordering_key) is error:
                # Behind the one that was refused: it was not tried, and it may be taken.
                outcomes.append(TaskOutcome(task.task_id, "given_back"))
            elif isinstance(error, BrokerUnavailable):
                away = str(error)
                outcomes.append(TaskOutcome(task.task_id, "given_back", away))
            else:
                refused[message.ordering_key] = error
                outcomes.append(TaskOutcome(task.task_id, "refused", described(error)))
        if away:
            raise BrokerAway(outcomes, away)
        return outcomes


def described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
