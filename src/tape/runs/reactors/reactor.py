"""A reactor: a loop that does a kind of work whenever there may be some.

It is woken by entries of the journal that may mean work, by its own idea of when the next is due,
and besides looks now and then, so that a wake-up that is lost costs a moment and no more. Any
number of them may run anywhere: each piece of work is taken by compare-and-set.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tape.errors import TapeError
from tape.settings import ReactorsSettings
from tape.telemetry.retrying import Retrying

log = logging.getLogger("tape.reactors")

Ring = Callable[[], None]
Listen = Callable[[str, Ring], Awaitable[None]]
"""Calls the ring for each entry that matches a pattern from now on, until it is cancelled."""


class Reactor(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def patterns(self) -> Sequence[str]:
        """Subjects that may mean work."""

    async def once(self) -> int:
        """Do what can be done now; how many pieces of work that was."""

    async def due_in_s(self) -> float | None:
        """When there will be more by itself, None if that is not known."""


async def react(
    reactor: Reactor, listen: Listen, settings: ReactorsSettings, stop: asyncio.Event
) -> None:
    """Until `stop` is set. What goes wrong is logged, and tried again later and later."""
    wake = asyncio.Event()
    listening = [asyncio.create_task(_keep_listening(listen, pattern, wake))
                 for pattern in reactor.patterns]  # fmt: skip
    stopping = asyncio.create_task(stop.wait())
    pause = settings.backoff_first_s
    retrying = Retrying(log, reactor.name)
    try:
        while not stop.is_set():
            wake.clear()
            try:
                wait_s = 0.0 if await reactor.once() else await _idle_s(reactor, settings)
                pause = settings.backoff_first_s
                retrying.succeeded()
            except TapeError as error:
                retrying.failed(error)
                wait_s, pause = jittered(pause), min(2 * pause, settings.backoff_most_s)
            if wait_s:
                await _wait_any(wake, stopping, wait_s)
    finally:
        for task in (*listening, stopping):
            task.cancel()
        await asyncio.gather(*listening, stopping, return_exceptions=True)


def jittered(pause_s: float) -> float:
    """Between half of it and all of it, so that many who back off do not come back together."""
    return pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - nothing is kept secret by it


async def _idle_s(reactor: Reactor, settings: ReactorsSettings) -> float:
    due = await reactor.due_in_s()
    return settings.poll_s if due is None else max(0.001, min(due, settings.poll_s))


async def _wait_any(wake: asyncio.Event, stopping: "asyncio.Task[bool]", wait_s: float) -> None:
    waking = asyncio.create_task(wake.wait())
    try:
        await asyncio.wait({waking, stopping}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waking.cancel()


async def _keep_listening(listen: Listen, pattern: str, wake: asyncio.Event) -> None:
    retrying = Retrying(log, f"listening to {pattern}")

    def ring() -> None:
        retrying.succeeded()
        wake.set()

    while True:
        try:
            await listen(pattern, ring)
        except TapeError as error:
            retrying.failed(error)
        await asyncio.sleep(1)
