"""Errand workers as processes: started, stopped, killed and started again."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Protocol

from tests.crash.errand_worker import Working, work
from tests.crash.forks import FORKS
from tests.crash.watching import await_true
from tests.integration.docs.pages import ROOT
from tests.servers.tape_worker import WorkerProcess

READY_S = 60.0
WRONG_CLOCK = Path(__file__).parent / "wrong_clock"


class Worker(Protocol):
    """A process of either kind."""

    @property
    def pid(self) -> int: ...

    def stop(self, timeout_s: float = 60.0) -> int:
        """Ask it to end; its exit code."""

    def kill(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class ForkedWorker:
    def __init__(self, given: Working) -> None:
        self._process: ForkServerProcess = FORKS.Process(target=work, args=(given,))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def stop(self, timeout_s: float = 60.0) -> int:
        self._process.terminate()
        code = self._ended(timeout_s)
        assert code is not None, "it does not end"
        return code

    def kill(self) -> None:
        self._process.kill()
        self._ended(None)

    def _ended(self, timeout_s: float | None) -> int | None:
        self._process.join(timeout_s)
        return self._process.exitcode

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def started(given: Working, clock_s: int = 0) -> Worker:
    """A worker whose clock is so many seconds ahead."""
    if not given.url.startswith("tape:") and not clock_s:
        return ForkedWorker(given)
    env = {}
    if clock_s:
        paths = (str(WRONG_CLOCK), os.environ.get("PYTHONPATH", ""))
        env = {"WRONG_BY_S": str(clock_s), "PYTHONPATH": os.pathsep.join(paths)}
    process = WorkerProcess(*given.command(), log=given.log, folder=ROOT, env=env)
    process.start()
    return process


@contextmanager
def working(given: Working, clock_s: int = 0) -> Iterator[Worker]:
    """A worker that has begun to work; killed at the end."""
    worker = started(given, clock_s)
    try:
        await_ready(given)
        yield worker
    finally:
        worker.kill()


def await_ready(given: Working) -> None:
    await_true(given.ready.exists, READY_S, lambda: f"not ready: {said(given)}")


def said(given: Working) -> str:
    """The last that workers in its folder had to say."""
    return given.log.read_text()[-2000:] if given.log.exists() else "nothing"
