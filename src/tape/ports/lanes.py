"""Many items at once, yet one after the other within a key.

Each key is a lane. What is done with a lane is given its items together, in their order, and does
them one after the other; lanes run side by side, up to a bound.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def run_in_lanes(
    items: Sequence[Item],
    key_of: Callable[[Item], str],
    run_lane: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
    *,
    at_once: int,
) -> list[Result]:
    """The result of each item, in the order of the items. `run_lane` returns one for each of its
    items; what it raises ends the other lanes and is raised here."""
    lanes: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        lanes.setdefault(key_of(item), []).append(index)
    results: dict[int, Result] = {}
    waiting = iter(lanes.values())

    async def work() -> None:
        for lane in waiting:
            found = await run_lane([items[index] for index in lane])
            results.update(zip(lane, found, strict=True))

    workers = [asyncio.ensure_future(work()) for _ in range(min(at_once, len(lanes)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
    return [results[index] for index in range(len(items))]
