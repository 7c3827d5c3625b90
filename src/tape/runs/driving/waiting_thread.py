"""The thread of a synchronous app while it waits for a step on the event loop.

A step may have to call a function of the app: the body of an effect, or what asks for a decision.
It calls that in the thread that waits for it, where the app expects it to be called.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from tape.errors import Closed, InvalidArgument
from tape.ports.user_code import as_failure
from tape.runs.driving.unwinding import Abandoned

R = TypeVar("R")


def wait_for(
    step: Coroutine[Any, Any, R],
    loop: asyncio.AbstractEventLoop,
    thread: "WaitingThread | None" = None,
) -> R:
    """Take the step on the event loop; return what it returns. A step that calls functions here
    knows this thread.
    """
    if _is_running(loop):
        step.close()
        raise InvalidArgument(
            "a step of this app was called on the event loop, which would wait for itself: "
            "call it in the thread of the app"
        )
    awaited = _awaited(step)
    try:
        taken = asyncio.run_coroutine_threadsafe(awaited, loop)
        return taken.result() if thread is None else thread.execute_until(taken, loop)
    except CancelledError:
        raise Abandoned(Closed("this run was interrupted")) from None
    except RuntimeError:
        if not loop.is_closed():
            raise
        awaited.close()
        step.close()
        raise Abandoned(Closed("the event loop of this run has ended")) from None


class WaitingThread(Executor):
    """Executes what is submitted in the one thread that waits."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> "Future[R]":
        future: Future[R] = Future()
        self._calls.put(partial(_execute, future, partial(function, *args, **kwargs)))
        return future

    def execute_until(self, taken: "Future[R]", loop: asyncio.AbstractEventLoop) -> R:
        """Execute what a step on the loop submits, until it was taken; return what it returns."""
        taken.add_done_callback(lambda _taken: self._calls.put(None))
        while (call := self._calls.get()) is not None:
            call()
            if loop.is_closed():
                raise RuntimeError("nobody is left to end the step")
        return taken.result()


def _execute(future: "Future[R]", call: Callable[[], R]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as raised:  # noqa: BLE001 - it is the caller's, whatever it is
        future.set_exception(raised)
    else:
        future.set_result(result)


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether this is the thread of that event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def _awaited(step: Coroutine[Any, Any, R]) -> R:
    """Return what the step returns. What it raises must not end the loop, as these two would."""
    try:
        return await step
    except (SystemExit, KeyboardInterrupt) as raised:
        raise as_failure(raised) from raised
