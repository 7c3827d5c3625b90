"""Runs of apps that a test declares, as far as they go by themselves."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from tape.model.run import Run, RunStatus
from tape.runs.boundary import Hook, set_boundary_hook
from tape.runs.declare import App
from tape.testing.runs import AppKit

LEASE_S = 30.0

Intervene = Callable[[str, tuple[Any, ...]], Awaitable[None]]
"""Called with the name of an operation and what it was given."""


async def ran(kit: AppKit, app: App[Any], payload: Any = None) -> Run:
    """A new run, as far as it goes."""
    begun = await kit.start_run(app, payload)
    return await gone_on(kit, begun)


async def gone_on(kit: AppKit, run: Run) -> Run:
    found = await kit.settle(run.run_id)
    assert found is not None
    return found


async def signalled(kit: AppKit, run: Run, gate: str = "go", resolution: Any = None) -> Run:
    """The run once it has had that signal, as far as it goes."""
    assert await kit.send_signal(run.run_id, gate, resolution)
    return await gone_on(kit, run)


async def found(kit: AppKit, run: Run) -> Run:
    now = await kit.get_run(run.run_id)
    assert now is not None
    return now


def outcome(run: Run) -> Any:
    """What a run returned, or the words of its error."""
    detail = orjson.loads(run.outcome_json or "null")
    if run.status in (RunStatus.FAILED, RunStatus.STUCK):
        return f"{detail['type']}: {detail['message']}"
    return detail


@contextmanager
def at_boundaries(hook: Hook) -> Iterator[None]:
    set_boundary_hook(hook)
    try:
        yield
    finally:
        set_boundary_hook(None)


async def soon(event: asyncio.Event) -> None:
    """Wait for something that is bound to happen."""
    async with asyncio.timeout(20):
        await event.wait()


class Between:
    """Operations that a test can look at, hold up or fail, on their way to the store."""

    def __init__(self, operations: Any) -> None:
        self._operations = operations
        self.runs = _Watched(operations.runs, self)
        self.values = _Watched(operations.values, self)
        self.calls: list[str] = []
        self.before: Intervene = let_by
        self.after: Intervene = let_by

    def __getattr__(self, name: str) -> Any:
        return watching(getattr(self._operations, name), name, self)


class _Watched:
    def __init__(self, operations: Any, between: Between) -> None:
        self._operations = operations
        self._between = between

    def __getattr__(self, name: str) -> Any:
        return watching(getattr(self._operations, name), name, self._between)


def watching(operation: Any, name: str, between: Between) -> Any:
    if not inspect.iscoroutinefunction(operation):
        return operation

    async def watched(*args: Any, **kwargs: Any) -> Any:
        between.calls.append(name)
        await between.before(name, args)
        result = await operation(*args, **kwargs)
        await between.after(name, args)
        return result

    return watched


async def let_by(_name: str, _args: tuple[Any, ...]) -> None: ...
