"""Tape's side of the task benchmarks: one reaction, its backlog, and the dispatcher that drains it.

Everything runs in one process and on one event loop, with default settings: the bus, its matcher
and the dispatcher. A drain ends when every outcome is durable.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.workload import batches, opened, record_all
from tape.bus import Bus, Operations
from tape.model.reaction import HandlerKind, NewReaction
from tape.reactions.dispatch import Dispatcher, ReactionJob
from tape.reactions.work import CallHandler, Handler
from tape.settings import Settings

REACTION = "bench"
AT_ONCE = 100_000
LOOK_S = 0.02


async def drain(url: str, count: int) -> float:
    """Tasks/s with a handler that does nothing, from a backlog of so many to none."""
    async with opened(url) as bus:
        await backlog(bus, count)
        done, stop = 0, asyncio.Event()

        async def handle(_entry: dict[str, Any]) -> None:
            nonlocal done
            done += 1
            if done == count:
                stop.set()

        dispatcher = dispatcher_of(bus, handle)
        started = time.perf_counter()
        await dispatcher.run(stop)
        return count / (time.perf_counter() - started)


async def backlog(bus: Bus, count: int) -> None:
    """Events recorded and matched, one task of each."""
    await register(bus)
    await record_all(bus, batches(count // 1000, 1000), 2)
    bus.start_matching()
    while (await bus.reactions.list_reactions())[0].pending < count:  # noqa: ASYNC110 - nothing tells when
        await asyncio.sleep(LOOK_S)


async def register(bus: Operations) -> None:
    await bus.reactions.register_reaction(
        NewReaction(REACTION, "/tape/event/**", HandlerKind.TASK, max_concurrency=AT_ONCE)
    )


@asynccontextmanager
async def dispatching(source: Operations, handler: Handler) -> AsyncIterator[None]:
    """A dispatcher beside whatever is done meanwhile."""
    stop = asyncio.Event()
    running = asyncio.create_task(dispatcher_of(source, handler).run(stop))
    try:
        yield
    finally:
        stop.set()
        await running


def dispatcher_of(source: Operations, handler: Handler) -> Dispatcher:
    job = ReactionJob(CallHandler(handler, ThreadPoolExecutor(1)), AT_ONCE)
    return Dispatcher(source.tasks, {REACTION: job}, "bench", Settings().dispatcher)
