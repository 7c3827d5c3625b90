"""Streams that all have something to send leave room between their messages."""

import asyncio
import time
from collections.abc import AsyncGenerator

from tape.api.turnstile import AT_ONCE, LEAST, PAID, PAUSE_S, Turnstile, page_characters
from tape.journal.follow import Page
from tape.model.entry import Entry

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


async def test_a_large_message_is_made_up_for_by_pauses() -> None:
    turnstile, passed = Turnstile(), list[int]()
    started = time.monotonic()
    going = [asyncio.create_task(passes(turnstile, n, passed, 4 * PAID)) for n in range(2)]
    await asyncio.gather(*going)
    assert time.monotonic() - started >= 4 * PAUSE_S / 2  # a timer may be early by half


async def test_whoever_leaves_takes_no_place() -> None:
    turnstile, passed = Turnstile(), list[int]()
    going = [asyncio.create_task(passes(turnstile, n, passed, AT_ONCE)) for n in range(4)]
    await asyncio.sleep(0)
    going[1].cancel()
    going[2].cancel()
    await asyncio.gather(*going, return_exceptions=True)
    assert passed == [0, 3]
    await asyncio.wait_for(turnstile.through(1), 20)


async def pages_of(count: int, characters: int, read: list[int]) -> AsyncGenerator[Page, None]:
    for number in range(count):
        read.append(number)
        payload = "x" * characters
        blank = [1, "", 0, "event", "/tape", payload, 1, "", "", "", 0, *[""] * 6, 0, ""]
        entry = Entry._make(blank)
        yield Page([entry], number)


async def test_large_pages_are_read_in_turns() -> None:
    """Readers of one backlog come to the ends of their pages together."""
    turnstile, read = Turnstile(), list[int]()
    readers = [turnstile.reads(pages_of(2, AT_ONCE, read), page_characters) for _ in range(4)]
    for reader in readers:  # what the first page costs is not known
        assert (await anext(reader)).cursor == 0
    going = [asyncio.ensure_future(anext(reader)) for reader in readers]
    await asyncio.sleep(0)
    assert read.count(1) == 1
    assert [page.cursor for page in await asyncio.gather(*going)] == [1] * 4


async def test_small_pages_are_read_at_once() -> None:
    turnstile, read = Turnstile(), list[int]()
    small = [turnstile.reads(pages_of(2, 1, read), page_characters) for _ in range(4)]
    for reader in small:
        await anext(reader)
    going = [asyncio.ensure_future(anext(reader)) for reader in small]
    await asyncio.sleep(0)
    assert read.count(1) == 4
    await asyncio.gather(*going)
