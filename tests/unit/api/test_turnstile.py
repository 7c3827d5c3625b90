"""Streams that all have something to send leave room between their messages."""

import asyncio
import time

from tape.api.turnstile import AT_ONCE, LEAST, PAUSE_S, Turnstile

SMALL_AT_ONCE = AT_ONCE // LEAST


async def passes(turnstile: Turnstile, name: int, passed: list[int], size: int = 1) -> None:
    await turnstile.through(size)
    passed.append(name)


async def test_as_many_as_may_go_at_once_do_not_wait() -> None:
    turnstile = Turnstile()
    passed: list[int] = []
    for turn in range(1, 4):
        going = [asyncio.create_task(passes(turnstile, n, passed)) for n in range(SMALL_AT_ONCE)]
        await asyncio.sleep(0)
        assert len(passed) == turn * SMALL_AT_ONCE
        await asyncio.gather(*going)


async def test_others_have_a_moment_between_them_and_all_go_in_order() -> None:
    turnstile, passed = Turnstile(), list[int]()
    count = 4 * SMALL_AT_ONCE
    started = time.monotonic()
    going = [asyncio.create_task(passes(turnstile, n, passed)) for n in range(count)]
    await asyncio.sleep(0)
    assert passed == list(range(SMALL_AT_ONCE))
    await asyncio.gather(*going)
    assert passed == list(range(count))
    assert time.monotonic() - started >= 3 * PAUSE_S / 2  # a timer may be early by half


async def test_a_large_message_goes_alone() -> None:
    turnstile, passed = Turnstile(), list[int]()
    going = [asyncio.create_task(passes(turnstile, n, passed, 10 * AT_ONCE)) for n in range(3)]
    await asyncio.sleep(0)
    assert passed == [0]
    await asyncio.gather(*going)
    assert passed == [0, 1, 2]


async def test_whoever_leaves_takes_no_place() -> None:
    turnstile, passed = Turnstile(), list[int]()
    going = [asyncio.create_task(passes(turnstile, n, passed, AT_ONCE)) for n in range(4)]
    await asyncio.sleep(0)
    going[1].cancel()
    going[2].cancel()
    await asyncio.gather(*going, return_exceptions=True)
    assert passed == [0, 3]
    await asyncio.wait_for(turnstile.through(1), 1)
