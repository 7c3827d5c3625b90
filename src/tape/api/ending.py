"""Waiting that a server which stops does not wait for."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def unless_ending(
    ending: asyncio.Event, waiting: Coroutine[Any, Any, T], timeout_s: float | None = None
) -> T | None:
    """What it returns; None, and it is given up, if the time is up or the server stops first."""
    task = asyncio.create_task(waiting)
    end = asyncio.create_task(ending.wait())
    try:
        await asyncio.wait((task, end), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, end):
            each.cancel()
        await asyncio.gather(task, end, return_exceptions=True)
