"""Threads for handlers that are not asynchronous.

Unlike those of `concurrent.futures`, they do not keep a process from ending: a handler that never
returns costs its task's lease, not an operator's patience.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class _Submitted(NamedTuple):
    future: Future[Any]
    function: Callable[[], Any]


class HandlerThreads(Executor):
    """At most `most` of them, started when they are needed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: SimpleQueue[_Submitted | None] = SimpleQueue()
        self._lock = Lock()
        self._threads = 0
        self._unfinished = 0

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        future: Future[T] = Future()
        self._jobs.put(_Submitted(future, lambda: function(*args, **kwargs)))
        with self._lock:
            self._unfinished += 1
            if self._threads < min(self._unfinished, self._most):
                self._threads += 1
                name = f"tape-handler-{self._threads}"
                Thread(target=self._serve, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Let idle threads end. Never waits."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.future.set_running_or_notify_cancel():
                try:
                    result = job.function()
                except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
                    job.future.set_exception(error)
                else:
                    job.future.set_result(result)
            with self._lock:
                self._unfinished -= 1
