"""Waiting: for a word, for a time, for a child. Nothing that is waited for is missed."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import tape
from tape.bus import Bus
from tape.errors import EffectFailed, InvalidArgument
from tape.model.run import Run, RunStatus
from tape.runs.boundary import set_boundary_hook
from tape.runs.declare import App, Apps
from tape.runs.driving.context import Context
from tape.settings import Settings
from tape.stores.by_url import open_store
from tape.testing.runs import AppKit, app_kit, crashes
from tests.unit.runs.driven import at_boundaries, found, gone_on, outcome, ran, signalled


@pytest.fixture
def waits(apps: Apps) -> App[Any]:
    @tape.app("waits", registry=apps)
    async def waits(ctx: Context) -> Any:
        return await ctx.gate("go", {"amount": 5})

    return waits


async def test_a_run_waits_for_a_word(kit: AppKit, waits: App[Any]) -> None:
    run = await ran(kit, waits)
    assert (run.status, run.waiting_on, run.lease_owner) == (RunStatus.WAITING, "gate go", "")
    assert await kit.work() == 0
    (waiting,) = [e for e in await kit.read_run(run.run_id) if e.subject.startswith("/tape/gate")]
    assert waiting.payload["payload"] == {"amount": 5}
    assert outcome(await signalled(kit, run, resolution={"by": "ada"})) == {"by": "ada"}


async def test_a_word_that_comes_early_is_kept(kit: AppKit, waits: App[Any]) -> None:
    run = await kit.start_run(waits)
    assert await kit.send_signal(run.run_id, "go", "early")
    assert outcome(await gone_on(kit, run)) == "early"
    assert len((await kit.journal(run.run_id)).tokens()) == 1


async def test_the_first_word_counts(kit: AppKit, waits: App[Any]) -> None:
    run = await ran(kit, waits)
    assert await kit.send_signal(run.run_id, "go", "first")
    assert not await kit.send_signal(run.run_id, "go", "second")
    assert outcome(await gone_on(kit, run)) == "first"
    before = len(await kit.read_run(run.run_id))
    assert not await kit.send_signal(run.run_id, "go", "late")
    assert not await kit.send_signal(run.run_id, "other", "late")
    assert len(await kit.read_run(run.run_id)) == before


async def test_a_gate_opens_once(kit: AppKit, apps: Apps) -> None:
    @tape.app("twice", registry=apps)
    async def twice(ctx: Context) -> Any:
        await ctx.gate("go")
        with pytest.raises(InvalidArgument, match="give the next wait another name"):
            await ctx.gate("go")
        return await tape.gate("go again")

    run = await signalled(kit, await ran(kit, twice))
    assert run.waiting_on == "gate go again"
    assert outcome(await signalled(kit, run, "go again", 2)) == 2


async def test_a_gate_is_waited_at_for_so_long(kit: AppKit, apps: Apps) -> None:
    @tape.app("limited", registry=apps)
    async def limited(ctx: Context) -> Any:
        return await ctx.gate("go", timeout_s=60)

    in_time, late = await kit.start_run(limited), await kit.start_run(limited)
    await kit.work()
    kit.clock.advance(59.9)
    assert await kit.work() == 0
    await kit.send_signal(in_time.run_id, "go", "in time")
    await kit.work()
    kit.clock.advance(0.1)
    await kit.work()
    assert outcome(await found(kit, in_time)) == "in time"
    assert outcome(await found(kit, late)) == {"timed_out": True}
    assert not await kit.send_signal(late.run_id, "go", "too late")


async def test_sleep_is_by_the_clock_of_the_store(kit: AppKit, apps: Apps) -> None:
    @tape.app("sleeps", registry=apps)
    async def sleeps(ctx: Context) -> str:
        await ctx.sleep(3600)
        await tape.sleep(0)
        return "awake"

    run = await kit.start_run(sleeps)
    await kit.work()
    assert (await found(kit, run)).waiting_on == "timer sleep:1"
    kit.clock.advance(3599)
    assert await kit.work() == 0
    kit.clock.advance(1)
    await kit.work()
    assert outcome(await found(kit, run)) == "awake"


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
async def test_times_that_cannot_be_waited(kit: AppKit, apps: Apps, seconds: float) -> None:
    @tape.app("sleeps", registry=apps)
    async def sleeps(ctx: Context) -> None:
        await ctx.sleep(seconds)

    run = await ran(kit, sleeps)
    assert outcome(run) == f"InvalidArgument: sleep:1: {seconds} seconds is not a time to wait"


async def test_timers_of_ones_own(kit: AppKit, apps: Apps) -> None:
    @tape.app("timers", registry=apps)
    async def timers(ctx: Context) -> Any:
        await ctx.set_timer("fires", 10, kind="reminder", payload={"n": 1})
        await ctx.set_timer("never", 20, kind="reminder")
        with pytest.raises(InvalidArgument, match="this run has set 'never' before"):
            await ctx.set_timer("never", 20)
        cancelled = [await ctx.cancel_timer("never"), await ctx.cancel_timer("no such")]
        await ctx.sleep(30)
        cancelled += [await tape.cancel_timer("fires"), await ctx.cancel_timer("never again")]
        await ctx.gate("go")
        return cancelled

    run = await signalled(kit, await ran(kit, timers))
    assert outcome(run) == [True, False, False, False]
    fired = [e for e in await kit.read_run(run.run_id) if e.subject.startswith("/tape/timer/fired")]
    assert [(e.payload["timer_id"], e.payload["payload"]) for e in fired] == [
        ("fires", {"n": 1}),
        ("sleep:1", None),
    ]
    assert fired[0].subject == f"/tape/timer/fired/reminder/{run.run_id}"


class Outside:
    """Somebody else on the same file, who acts in the middle of a step of this process."""

    def __init__(self, kit: AppKit, folder: Path, apps: Apps) -> None:
        self._kit = kit
        self._folder = folder
        self._apps = apps

    def __call__(self, act: Callable[[AppKit], Awaitable[Any]]) -> None:
        async def acting() -> None:
            settings, clock = Settings(), self._kit.clock
            url = f"sqlite:{self._folder / 'tape.db'}"
            bus = Bus(await open_store(url, settings, clock=clock), settings)
            other = AppKit(bus, clock, self._apps, settings)
            try:
                await act(other)
            finally:
                await other.close()

        thread = threading.Thread(target=lambda: asyncio.run(acting()))
        thread.start()
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture
def outside(kit: AppKit, tmp_path: Path, apps: Apps) -> Outside:
    return Outside(kit, tmp_path, apps)


async def at_every_boundary(
    kit: AppKit, app: App[Any], come: Callable[[Run], None], names: list[str]
) -> None:
    """What a run waits for comes at each boundary in turn: it ends each time."""
    number = 0
    while True:
        number += 1
        run = await kit.start_run(app)
        seen: list[str] = []

        def hook(name: str, run: Run = run, at: int = number, seen: list[str] = seen) -> None:
            seen.append(name)
            if len(seen) == at:
                set_boundary_hook(None)
                come(run)

        with at_boundaries(hook):
            await kit.work()
        if len(seen) < number:
            return
        names.append(seen[-1])
        ended = await found(kit, run)
        assert ended.status == RunStatus.TERMINAL, seen[-1]


async def test_a_word_is_not_missed_wherever_it_comes(
    kit: AppKit, waits: App[Any], outside: Outside
) -> None:
    def come(run: Run) -> None:
        outside(lambda other: other.send_signal(run.run_id, "go", 7))

    names: list[str] = []
    await at_every_boundary(kit, waits, come, names)
    assert names == [
        "before ResumeRun",
        "after ResumeRun",
        "before AwaitSignal",
        "after AwaitSignal",
        "before ReleaseRun",
        "after ReleaseRun",
    ]


async def test_a_time_is_not_missed_whenever_it_comes(
    kit: AppKit, apps: Apps, outside: Outside
) -> None:
    @tape.app("sleeps", registry=apps)
    async def sleeps(ctx: Context) -> None:
        await ctx.sleep(5)

    for place in ("after SetTimer", "before ReleaseRun", "after ReleaseRun"):
        run = await kit.start_run(sleeps)

        def hook(name: str, place: str = place) -> None:
            if name == place:
                set_boundary_hook(None)
                kit.clock.advance(5)
                outside(lambda other: other._operations.runs.fire_due_timers())

        with at_boundaries(hook):
            await kit.work()
        assert (await found(kit, run)).status == RunStatus.TERMINAL, place


async def test_the_end_of_a_child_is_not_missed_wherever_it_comes(
    kit: AppKit, apps: Apps, outside: Outside
) -> None:
    @tape.app("child", registry=apps, pool="elsewhere")
    async def child(ctx: Context) -> int:
        return 5

    @tape.app("parent", registry=apps)
    async def parent(ctx: Context) -> Any:
        return await ctx.result(await ctx.start(child))

    for place in ("before RecordDecision+AwaitSignal", "before ReleaseRun", "after ReleaseRun"):
        run = await kit.start_run(parent)

        def hook(name: str, place: str = place) -> None:
            if name == place:
                set_boundary_hook(None)
                outside(lambda other: other.work("elsewhere"))

        with at_boundaries(hook):
            await kit.work()
        assert outcome(await found(kit, run)) == 5, place


async def test_wake_ups_for_nothing_cost_their_entries_and_no_more(kit: AppKit, apps: Apps) -> None:
    calls: list[int] = []

    @tape.effect(registry=apps)
    async def pay() -> None:
        calls.append(1)

    @tape.app("waits", registry=apps)
    async def waits(ctx: Context) -> Any:
        await ctx.set_value("ns", "k", 1)
        await pay()
        await ctx.sleep(1)
        return await ctx.gate("go")

    run = await ran(kit, waits)
    assert run.waiting_on == "gate go"
    before = (await kit.journal(run.run_id)).subjects
    assert await kit.work() == 0
    for _ in range(3):
        await kit.resume_run(run.run_id)
        await kit.send_signal(run.run_id, f"other {_}")
        assert (await gone_on(kit, run)).status == RunStatus.WAITING
    journal = await kit.journal(run.run_id)
    woken = ["run/runnable", "gate/released", "run/running", "run/waiting"]
    assert journal.subjects == before + 3 * woken
    assert await kit.work() == 0
    assert calls == [1]


@pytest.fixture
def family(apps: Apps) -> App[Any]:
    @tape.app("child", registry=apps)
    async def child(ctx: Context, how: str) -> str:
        if how == "fails":
            raise LookupError("nothing there")
        if how == "waits":
            await ctx.gate("go")
        return f"child {how}"

    @tape.app("parent", registry=apps)
    async def parent(ctx: Context, how: str) -> Any:
        run_id = await tape.start(child, how)
        try:
            return [run_id, await ctx.result(run_id)]
        except EffectFailed as failed:
            return [run_id, str(failed)]

    return parent


async def test_a_child_is_waited_for(kit: AppKit, family: App[Any]) -> None:
    run = await ran(kit, family, "waits")
    (child,) = await kit.list_runs(app_name="child")
    assert (run.status, run.waiting_on) == (RunStatus.WAITING, f"gate run:{child.run_id}")
    assert (run.lease_owner, child.parent_run_id) == ("", run.run_id)
    assert (await signalled(kit, child)).status == RunStatus.TERMINAL
    assert outcome(await found(kit, run)) == [child.run_id, "child waits"]


async def test_a_child_that_fails(kit: AppKit, family: App[Any]) -> None:
    child_id, words = outcome(await ran(kit, family, "fails"))
    assert words.startswith(f"child run {child_id} is failed: ")
    assert "nothing there" in words


async def test_a_child_that_is_cancelled(kit: AppKit, family: App[Any]) -> None:
    run = await ran(kit, family, "waits")
    (child,) = await kit.list_runs(app_name="child")
    await kit.cancel_run(child.run_id, "not now")
    child_id, words = outcome(await gone_on(kit, run))
    assert words == f"child run {child_id} is cancelled: {{'cancelled': 'not now'}}"


async def test_children_have_names_of_their_own(kit: AppKit, apps: Apps) -> None:
    @tape.app("child", registry=apps)
    async def child(ctx: Context, number: int) -> Any:
        return [number, ctx.invocation_id, ctx.user_id]

    @tape.app("parent", registry=apps)
    async def parent(ctx: Context) -> Any:
        started = [await ctx.start(child, 1), await ctx.start("child", 2)]
        started += [await ctx.start(child, 3, name="third"), await ctx.start(child, 4)]
        with pytest.raises(InvalidArgument, match="was not started by this run"):
            await ctx.result("somebody else's")
        return await asyncio.gather(*(ctx.result(run_id) for run_id in started))

    run = await kit.start_run(parent, user_id="ada")
    ended = await gone_on(kit, run)
    names = [f"{run.run_id}/{name}" for name in ("1", "2", "third", "4")]
    assert outcome(ended) == [[n, name, "ada"] for n, name in enumerate(names, 1)]


async def test_a_family_is_cut_off_everywhere(tmp_path: Path, apps: Apps, family: App[Any]) -> None:
    async for crash in crashes(tmp_path, family, "returns", apps=apps):
        run = await crash.recovered()
        assert (crash.boundary, outcome(run)[1:]) == (crash.boundary, ["child returns"])
        async with app_kit(crash.folder, apps=apps, clock=crash.clock) as kit:
            assert len(await kit.list_runs(app_name="child")) == 1, crash.boundary
