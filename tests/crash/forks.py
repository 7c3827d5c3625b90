"""Where processes are forked from one that has imported everything, so that hundreds cost little.

There is one such process for all tests, hence one list; besides their own modules it names what
these import only when they are at work.
"""

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([
    "pytest", "tests.crash.errand_worker", "tests.crash.treasury_processes",
    "tests.crash.draining_processes",
    "tape.settings_yaml", "tape.stores.postgres.store", "anyio._backends._asyncio",
    "anyio.streams.tls", "httpcore", "uvicorn.lifespan.on", "uvicorn.loops.auto",
    "uvicorn.protocols.websockets.auto", "uvloop",
])  # fmt: skip
