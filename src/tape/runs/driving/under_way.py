"""What a run has under way in this process: effects in tasks, and calls in threads.

An effect that was begun is carried to its end, whatever becomes of its caller. A branch of an app
may be cancelled because another one failed or waits. What it has begun may have happened all the
same, so it goes on by itself, and its run does not end or wait before it has. Threads cannot be cut
off, only waited for.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextvars import copy_context
from functools import partial
from typing import Any

from tape.ports.user_code import called
from tape.runs.driving.unwinding import Unwind


class EffectTasks:
    def __init__(self) -> None:
        self._callers: dict[asyncio.Task[None], asyncio.Future[Any]] = {}

    async def carry(self, act: Callable[[], Coroutine[Any, Any, Any]], name: str) -> Any:
        """What the act returns or raises. The name is that of its task."""
        loop = asyncio.get_running_loop()
        caller = loop.create_future()
        task = loop.create_task(self._carried(act, caller), name=name)
        self._callers[task] = caller
        task.add_done_callback(self._ended)
        return await caller

    @property
    def has_others(self) -> bool:
        """Whether any are under way besides the one that asks, if it is one."""
        return bool(self._callers.keys() - {asyncio.current_task()})

    async def settled(self) -> None:
        while self._callers:
            await asyncio.wait(self._callers)

    def stop(self) -> None:
        """Cut them off: the run is another's, or this process ends."""
        for task in self._callers:
            task.cancel()

    async def _carried(
        self, act: Callable[[], Coroutine[Any, Any, Any]], caller: "asyncio.Future[Any]"
    ) -> None:
        """Tell what the act came to, if its caller is still there."""
        try:
            result = await act()
        except asyncio.CancelledError:
            caller.cancel()
        except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
            if not caller.done():
                caller.set_exception(error)
        else:
            if not caller.done():
                caller.set_result(result)
        if task := asyncio.current_task():
            self._callers.pop(task, None)  # nobody waits for what is only to return

    def _ended(self, task: asyncio.Task[None]) -> None:
        """It may have been cut off before it began."""
        if caller := self._callers.pop(task, None):
            caller.cancel()


class RunThreads:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._running: dict[asyncio.Future[Any], Future[Any]] = {}

    async def call(self, function: Callable[[], Any], executor: Executor | None = None) -> Any:
        """Call a function in a thread, of this executor if one is given. Return what it returns.
        It goes on if nobody waits for it any more.
        """
        call = partial(copy_context().run, function)
        submitted = (executor or self._executor).submit(called, call, let_by=(Unwind,))
        future = asyncio.wrap_future(submitted)
        self._running[future] = submitted
        future.add_done_callback(self._ended)
        return await asyncio.shield(future)

    async def ended(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    def stop(self) -> None:
        """Forget what has no thread yet."""
        for submitted in list(self._running.values()):
            submitted.cancel()

    def _ended(self, future: "asyncio.Future[Any]") -> None:
        del self._running[future]
        if not future.cancelled():
            future.exception()  # who wanted it may be gone
