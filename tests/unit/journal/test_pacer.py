"""Predicates take turns: in slices, fair among many, what costs with a share of the time."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tape.journal.pacer import PacedTurns, Pacer
from tape.settings import PredicateSettings

QUICK = PredicateSettings(slice_s=0.001, share=1.0)
RARE = PredicateSettings(slice_s=0.001, share=0.000_1)


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


async def test_what_is_short_is_done_at_once() -> None:
    pacer = Pacer(PredicateSettings(slice_s=60.0))
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
    done: list[list[float]] = [[] for _ in range(20)]
    greedy = [
        asyncio.create_task(pacer.turns().run(busy(0.003, 1_000, each), is_light=True))
        for each in done
    ]
    await until(lambda: all(done))
    before = sum(map(len, done))
    assert await pacer.turns().run(busy(0.0006, 4), is_light=True)
    others = sum(map(len, done)) - before
    assert others <= 10  # in turn with each of the others it would be more than forty
    await give_up(greedy)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - it is for the loop to go round
        await asyncio.sleep(0)


async def give_up(tasks: list[asyncio.Task[bool]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def in_debt(settings: PredicateSettings = RARE) -> Pacer:
    """There will be no credit for hours: what is held does not go on any more."""
    pacer = Pacer(settings)
    for turns in (pacer.turns(), pacer.service_turns()):
        turns.pay_for_reading(1, 2_000_000_000)
    return pacer


async def test_what_costs_nothing_does_not_wait_for_credit() -> None:
    pacer = in_debt()
    costly = [
        asyncio.create_task(pacer.turns("reader").run(busy(0.003, 1_000), is_light=is_light))
        for is_light in [True, False] * 30
    ]
    light, heavy = pacer.turns("reader"), pacer.turns("reader")
    assert await light.run(busy(0.0, 2_000), is_light=True)
    proving = asyncio.create_task(heavy.run(busy(0.0, 2_000), is_light=False))
    assert await pacer.service_turns().run(busy(0.0, 2_000), is_light=True)
    assert not proving.done(), "it may take long, and nobody has seen yet that it does not"
    assert not any(task.done() for task in costly)
    await give_up([*costly, proving])
    pacer.close()


async def test_what_may_take_long_is_free_once_it_has_shown_that_it_does_not(pacer: Pacer) -> None:
    turns = pacer.turns()
    assert await turns.run(busy(0.0, 10), is_light=False)
    assert turns.owes
    assert await turns.run(busy(0.0, 2_000), is_light=False)
    is_free = not turns.owes
    assert is_free
    pacer.turns().pay_for_reading(1, 2_000_000_000)
    assert await turns.run(busy(0.0, 10), is_light=False)
    assert not await turns.run(busy(0.02, 1), 0.0, is_light=False)
    assert turns.owes, "one that took long is enough"


async def test_services_have_a_share_of_their_own() -> None:
    pacer = Pacer(PredicateSettings(slice_s=0.001, share=0.5))
    done: list[float] = []
    clients = [
        asyncio.create_task(pacer.turns().run(busy(0.003, 10_000, done), is_light=True))
        for _ in range(30)
    ]
    await until(lambda: len(done) >= 60)
    before = len(done)
    assert await pacer.service_turns().run(busy(0.003, 20), is_light=True)
    assert len(done) - before < 60, "in turn with each of the others it would be 600"
    await give_up(clients)


async def test_those_of_one_client_share_what_another_has_alone() -> None:
    pacer = Pacer(PredicateSettings(slice_s=0.001, share=1.0))
    done: list[float] = []
    many = [
        asyncio.create_task(pacer.turns("many").run(busy(0.003, 10_000, done), is_light=True))
        for _ in range(30)
    ]
    await until(lambda: len(done) >= 60)
    before = len(done)
    assert await pacer.turns("one").run(busy(0.003, 20), is_light=True)
    assert len(done) - before < 60, "in turn with each of the others it would be 600"
    await give_up(many)


async def test_one_that_comes_first_is_never_held() -> None:
    pacer = in_debt()
    turns = pacer.service_turns(comes_first=True)
    assert await turns.run(busy(0.003, 5), is_light=False)
    assert turns.owes
    pacer.close()


async def test_it_stops_where_it_would_have_to_wait_for_credit() -> None:
    pacer = in_debt()
    done: list[float] = []
    work, turns = busy(0.004, 5, done), pacer.turns()
    assert not await turns.run_while_paid(work, is_light=True)
    assert len(done) == 1
    waiting = asyncio.create_task(turns.until_paid(is_light=True))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_call_is_paid_for_and_says_nothing_of_the_entries() -> None:
    pacer = Pacer(RARE)
    turns = pacer.turns()
    await turns.call(lambda: list(busy(0.03, 1)), is_light=True)
    assert not turns.owes
    held = asyncio.create_task(pacer.turns().call(lambda: None, is_light=False))
    assert await turns.run(busy(0.0, 20), is_light=True)
    assert not held.done()
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    pacer.close()


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
    turns: PacedTurns = pacer.turns()

    def fail() -> None:
        raise ValueError("no luck")

    for is_light in (True, False):
        with pytest.raises(ValueError, match="no luck"):
            await turns.call(fail, is_light=is_light)
    assert await turns.run(busy(0.0, 3), is_light=True)


async def test_what_other_processes_took_is_not_drawn() -> None:
    """On a busy machine a slice takes longer than its own time, and nobody here has lost that."""
    turns = Pacer(PredicateSettings(share=0.000_001)).turns()
    before = turns.side.credit_s
    turns._pay(used_s=0.01, took_s=1.0, entries=0)
    assert before - turns.side.credit_s == pytest.approx(0.02, rel=0.01)
