"""Predicates take turns: in slices, fair among many, with a share of the time, given up at once."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from tape.config import PredicateSettings
from tape.journal.pacer import Pacer, Turns

QUICK = PredicateSettings(slice_s=0.001, share=1.0)


def busy(step_s: float, steps: int, done: list[float] | None = None) -> Iterator[int]:
    """Work that takes so long for each entry, of one core."""
    for _ in range(steps):
        until = time.thread_time() + step_s
        while time.thread_time() < until:
            pass
        if done is not None:
            done.append(time.perf_counter())
        yield 1


@pytest.fixture
def pacer() -> Iterator[Pacer]:
    pacer = Pacer(QUICK)
    yield pacer
    pacer.close()


async def rounds_while(working: asyncio.Task[bool]) -> int:
    rounds = 0
    while not working.done():
        await asyncio.sleep(0)
        rounds += 1
    return rounds


@pytest.mark.parametrize("is_light", [True, False])
async def test_the_loop_goes_round_between_slices(pacer: Pacer, is_light: bool) -> None:
    working = asyncio.create_task(pacer.turns().run(busy(0.001, 20), is_light=is_light))
    assert await rounds_while(working) >= 10
    assert await working


async def test_what_is_short_is_done_at_once(pacer: Pacer) -> None:
    working = pacer.turns().run(busy(0.0, 10), is_light=True)
    with pytest.raises(StopIteration):
        working.send(None)  # it has come to its end without waiting for anything


async def test_what_may_take_long_runs_beside_the_loop(pacer: Pacer) -> None:
    threads: list[threading.Thread] = []
    turns = pacer.turns()
    await turns.call(lambda: threads.append(threading.current_thread()), is_light=False)
    await turns.call(lambda: threads.append(threading.current_thread()), is_light=True)
    assert [thread is threading.main_thread() for thread in threads] == [False, True]


async def test_one_slice_runs_at_a_time(pacer: Pacer) -> None:
    running, most = 0, 0

    def counted() -> Iterator[int]:
        nonlocal running, most
        for _ in range(5):
            running += 1
            most = max(most, running)
            deadline = time.perf_counter() + 0.001
            while time.perf_counter() < deadline:
                pass
            running -= 1
            yield 1

    await asyncio.gather(*(pacer.turns().run(counted(), is_light=n % 2 == 0) for n in range(6)))
    assert most == 1


async def test_who_has_had_little_does_not_wait_for_who_takes_much(pacer: Pacer) -> None:
    done: list[float] = []
    greedy = [
        asyncio.create_task(pacer.turns().run(busy(0.003, 1_000, done), is_light=True))
        for _ in range(20)
    ]
    for _ in range(30):
        await asyncio.sleep(0)
    before = len(done)
    assert await pacer.turns().run(busy(0.0006, 4), is_light=True)
    assert len(done) - before <= 20  # in turn with each of the others it would be more than forty
    for task in greedy:
        task.cancel()
    await asyncio.gather(*greedy, return_exceptions=True)


async def test_what_takes_long_gets_its_share_of_the_time() -> None:
    pacer = Pacer(PredicateSettings(slice_s=0.001, share=0.2))
    turns, began = pacer.turns(), time.perf_counter()
    await asyncio.gather(
        turns.run(busy(0.002, 15), is_light=True), pacer.turns().run(busy(0.002, 15), is_light=True)
    )
    took_s = time.perf_counter() - began
    assert took_s > (0.06 - 0.02 - 0.01) / 0.2  # but for the first credit, and the last slice


async def test_it_can_be_left_after_some_time_and_gone_on_with(pacer: Pacer) -> None:
    done: list[float] = []
    work, turns = busy(0.001, 20, done), pacer.turns()
    assert not await turns.run(work, 0.002, is_light=True)
    assert 0 < len(done) < 20
    assert await turns.run(work, is_light=True)
    assert len(done) == 20
    assert turns.used_s > 0


@pytest.mark.parametrize("is_light", [True, False])
async def test_what_nobody_wants_any_more_stops_and_others_go_on(
    pacer: Pacer, is_light: bool
) -> None:
    done: list[float] = []
    loop, began = asyncio.get_running_loop(), asyncio.Event()

    def endless() -> Iterator[int]:
        loop.call_soon_threadsafe(began.set)
        yield from busy(0.001, 10_000, done)

    given_up = [
        asyncio.create_task(pacer.turns().run(endless(), is_light=is_light)) for _ in range(4)
    ]
    await began.wait()
    for task in given_up:
        task.cancel()
    results = await asyncio.gather(*given_up, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    stopped = len(done)
    assert await pacer.turns().run(busy(0.001, 5), is_light=is_light)
    assert len(done) == stopped


async def test_an_error_is_passed_on_and_others_go_on(pacer: Pacer) -> None:
    turns: Turns = pacer.turns()

    def fail() -> None:
        raise ValueError("no luck")

    for is_light in (True, False):
        with pytest.raises(ValueError, match="no luck"):
            await turns.call(fail, is_light=is_light)
    assert await turns.run(busy(0.0, 3), is_light=True)
