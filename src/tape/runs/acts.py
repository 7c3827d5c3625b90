"""Acts under way: an effect that was begun is carried to its end, whatever becomes of its caller.

A branch of an app may be cancelled because another one failed or waits. What it has begun may have
happened all the same, so it goes on by itself, and its run does not end or wait before it has.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Acts:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def carry(self, act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """What the act returns or raises."""
        done = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(_carried(act, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _task: done.cancel())  # it may be cut off before it begins
        return await done

    @property
    def has_others(self) -> bool:
        """Whether any are under way besides the one that asks, if it is one."""
        return bool(self._tasks - {asyncio.current_task()})

    async def settled(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def stop(self) -> None:
        """Cut them off: the run is another's, or this process ends."""
        for task in self._tasks:
            task.cancel()


async def _carried(
    act: Callable[[], Coroutine[Any, Any, Any]], done: "asyncio.Future[Any]"
) -> None:
    """Tell what the act came to, if its caller is still there."""
    try:
        result = await act()
    except asyncio.CancelledError:
        done.cancel()
    except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(result)
