"""Where processes are forked from one that has imported everything, so that hundreds cost little.

There is one such process for all tests, hence one list; besides their own modules it names what
these import only when they are at work.
"""

import os
import threading
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.popen_forkserver import Popen

_ASKING = threading.Lock()


class _AskedInTurn(Popen):
    """To start a process is to look after all others, too, and of two threads that ask for one exit
    code at once the second is told 255. So one asks at a time."""

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        if flag != os.WNOHANG:
            wait([self.sentinel])
        with _ASKING:
            return super().poll(os.WNOHANG)


class _ForkedProcess(ForkServerProcess):
    @staticmethod
    def _Popen(process_obj: ForkServerProcess) -> Popen:  # type: ignore[override]  # noqa: N802
        return _AskedInTurn(process_obj)


class _Forks(ForkServerContext):
    Process = _ForkedProcess


FORKS = _Forks()
FORKS.set_forkserver_preload([
    "pytest", "tests.crash.errand_worker", "tests.crash.treasury_processes",
    "tests.crash.draining_processes", "tests.crash.accepting_processes",
    "tests.crash.listening.listener_process", "tape.sources.nats", "tape.sources.kafka",
    "tape.settings.yaml_file", "tape.stores.postgres.store", "anyio._backends._asyncio",
    "anyio.streams.tls", "httpcore", "uvicorn.lifespan.on", "uvicorn.loops.auto",
    "uvicorn.protocols.websockets.auto", "uvloop",
])  # fmt: skip
