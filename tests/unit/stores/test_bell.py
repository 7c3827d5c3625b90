"""The bell wakes everyone who waits, forgets nobody who was busy, and lets go when it is closed."""

import asyncio

import pytest

from tape.errors import Closed
from tape.stores.bell import Bell

LONG_S = 60.0


async def test_a_ring_wakes_everyone_who_waits() -> None:
    bell = Bell()
    waiting = [asyncio.create_task(bell.wait(0, LONG_S)) for _ in range(3)]
    await asyncio.sleep(0)
    bell.ring()
    assert await asyncio.gather(*waiting) == [1, 1, 1]


async def test_a_ring_before_the_wait_is_heard_at_once() -> None:
    bell = Bell()
    heard = bell.count
    bell.ring()
    bell.ring()
    assert await bell.wait(heard, LONG_S) == 2


async def test_without_a_ring_it_waits_no_longer_than_asked() -> None:
    bell = Bell()
    assert await bell.wait(0, 0.01) == 0
    assert await bell.wait(0, 0) == 0
    assert await bell.wait(0, -1) == 0


async def test_closing_lets_everyone_go() -> None:
    bell = Bell()
    waiting = asyncio.create_task(bell.wait(0, LONG_S))
    await asyncio.sleep(0)
    bell.close()
    with pytest.raises(Closed):
        await waiting
    with pytest.raises(Closed):
        await bell.wait(0, LONG_S)


async def test_one_who_gave_up_waiting_is_forgotten() -> None:
    bell = Bell()
    waiting = asyncio.create_task(bell.wait(0, LONG_S))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not bell._waiters
    bell.ring()
    assert bell.count == 1
