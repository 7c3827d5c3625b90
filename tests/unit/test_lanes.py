"""Items in lanes: of any kind, with results of any kind, each beside its item."""

import asyncio
from collections.abc import Sequence

import pytest

from tape.ports.lanes import run_in_lanes


async def test_the_results_are_in_the_order_of_the_items() -> None:
    lanes: list[list[int]] = []

    async def run_lane(lane: Sequence[int]) -> list[str]:
        lanes.append([*lane])
        for _ in range(10 - lane[0]):  # the first lane ends last
            await asyncio.sleep(0)
        return [f"<{item}>" for item in lane]

    numbers = [*range(7)]
    results = await run_in_lanes(numbers, lambda item: str(item % 3), run_lane, at_once=3)
    assert results == [f"<{item}>" for item in numbers]
    assert lanes == [[0, 3, 6], [1, 4], [2, 5]]


async def test_nothing_is_run_for_nothing() -> None:
    async def run_lane(_lane: Sequence[int]) -> list[int]:
        raise AssertionError

    assert await run_in_lanes([], str, run_lane, at_once=3) == []


async def test_a_lane_that_forgets_an_item_is_found_out() -> None:
    async def run_lane(lane: Sequence[int]) -> list[int]:
        return [*lane[1:]]

    with pytest.raises(ValueError, match="zip"):
        await run_in_lanes([1, 2], str, run_lane, at_once=1)
