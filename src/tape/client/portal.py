"""An event loop on a thread of its own, for callers that have none.

The thread holds nothing of the client it serves, so a client that is dropped can be collected, and
its loop ends then. A forked child has no such thread: whoever calls there is told so.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from tape.errors import Closed

T = TypeVar("T")

EXIT_S = 2.0


class Portal:
    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._at_end: Callable[[], Coroutine[Any, Any, None]] | None = None
        ready: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(
            target=self._serve, args=(ready,), name="tape-client", daemon=True
        )
        self._thread.start()
        self._loop = ready.result()

    def at_end(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """What the loop does last, as well as it can."""
        self._at_end = work

    def submit(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        if self._pid != os.getpid():
            raise Closed("this client belongs to the parent process: connect again after a fork")
        # Under the lock: whatever is submitted is on the loop before it is told to stop, so it is
        # either done or cancelled, and its caller is never left waiting.
        with self._lock:
            if self._closed:
                raise Closed
            return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `work` on the loop; an interrupt here cancels it there.

        It runs in a copy of the caller's context: the caller's current span is its own.
        """
        future = self.submit(work)
        try:
            return future.result()
        except CancelledError:
            raise Closed from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what runs, do what is to be done last, end the thread."""
        if self._begin_end():
            self._thread.join()

    def abandon(self) -> None:
        """The same without waiting long: for a client that was dropped or outlived the program."""
        if self._begin_end() and threading.current_thread() is not self._thread:
            self._thread.join(EXIT_S)

    def _begin_end(self) -> bool:
        if self._pid != os.getpid():
            return False
        with self._lock:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._stop.set)
        return True

    def _serve(self, ready: "Future[asyncio.AbstractEventLoop]") -> None:
        # At the interpreter's end executors are gone already; what then fails has nobody to tell.
        with suppress(RuntimeError), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._main(ready))

    async def _main(self, ready: "Future[asyncio.AbstractEventLoop]") -> None:
        ready.set_result(asyncio.get_running_loop())
        await self._stop.wait()
        if self._at_end is not None:
            with suppress(Exception):
                await self._at_end()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop
