"""Replay: what was drawn stays as it was drawn, and code that does something else is found out."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tape
from tape.errors import EffectFailed, InvalidArgument, TooLarge, VersionMismatch
from tape.model.run import Run, RunStatus
from tape.runs.declare import App, Apps
from tape.runs.driving.context import Context
from tape.testing.runs import AppKit, crashes
from tests.unit.runs.driven import gone_on, outcome, ran, signalled

Code = Callable[[Context], Awaitable[Any]]

DONE: list[Any] = []
EFFECTS = Apps()


@tape.effect(registry=EFFECTS)
async def pay(cents: int) -> int:
    DONE.append(cents)
    return cents


@tape.effect(registry=EFFECTS)
async def post(text: str) -> str:
    DONE.append(text)
    return text


@tape.effect(registry=EFFECTS)
async def fails() -> None:
    raise OSError("no")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    DONE.clear()


async def changed(
    kit: AppKit, apps: Apps, old: Code, new: Code, versions: tuple[str, str] = ("", "")
) -> Run:
    """A run that was begun by the old code and waits at `go`, gone on with by the new."""
    app = App("changed", old, versions[0])
    apps.add_app(app)
    run = await ran(kit, app)
    assert (run.status, run.waiting_on) == (RunStatus.WAITING, "gate go")
    apps.apps["changed"] = App("changed", new, versions[1])
    return await signalled(kit, run)


async def test_what_is_drawn_stays_as_it_was_drawn(kit: AppKit, apps: Apps) -> None:
    passes: list[list[Any]] = []
    asked: list[str] = []

    async def ask() -> dict[str, Any]:
        asked.append("model")
        return {"answer": (1, 2)}

    def draw() -> list[int]:
        asked.append("sample")
        return [time.monotonic_ns()]

    @tape.app("draws", registry=apps)
    async def draws(ctx: Context) -> None:
        drawn: list[Any] = [tape.now(), tape.uuid(), tape.random(), ctx.random()]
        drawn += [tape.sample(draw), await ctx.decide("m", {"q": 1}, ask, rationale="so")]
        passes.append(drawn)
        await ctx.gate("go")

    run = await ran(kit, draws)
    kit.clock.advance(60)
    assert (await signalled(kit, run)).status == RunStatus.TERMINAL
    assert passes[0] == passes[1]
    assert passes[0][-1] == {"answer": [1, 2]}
    assert passes[0][2] != passes[0][3]
    assert passes[0][0].tzinfo is not None
    assert asked == ["sample", "model"]


async def paid(ctx: Context) -> None:
    await pay(1)
    await ctx.gate("go")


async def paid_more(ctx: Context) -> None:
    await pay(2)
    await ctx.gate("go")


async def posted(ctx: Context) -> None:
    await post("x")
    await ctx.gate("go")


async def drawn(ctx: Context) -> None:
    ctx.random()
    await ctx.gate("go")


async def slept(ctx: Context) -> None:
    await ctx.sleep(1)
    await ctx.gate("go")


async def elsewhere(ctx: Context) -> None:
    await pay(1)
    await ctx.gate("elsewhere")


async def ends(ctx: Context) -> None:
    await pay(1)


async def raises(ctx: Context) -> None:
    await pay(1)
    raise OSError("out")


async def longer(ctx: Context) -> None:
    await pay(1)
    await post("one more")
    await ctx.gate("go")


async def asked(ctx: Context) -> None:
    await ctx.decide("m", {"q": 1}, nothing)
    await ctx.gate("go")


async def asked_otherwise(ctx: Context) -> None:
    await ctx.decide("m", {"q": 2}, nothing)
    await ctx.gate("go")


async def in_a_branch(ctx: Context) -> None:
    await asyncio.gather(pay(1), post("y"))
    await ctx.gate("go")


async def in_a_group(ctx: Context) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.call(pay, 1))
        group.create_task(ctx.call(post, "y"))
    await ctx.gate("go")


async def nothing() -> None:
    return None


JOURNAL = "the journal has"
DIVERGED = [
    (paid, posted, f"step 1: {JOURNAL} effect pending pay (seq 3), the code does effect pending"),
    (
        paid,
        paid_more,
        "step 1: effect pending pay (seq 3) was done with {'args': [1], 'kwargs': {}",
    ),
    (paid, paid_more, "the code does it with {'args': [2], 'kwargs': {}"),
    (paid, drawn, f"{JOURNAL} effect pending pay (seq 3), the code does decision recorded random"),
    (drawn, slept, f"{JOURNAL} decision recorded random (seq 3), the code does timer set sleep:1"),
    (paid, elsewhere, f"step 2: {JOURNAL} gate waiting go (seq 5), the code does gate waiting els"),
    (paid, ends, "the code ends after step 1, the journal goes on with gate waiting go (seq 5)"),
    (paid, raises, "the code raises OSError (out) after step 1, the journal goes on with gate"),
    (paid, longer, f"step 2: {JOURNAL} gate waiting go (seq 5), the code does effect pending post"),
    (asked, asked_otherwise, "was done with {'q': 1}, the code does it with {'q': 2}"),
    (paid, in_a_branch, f"{JOURNAL} gate waiting go (seq 5), the code does effect pending post"),
    (paid, in_a_group, f"{JOURNAL} gate waiting go (seq 5), the code does effect pending post"),
]


@pytest.mark.parametrize(("old", "new", "words"), DIVERGED, ids=[c[1].__name__ for c in DIVERGED])
async def test_code_that_does_something_else_is_stuck_with_what_differed(
    kit: AppKit, apps: Apps, old: Code, new: Code, words: str
) -> None:
    run = await changed(kit, apps, old, new)
    assert run.status == RunStatus.STUCK
    assert words in outcome(run)
    assert "version" not in outcome(run)
    assert len(DONE) <= 1
    apps.apps["changed"] = App("changed", old)
    await kit.resume_run(run.run_id)
    assert (await gone_on(kit, run)).status == RunStatus.TERMINAL
    assert len(DONE) <= 1


async def test_a_change_of_version_is_named(kit: AppKit, apps: Apps) -> None:
    run = await changed(kit, apps, paid, posted, ("1", "2"))
    assert outcome(run).endswith("pending post (started by version '1', this is '2')")


async def except_exception(ctx: Context) -> str:
    try:
        await post("x")
    except Exception:  # noqa: BLE001 - as an app might
        return "swallowed"
    return ""


async def bare_except(ctx: Context) -> str:
    with suppress(BaseException):
        await post("x")
    return "swallowed"


async def gathered(ctx: Context) -> str:
    await asyncio.gather(post("x"), return_exceptions=True)
    return "swallowed"


async def another_error(ctx: Context) -> None:
    try:
        await post("x")
    finally:
        raise LookupError("in the way")


async def one_more_step(ctx: Context) -> None:
    try:
        await post("x")
    finally:
        await pay(1)


HOLDING = [except_exception, bare_except, gathered, another_error, one_more_step]


@pytest.mark.parametrize("code", HOLDING)
async def test_an_app_cannot_swallow_that_it_differs(kit: AppKit, apps: Apps, code: Code) -> None:
    run = await changed(kit, apps, paid, code)
    assert run.status == RunStatus.STUCK
    assert "the code does effect pending post" in outcome(run)
    assert DONE == [1]


@pytest.mark.parametrize("holding", ["gathered", "bare", "finally", "another_error"])
async def test_an_app_cannot_swallow_that_it_waits(kit: AppKit, apps: Apps, holding: str) -> None:
    @tape.app("holds", registry=apps)
    async def holds(ctx: Context) -> Any:
        if holding == "gathered":
            await asyncio.gather(ctx.gate("go"), return_exceptions=True)
        elif holding == "bare":
            with suppress(BaseException):
                await ctx.gate("go")
        else:
            try:
                await ctx.gate("go")
            finally:
                if holding == "finally":
                    await pay(1)
                elif not ctx.is_replaying and len(DONE) == 0:
                    raise LookupError("in the way")
        return "done"

    run = await ran(kit, holds)
    assert (run.status, run.waiting_on) == (RunStatus.WAITING, "gate go")
    assert DONE == []
    if holding != "another_error":
        run = await signalled(kit, run)
        assert outcome(run) == "done"
        assert ([1] if holding == "finally" else []) == DONE


async def test_a_run_begun_by_old_code_keeps_to_its_way(kit: AppKit, apps: Apps) -> None:
    async def old(ctx: Context) -> Any:
        await pay(1)
        await ctx.gate("go")
        return await pay(3)

    async def new(ctx: Context) -> Any:
        if tape.patched("dearer"):
            await pay(2)
        else:
            await pay(1)
        await ctx.gate("go")
        return await pay(30 if ctx.patched("dearer") else 3)

    run = await changed(kit, apps, old, new, ("1", "2"))
    assert (run.status, outcome(run)) == (RunStatus.TERMINAL, 3)
    assert DONE == [1, 3]
    DONE.clear()
    fresh = await ran(kit, apps.apps["changed"])
    assert (await kit.journal(run.run_id)).steps == [
        "effect pending pay",
        "gate waiting go",
        "effect pending pay",
    ]
    fresh = await signalled(kit, fresh)
    assert (fresh.status, outcome(fresh)) == (RunStatus.TERMINAL, 30)
    assert DONE == [2, 30]
    assert (await kit.journal(fresh.run_id)).steps[0] == "decision recorded patched/dearer"


async def test_a_run_that_was_not_there_yet_takes_the_new_way_and_keeps_to_it(
    kit: AppKit, apps: Apps
) -> None:
    async def old(ctx: Context) -> Any:
        await ctx.gate("go")
        return await pay(1)

    async def new(ctx: Context) -> Any:
        await ctx.gate("go")
        if ctx.patched("post"):
            await post("x")
        await ctx.gate("again")
        return ctx.patched("post")

    run = await changed(kit, apps, old, new)
    assert run.waiting_on == "gate again"
    run = await signalled(kit, run, "again")
    assert outcome(run) is True
    assert DONE == ["x"]


async def test_single_steps_may_be_done_at_once(kit: AppKit, apps: Apps) -> None:
    """Whichever is done first: they are recorded in the order in which they are begun."""
    order: list[int] = []
    done = [asyncio.Event() for _ in range(4)]
    done[3].set()

    @tape.effect(registry=apps)
    async def pay(number: int) -> int:
        await done[number].wait()
        order.append(number)
        if number:
            done[number - 1].set()
        return number

    @tape.app("gathers", registry=apps)
    async def gathers(ctx: Context) -> Any:
        paid = await asyncio.gather(*(pay(number) for number in range(4)))
        await ctx.gate("go")
        return paid

    run = await signalled(kit, await ran(kit, gathers))
    assert outcome(run) == [0, 1, 2, 3]
    assert order == [3, 2, 1, 0]


async def test_decisions_are_asked_for_at_once_and_recorded_in_order(
    kit: AppKit, apps: Apps
) -> None:
    asked: list[str] = []
    second, third = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        await third.wait()
        asked.append("slow")
        return "slow"

    async def fast() -> str:
        asked.append("fast")
        second.set()
        return "fast"

    async def failing() -> None:
        await second.wait()
        third.set()
        raise OSError("no")

    @tape.app("asks", registry=apps)
    async def asks(ctx: Context) -> Any:
        answers = await asyncio.gather(
            ctx.decide("slow", None, slow),
            ctx.decide("fast", None, fast),
            pay(1),
            ctx.decide("failing", None, failing),
            ctx.set_value("ns", "k", 1),
            ctx.record("asked"),
            return_exceptions=True,
        )
        await ctx.gate("go")
        return [str(answer) for answer in answers]

    run = await ran(kit, asks)
    assert asked == ["fast", "slow"]
    assert (await kit.journal(run.run_id)).steps == [
        "decision recorded slow",
        "decision recorded fast",
        "effect pending pay",
        "decision recorded failed/failing",
        "value changed ns/k",
        "event recorded asked",
        "gate waiting go",
    ]
    run = await signalled(kit, run)
    assert outcome(run) == ["slow", "fast", "1", "failing: OSError: no", "1", "None"]
    assert asked == ["fast", "slow"]


async def test_gates_with_a_time_limit_side_by_side(kit: AppKit, apps: Apps) -> None:
    @tape.app("waits", registry=apps)
    async def waits(ctx: Context) -> Any:
        return await asyncio.gather(*(ctx.gate(name, timeout_s=60) for name in "abc"))

    run = await kit.start_run(waits)
    await kit.work()
    for name in "ba":
        await kit.send_signal(run.run_id, name, name)
        await kit.work()
    assert outcome(await gone_on(kit, run)) == ["a", "b", {"timed_out": True}]


async def test_branches_are_cut_off_everywhere(tmp_path: Path, apps: Apps) -> None:
    async def ask() -> int:
        await asyncio.sleep(0)
        return 5

    @tape.app("branches", registry=apps)
    async def branches(ctx: Context) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(ctx.decide("m", None, ask)),
                group.create_task(ctx.call(pay, 1)),
                group.create_task(ctx.gate("go", timeout_s=9)),
                group.create_task(ctx.call(pay, 2)),
            ]
        await post("end")
        return [task.result() for task in tasks]

    async for crash in crashes(tmp_path, branches, apps=apps):
        run = await crash.recovered()
        assert (crash.boundary, outcome(run)) == (crash.boundary, [5, 1, {"timed_out": True}, 2])
        assert len(crash.journal.steps) == 6


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_a_gate_in_a_group_waits_for_acts_under_way(
    kit: AppKit, apps: Apps, colour: str
) -> None:
    """They go on although their branches are cancelled; these go on only after that."""
    begun, cancelled, let_go = asyncio.Event(), asyncio.Event(), threading.Event()
    loop, calls = asyncio.get_running_loop(), []

    @tape.effect(registry=apps, name="act")
    async def waited() -> str:
        begun.set()
        await cancelled.wait()
        calls.append("done")
        return "acted"

    @tape.effect(registry=apps, name="act in a thread")
    def threaded() -> str:
        loop.call_soon_threadsafe(begun.set)
        let_go.wait(20)
        calls.append("done")
        return "acted"

    @tape.app("grouped", registry=apps)
    async def grouped(ctx: Context) -> Any:
        async def act() -> Any:
            try:
                return await ctx.call(waited if colour == "async" else threaded)
            except asyncio.CancelledError:
                cancelled.set()
                let_go.set()
                raise

        async def wait_late() -> Any:
            await begun.wait()
            return await ctx.gate("go")

        async with asyncio.TaskGroup() as group:
            acting, waiting = group.create_task(act()), group.create_task(wait_late())
        return [acting.result(), waiting.result()]

    run = await ran(kit, grouped)
    assert (run.status, run.waiting_on) == (RunStatus.WAITING, "gate go")
    assert calls == ["done"]
    journal = await kit.journal(run.run_id)
    assert journal.subjects[2:] == [
        "effect/pending",
        "gate/waiting",
        "effect/confirmed",
        "run/runnable",
        "run/running",
        "run/waiting",
    ]
    run = await signalled(kit, run, resolution=7)
    assert outcome(run) == ["acted", 7]
    assert calls == ["done"]


async def test_a_branch_that_fails_beside_one_that_waits(kit: AppKit, apps: Apps) -> None:
    """In a group the failure ends the app, as it would if the gate were waited for in memory."""

    @tape.app("grouped", registry=apps)
    async def grouped(ctx: Context) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.call(fails))
            group.create_task(ctx.gate("go"))

    assert outcome(await ran(kit, grouped)) == "EffectFailed: fails: OSError: no"


async def test_several_failures_are_all_named(kit: AppKit, apps: Apps) -> None:
    @tape.app("fails", registry=apps)
    async def fails_twice(ctx: Context) -> Any:
        raise ExceptionGroup("both", [OSError("one"), ExceptionGroup("", [KeyError("two")])])

    assert outcome(await ran(kit, fails_twice)) == "RuntimeError: OSError: one; KeyError: 'two'"


async def test_a_decision_that_cannot_be_had_is_so_in_every_replay(kit: AppKit, apps: Apps) -> None:
    asked: list[int] = []

    async def ask() -> Any:
        asked.append(1)
        if len(asked) == 1:
            raise OSError("overloaded")
        return object() if len(asked) == 2 else "late"

    @tape.app("asks", registry=apps)
    async def asks(ctx: Context) -> Any:
        words = []
        for _ in range(2):
            try:
                await ctx.decide("m", {"q": 1}, ask)
            except EffectFailed as failed:
                words.append(str(failed))
        await post("fallback")
        await ctx.gate("go")
        return words

    run = await signalled(kit, await ran(kit, asks))
    first, second = outcome(run)
    assert first == "m: OSError: overloaded"
    assert second.startswith("m: InvalidArgument: answer of m: cannot be written as JSON")
    assert (asked, DONE) == ([1, 1], ["fallback"])


async def test_what_could_not_be_recorded_is_not_asked_for(kit: AppKit, apps: Apps) -> None:
    asked = []

    async def ask() -> None:
        asked.append(1)

    def draw() -> None:
        asked.append(1)

    @tape.app("asks", registry=apps)
    async def asks(ctx: Context) -> Any:
        with pytest.raises(TooLarge, match="model"):
            await ctx.decide("m" * 600, None, ask)
        with pytest.raises(InvalidArgument, match="request"):
            await ctx.decide("m", object(), ask)
        with pytest.raises(TooLarge, match="name"):
            ctx.sample(draw, name="s" * 600)
        with pytest.raises(InvalidArgument, match="NUL"):
            await ctx.get_value("n\0", "k")
        with pytest.raises(TooLarge, match="gate_name"):
            await ctx.gate("g" * 600)
        with pytest.raises(InvalidArgument, match="seconds is not a time to wait"):
            await ctx.sleep(float("nan"))
        with pytest.raises(InvalidArgument, match="event_type"):
            await ctx.record("")
        with pytest.raises(InvalidArgument, match="namespace"):
            await ctx.set_value("", "k", 1)
        with pytest.raises(InvalidArgument, match="usd"):
            await ctx.charge(usd=-1)
        with pytest.raises(TooLarge, match="pool"):
            await ctx.start("other", pool="p" * 600)
        await ctx.gate("go")
        return "done"

    run = await ran(kit, asks)
    assert (await kit.journal(run.run_id)).steps == ["gate waiting go"]
    assert outcome(await signalled(kit, run)) == "done"
    assert asked == []


async def test_a_value_that_was_set_only_if_unchanged_is_so_in_every_replay(
    kit: AppKit, apps: Apps
) -> None:
    @tape.app("sets", registry=apps)
    async def sets(ctx: Context) -> Any:
        versions: list[Any] = [await ctx.set_value("ns", "k", "a", if_version=0)]
        with pytest.raises(VersionMismatch, match="expected version 7, it is at version 1"):
            await ctx.set_value("ns", "k", "b", if_version=7)
        versions.append(await ctx.get_value("ns", "k"))
        versions.append(await ctx.set_value("ns", "k", "c"))
        versions += [await ctx.delete_value("ns", "k"), await ctx.delete_value("ns", "k")]
        await ctx.gate("go")
        return [*versions, await ctx.get_value("ns", "k"), await ctx.delete_value("ns", "k")]

    run = await ran(kit, sets)
    assert outcome(await signalled(kit, run)) == [1, "a", 2, True, False, None, False]
