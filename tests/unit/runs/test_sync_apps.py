"""Apps that are not asynchronous: the same steps in a thread, unwound and cut off like others."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

import tape
from tape.errors import (
    AckLost,
    BudgetExceeded,
    EffectFailed,
    GiveUp,
    InvalidArgument,
    VersionMismatch,
)
from tape.model.run import RunStatus
from tape.runs.declare import App, Apps, RetryPolicy, Spend
from tape.runs.driving.context import Context
from tape.runs.driving.sync_context import SyncContext
from tape.runs.driving.unwinding import Abandoned
from tape.runs.driving.waiting_thread import WaitingThread, wait_for
from tape.settings import ReactorsSettings, Settings
from tape.testing.runs import AppKit, app_kit, crashes
from tests.unit.runs.driven import found, gone_on, outcome, ran, signalled

ACTS: list[str] = []
EVERYTHING = Apps()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ACTS.clear()


@tape.effect(registry=EVERYTHING)
def pay(cents: int) -> int:
    ACTS.append(tape.idempotency_key())
    return cents


@tape.effect(registry=EVERYTHING)
async def post(text: str) -> str:
    ACTS.append(tape.idempotency_key())
    return text.upper()


@tape.app("small", registry=EVERYTHING)
def small(ctx: SyncContext, number: int) -> int:
    return pay(number) + 1


@tape.app("everything", registry=EVERYTHING)
def everything(ctx: SyncContext, cents: int) -> dict[str, Any]:
    """A step of every kind."""
    drawn = [str(ctx.now()), str(tape.uuid()), tape.random(), ctx.sample(lambda: (1, 2))]
    drawn.append(ctx.decide("model", {"q": cents}, lambda: {"answer": 1}))
    paid = [pay(cents), ctx.call(post, "a")]
    ctx.set_budget(usd=5)
    ctx.charge(usd=0.5)
    ctx.set_timer("mine", 900, kind="mine")
    cancelled = ctx.cancel_timer("mine")
    ctx.sleep(3)
    approved = ctx.gate("approve", {"cents": cents}, timeout_s=600)
    values = [ctx.set_value("ns", "k", 1), tape.get_value("ns", "k"), ctx.delete_value("ns", "k")]
    ctx.record("paid", {"cents": cents}, entity_type="order", entity_id="7")
    child = ctx.result(tape.start(small, 2))
    ctx.heartbeat()
    new = tape.patched("fees")
    return {"drawn": drawn, "got": [*paid, cancelled, approved, *values, child, new]}


GOT = [5, "A", True, {"by": "ada"}, 1, 1, True, 3, True]


async def test_the_same_steps(tmp_path: Path) -> None:
    async with app_kit(tmp_path, apps=EVERYTHING) as kit:
        run = await kit.start_run(everything, 5)
        await kit.send_signal(run.run_id, "approve", {"by": "ada"})
        ended = await gone_on(kit, run)
        assert outcome(ended)["got"] == GOT
        assert len(ACTS) == len(set(ACTS)) == 3
        journal = await kit.journal(run.run_id)
        assert journal.steps == [
            "decision recorded now",
            "decision recorded uuid",
            "decision recorded random",
            "decision recorded sample",
            "decision recorded model",
            "effect pending pay",
            "effect pending post",
            "timer set mine",
            "decision recorded cancel_timer/mine",
            "timer set sleep:1",
            "timer set gate:approve",
            "gate waiting approve",
            "value changed ns/k",
            "decision recorded value/ns/k",
            "value deleted ns/k",
            "event recorded paid",
            "decision recorded start/small",
            f"gate waiting run:{(await kit.list_runs(app_name='small'))[0].run_id}",
            "decision recorded patched/fees",
        ]


async def test_cut_off_everywhere(tmp_path: Path) -> None:
    places = []
    async for crash in crashes(
        tmp_path, everything, 5, apps=EVERYTHING, signals=[("approve", {"by": "ada"})]
    ):
        run = await crash.recovered()
        assert run.status == RunStatus.TERMINAL, (crash.boundary, outcome(run))
        assert outcome(run)["got"] == GOT, crash.boundary
        assert len(set(ACTS)) == 3, crash.boundary
        assert len(ACTS) <= 4, crash.boundary
        assert crash.journal.effects("pay") == ["confirmed"]
        assert len(crash.journal.steps) == 19
        ACTS.clear()
        places.append(crash.boundary)
    assert {"before act pay", "after act pay", "before act post"} <= set(places)
    assert len(places) > 40


async def test_what_it_asks_and_does_is_in_its_own_thread(kit: AppKit, apps: Apps) -> None:
    """So that as many apps as there are threads do not wait for a thread in vain."""

    @tape.effect(registry=apps)
    def act() -> int:
        return threading.get_ident()

    @tape.app("asks", registry=apps)
    def asks(ctx: SyncContext) -> list[int]:
        return [threading.get_ident(), act(), ctx.decide("m", None, threading.get_ident)]

    threads = set(outcome(await ran(kit, asks)))
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


async def test_many_at_once(tmp_path: Path, apps: Apps) -> None:
    """More than there are threads, each with a child, a question and a wait."""

    @tape.app("child", registry=apps)
    def child(ctx: SyncContext, number: int) -> int:
        return int(ctx.decide("m", number, lambda: number * 2))

    @tape.app("parent", registry=apps)
    def parent(ctx: SyncContext, number: int) -> int:
        ctx.sleep(1)
        return int(ctx.result(ctx.start(child, number))) + pay(1)

    settings = Settings(reactors=ReactorsSettings(runs=20, threads=2))
    async with app_kit(tmp_path, apps=apps, settings=settings) as kit:
        kit._threads = type(kit._threads)(2)
        runs = [await kit.start_run(parent, number) for number in range(30)]
        await kit.settle()
        ended = [outcome(await found(kit, run)) for run in runs]
    assert ended == [2 * number + 1 for number in range(30)]


@pytest.mark.parametrize("holding", ["exception", "everything", "finally"])
async def test_it_cannot_swallow_that_it_waits(kit: AppKit, apps: Apps, holding: str) -> None:
    @tape.app("holds", registry=apps)
    def holds(ctx: SyncContext) -> str:
        try:
            ctx.gate("go")
        except Exception:  # noqa: BLE001 - as an app might
            return "swallowed"
        except BaseException:
            if holding == "everything":
                return "swallowed"
            raise
        finally:
            if holding == "finally":
                pay(1)
        return "done"

    run = await ran(kit, holds)
    assert (run.status, run.waiting_on, ACTS) == (RunStatus.WAITING, "gate go", [])
    assert outcome(await signalled(kit, run)) == "done"


async def test_it_cannot_swallow_that_it_differs(kit: AppKit, apps: Apps) -> None:
    def old(ctx: SyncContext) -> None:
        pay(1)
        ctx.gate("go")

    def new(ctx: SyncContext) -> str:
        try:
            pay(2)
        except BaseException:  # noqa: BLE001 - as an app might
            return "swallowed"
        return ""

    apps.add_app(App("changes", old))
    run = await ran(kit, apps.apps["changes"])
    apps.apps["changes"] = App("changes", new)
    run = await signalled(kit, run)
    assert run.status == RunStatus.STUCK
    assert "the code does it with {'args': [2]" in outcome(run)


ERRORS = [
    StopIteration(7),
    SystemExit(3),
    KeyboardInterrupt(),
    CancelledError(),
    asyncio.CancelledError(),
    BaseException("own"),
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_errors_that_are_none_fail_their_run_and_nothing_else(
    kit: AppKit, apps: Apps, error: BaseException, colour: str
) -> None:
    @tape.app("async", registry=apps)
    async def waited(ctx: Context) -> None:
        raise error

    @tape.app("thread", registry=apps)
    def plain(ctx: SyncContext) -> None:
        raise error

    async with asyncio.timeout(20):
        run = await ran(kit, apps.apps[colour])
    assert run.status == RunStatus.FAILED
    assert type(error).__name__ in outcome(run)


@pytest.mark.parametrize("error", ERRORS)
async def test_errors_that_are_none_fail_an_effect_in_a_thread_and_nothing_else(
    kit: AppKit, apps: Apps, error: BaseException
) -> None:
    async def later() -> None:
        raise error

    def plainly() -> None:
        raise error

    @tape.effect(registry=apps)
    def plain() -> None:
        raise error

    @tape.effect(registry=apps)
    def awaited() -> Any:
        return later()

    @tape.effect(registry=apps)
    async def on_the_loop() -> None:
        raise error

    @tape.app("calls", registry=apps)
    def calls(ctx: SyncContext) -> list[str]:
        words = []
        steps: list[Callable[[], Any]] = [
            lambda: ctx.call(plain),
            lambda: ctx.call(awaited),
            lambda: ctx.call(on_the_loop),
            lambda: ctx.decide("m", None, plainly),
        ]
        for step in steps:
            with pytest.raises(EffectFailed, match=type(error).__name__) as failed:
                step()
            words.append(str(failed.value))
        return words

    async with asyncio.timeout(20):
        run = await ran(kit, calls)
    assert len(outcome(run)) == 4


async def test_what_an_effect_costs_may_not_end_the_process(kit: AppKit, apps: Apps) -> None:
    def never() -> Spend:
        raise SystemExit(3)

    @tape.effect(registry=apps, estimate=never)
    def dear() -> None: ...

    @tape.app("calls", registry=apps)
    def calls(ctx: SyncContext) -> None:
        ctx.call(dear)

    async with asyncio.timeout(20):
        run = await ran(kit, calls)
    assert outcome(run) == "RuntimeError: SystemExit(3)"


async def test_failures_and_refusals_are_the_same_in_a_thread(kit: AppKit, apps: Apps) -> None:
    seen: list[str] = []
    tried: list[str] = []

    @tape.effect(registry=apps, retry=RetryPolicy(attempts=3, first_s=0.001))
    def fails() -> None:
        tried.append(tape.idempotency_key())
        raise OSError("away")

    @tape.effect(registry=apps, retry=RetryPolicy(attempts=3))
    def gives_up() -> None:
        tried.append("gives up")
        raise GiveUp("never")

    @tape.effect(registry=apps, estimate=lambda: Spend(usd=2.0))
    def dear() -> None: ...

    def no_answer() -> None:
        raise OSError("overloaded")

    @tape.app("tries", registry=apps)
    def tries(ctx: SyncContext) -> None:
        @tape.effect(registry=apps)
        async def on_the_loop() -> None:
            ctx.now()

        ctx.set_budget(usd=1)
        steps: list[Callable[[], Any]] = [
            fails,
            gives_up,
            dear,
            lambda: ctx.decide("m", None, no_answer),
            lambda: ctx.set_value("ns", "k", 1, if_version=3),
            lambda: ctx.sleep(-1),
            lambda: ctx.result("nobody's"),
            lambda: ctx.call(on_the_loop),
        ]
        for step in steps:
            try:
                step()
            except (EffectFailed, BudgetExceeded, VersionMismatch, InvalidArgument) as error:
                seen.append(f"{type(error).__name__}: {error}"[:60])
        ctx.gate("go")

    run = await signalled(kit, await ran(kit, tries))
    assert run.status == RunStatus.TERMINAL
    assert seen[:8] == seen[8:]
    assert seen[:4] == [
        "EffectFailed: fails: OSError: away",
        "EffectFailed: gives_up: GiveUp: never",
        "BudgetExceeded: dear: 0 of 1 USD are spent, 2 more would exc",
        "EffectFailed: m: OSError: overloaded",
    ]
    assert seen[7] == "EffectFailed: on_the_loop: InvalidArgument: a step of this a"
    assert tried == [f"{run.run_id}/decision-0/fails/0"] * 3 + ["gives up"]


async def test_what_is_drawn_is_drawn_in_its_own_thread(kit: AppKit, apps: Apps) -> None:
    @tape.app("draws", registry=apps)
    def draws(ctx: SyncContext) -> bool:
        return ctx.sample(threading.get_ident) == threading.get_ident()

    @tape.app("draws in vain", registry=apps)
    def draws_in_vain(ctx: SyncContext) -> None:
        ctx.sample(ctx.now)

    assert outcome(await ran(kit, draws)) is True
    refused = outcome(await ran(kit, draws_in_vain))
    assert refused.startswith(
        "InvalidArgument: decision recorded now cannot be called in the draw 'sample'"
    )


async def test_an_acknowledgement_lost_in_a_thread(kit: AppKit, apps: Apps) -> None:
    @tape.effect(registry=apps, check=lambda _key, _request: tape.Observed("confirmed", "found"))
    def wire() -> str:
        ACTS.append("wire")
        raise AckLost("the line is dead")

    @tape.app("wires", registry=apps)
    def wires(ctx: SyncContext) -> str:
        return wire()

    assert outcome(await ran(kit, wires)) == "found"
    assert ACTS == ["wire"]


async def test_a_body_that_returns_something_to_be_awaited(kit: AppKit, apps: Apps) -> None:
    async def later() -> str:
        await asyncio.sleep(0)
        return "awaited"

    @tape.effect(registry=apps)
    def begins() -> Awaitable[str]:
        return later()

    @tape.app("thread", registry=apps)
    def plain(ctx: SyncContext) -> Any:
        return begins()

    @tape.app("async", registry=apps)
    async def waited(ctx: Context) -> Any:
        return await ctx.call(begins)

    for app in (plain, waited):
        assert outcome(await ran(kit, app)) == "awaited"


def test_a_thread_whose_event_loop_is_gone_is_unwound() -> None:
    loop = asyncio.new_event_loop()

    async def step() -> None: ...

    loop.close()
    with pytest.raises(Abandoned, match="event loop"):
        wait_for(step(), loop)


def test_a_thread_whose_event_loop_ends_during_a_call_is_unwound() -> None:
    loop, here = asyncio.new_event_loop(), WaitingThread()
    running = threading.Thread(target=loop.run_forever)
    running.start()

    def body() -> None:
        loop.call_soon_threadsafe(loop.stop)
        running.join()
        loop.close()

    async def step() -> None:
        here.submit(body)
        await asyncio.Event().wait()

    with pytest.raises(Abandoned, match="event loop"):
        wait_for(step(), loop, here)


def test_a_call_that_was_cancelled_in_time_is_not_executed() -> None:
    here, called = WaitingThread(), list[int]()

    async def step() -> None:
        is_cancelled = threading.Event()
        here.submit(is_cancelled.wait)  # or the thread may be at the call before it is cancelled
        assert here.submit(called.append, 1).cancel()
        is_cancelled.set()
        await asyncio.wrap_future(here.submit(called.append, 2))

    async def app() -> None:
        await asyncio.to_thread(wait_for, step(), asyncio.get_running_loop(), here)

    asyncio.run(app())
    assert called == [2]


async def test_a_thread_whose_step_is_cancelled_with_its_loop_is_unwound() -> None:
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()

    async def step() -> None:
        begun.set()
        await asyncio.Event().wait()

    waiting = asyncio.create_task(asyncio.to_thread(wait_for, step(), loop))
    await begun.wait()
    (stepping,) = [
        task
        for task in asyncio.all_tasks()
        if getattr(task.get_coro(), "__name__", "") == "_awaited"
    ]
    stepping.cancel()
    with pytest.raises(Abandoned, match="interrupted"):
        await waiting
