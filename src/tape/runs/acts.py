"""Acts under way: an effect that was begun is carried to its end, whatever becomes of its caller.

A branch of an app may be cancelled because another one failed or waits. What it has begun may have
happened all the same, so it goes on by itself, and its run does not end or wait before it has.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Acts:
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
