"""What a run has in threads: they cannot be cut off, only waited for."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from tape.runs.signals import Unwind


class Threads:
    def __init__(self) -> None:
        self._running: dict[asyncio.Future[Any], Future[Any]] = {}

    async def call(self, executor: Executor, function: Callable[[], Any]) -> Any:
        """What it returns or raises. It goes on if nobody waits for it any more."""
        submitted = executor.submit(_returned, function)
        future = asyncio.wrap_future(submitted)
        self._running[future] = submitted
        future.add_done_callback(self._ended)
        try:
            return await asyncio.shield(future)
        except Uncaught as uncaught:
            raise uncaught.unwind from None

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


class Uncaught(Exception):
    """Carries what unwinds an app out of its thread: a future does not like what is no error."""

    def __init__(self, unwind: Unwind) -> None:
        super().__init__()
        self.unwind = unwind


def _returned(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Unwind as unwind:
        raise Uncaught(unwind) from None
    except StopIteration as error:  # the one error that a future does not take
        raise RuntimeError(repr(error)) from error
