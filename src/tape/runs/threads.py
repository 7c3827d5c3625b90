"""What a run has in threads: they cannot be cut off, only waited for."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from tape.ports.user_code import called
from tape.runs.signals import Unwind


class Threads:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._running: dict[asyncio.Future[Any], Future[Any]] = {}

    async def call(self, function: Callable[[], Any]) -> Any:
        """What it returns or raises. It goes on if nobody waits for it any more."""
        submitted = self._executor.submit(called, function, let_by=(Unwind,))
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
