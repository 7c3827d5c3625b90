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


class WaitingThread(Executor):
    """Waits in the current thread, once, and meanwhile executes there what is submitted."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> "Future[R]":
        future: Future[R] = Future()
        self._calls.put(partial(_execute, future, partial(function, *args, **kwargs)))
        return future

    def wait(self, step: Coroutine[Any, Any, R]) -> R:
        """Take the step on the event loop; return what it returns."""
        if _is_running(self._loop):
            step.close()
            raise InvalidArgument(
                "a step of this app was called on the event loop, which would wait for itself: "
                "call it in the thread of the app"
            )
        awaited = _awaited(step)
        try:
            return self._execute_until(asyncio.run_coroutine_threadsafe(awaited, self._loop))
        except CancelledError:
            raise Abandoned(Closed("this run was interrupted")) from None
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            awaited.close()
            step.close()
            raise Abandoned(Closed("the event loop of this run has ended")) from None

    def _execute_until(self, taken: "Future[R]") -> R:
        taken.add_done_callback(lambda _taken: self._calls.put(None))
        while (call := self._calls.get()) is not None:
            call()
            if self._loop.is_closed():  # nobody is left to end the step
                raise RuntimeError
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
