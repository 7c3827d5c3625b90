"""Effects that only look: no commit of their own, and durable before anything depends on them."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import tape
from tape.errors import InvalidArgument
from tape.model.effect import Semantics
from tape.model.run import RunStatus
from tape.runs.declare import Apps
from tape.runs.driving import pen
from tape.runs.driving.context import Context
from tape.runs.operations import Runs
from tape.settings import Limits, Settings
from tape.testing.runs import AppKit, app_kit, crashes
from tests.unit.runs.driven import at_boundaries, outcome, ran, signalled

LOOKS = 12


async def test_an_observation_is_recorded_as_one_and_replayed(kit: AppKit, apps: Apps) -> None:
    calls = []

    @tape.effect(registry=apps, semantics="observe_only")
    async def balance() -> int:
        calls.append(1)
        return len(calls)

    @tape.app("looks", registry=apps)
    async def looks(ctx: Context) -> Any:
        found = await balance()
        await ctx.gate("go")
        return found

    run = await signalled(kit, await ran(kit, looks))
    assert outcome(run) == 1
    key = f"{run.run_id}/decision-0/balance/0"
    row = await kit._operations.runs.get_effect(run.run_id, key)
    assert row is not None
    assert row.semantics == Semantics.OBSERVE_ONLY


@pytest.fixture
def balance(apps: Apps) -> Callable[[int], Awaitable[int]]:
    @tape.effect(registry=apps, semantics="observe_only")
    async def balance(account: int) -> int:
        return 100 + account

    return balance


async def looked(kit: AppKit, apps: Apps, balance: Callable[[int], Awaitable[int]]) -> list[str]:
    """The writes of a run that only looks, if none goes out by itself."""

    @tape.app("looks", registry=apps)
    async def looks(_ctx: Context) -> Any:
        return [await balance(n) for n in range(LOOKS)]

    names: list[str] = []
    with at_boundaries(names.append):
        run = await ran(kit, looks)
    assert outcome(run) == [100 + n for n in range(LOOKS)]
    return [name for name in names if name.startswith("before ") and "Effect" in name]


async def test_looks_go_out_together_with_what_the_app_waits_for(
    kit: AppKit,
    apps: Apps,
    balance: Callable[[int], Awaitable[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pen, "LINGER_S", 3600.0)
    (write,) = await looked(kit, apps, balance)
    assert write == f"before {'BeginEffect+CompleteEffect+' * LOOKS}EndRun"


async def test_what_was_seen_is_durable_before_an_act_that_may_depend_on_it(
    kit: AppKit, apps: Apps, balance: Callable[[int], Awaitable[int]]
) -> None:
    at_the_act: list[str] = []

    @tape.effect(registry=apps)
    async def pay(run_id: str, _amount: int) -> None:
        at_the_act[:] = (await kit.journal(run_id)).steps

    @tape.app("pays", registry=apps)
    async def pays(ctx: Context) -> Any:
        await pay(ctx.run_id, await balance(1) + await balance(2))

    run = await ran(kit, pays)
    assert run.status == RunStatus.TERMINAL
    assert at_the_act == ["effect pending balance", "effect pending balance", "effect pending pay"]
    journal = await kit.journal(run.run_id)
    assert journal.effects("balance") == ["confirmed"] * 2


async def test_one_that_is_cut_off_anywhere_acts_once_upon_what_it_has_seen(
    tmp_path: Path, apps: Apps
) -> None:
    """No look sees the same again: an act upon a look that was lost would be done with another."""
    seen = itertools.count(100)
    paid: dict[str, int] = {}

    @tape.effect(registry=apps, semantics="observe_only")
    async def rate() -> int:
        return next(seen)

    @tape.effect(registry=apps)
    async def pay(amount: int) -> int:
        return paid.setdefault(tape.idempotency_key(), amount)

    @tape.app("pays", registry=apps)
    async def pays(_ctx: Context) -> Any:
        asked = await rate()
        return [asked, await pay(asked), await rate()]

    crashed_at = []
    async for crash in crashes(tmp_path, pays, apps=apps):
        crashed_at.append(crash.boundary)
        asked, done, _then = outcome(await crash.recovered())
        assert asked == done == paid.popitem()[1], crash.boundary
        assert crash.journal.effects("pay") == ["confirmed"]
        assert not paid
    assert "after act rate" in crashed_at
    assert "after act pay" in crashed_at


async def test_more_than_goes_out_at_once_is_not_gathered(
    kit: AppKit,
    apps: Apps,
    balance: Callable[[int], Awaitable[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pen, "LINGER_S", 3600.0)
    monkeypatch.setattr(pen, "MOST_TOGETHER", 10)
    assert len(await looked(kit, apps, balance)) > 1


async def test_a_run_that_is_to_end_looks_no_more(
    kit: AppKit, apps: Apps, balance: Callable[[int], Awaitable[int]]
) -> None:
    looked = []

    @tape.app("looks", registry=apps)
    async def looks(ctx: Context) -> Any:
        for n in range(LOOKS):
            looked.append(await balance(n))
            if n == 1:
                await kit.cancel_run(ctx.run_id, "enough")
                await ctx.heartbeat()

    run = await ran(kit, looks)
    assert run.status == RunStatus.CANCELLED
    assert len(looked) == 2


async def test_branches_that_look_when_the_run_is_to_end_end_it(
    kit: AppKit, apps: Apps, balance: Callable[[int], Awaitable[int]]
) -> None:
    @tape.app("looks", registry=apps)
    async def looks(ctx: Context) -> Any:
        await balance(0)
        await kit.cancel_run(ctx.run_id, "enough")
        await ctx.heartbeat()

        async def look(account: int) -> int:
            return await balance(account)

        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(look(n))

    assert (await ran(kit, looks)).status == RunStatus.CANCELLED


async def test_many_branches_of_looks_are_replayed_with_what_comes_behind_them(
    kit: AppKit, apps: Apps, balance: Callable[[int], Awaitable[int]]
) -> None:
    @tape.app("looks", registry=apps)
    async def looks(ctx: Context) -> Any:
        async def draw() -> float:
            return ctx.random()

        *seen, _drawn = await asyncio.gather(
            *(balance(n) for n in range(pen.MOST_TOGETHER + 50)), draw()
        )
        await ctx.gate("go")
        return len(seen)

    run = await signalled(kit, await ran(kit, looks))
    assert outcome(run) == pen.MOST_TOGETHER + 50


@pytest.mark.parametrize("fault", ["no JSON", "no ack"])
async def test_a_look_that_came_to_nothing_has_failed(kit: AppKit, apps: Apps, fault: str) -> None:
    """There is nothing in doubt that somebody could find out."""

    @tape.effect(registry=apps, semantics="observe_only")
    async def balance() -> Any:
        if fault == "no ack":
            raise tape.AckLost("hung up")
        return {1, 2}

    @tape.app("looks", registry=apps)
    async def looks(_ctx: Context) -> Any:
        return await balance()

    run = await ran(kit, looks)
    assert run.status == RunStatus.FAILED
    assert (await kit.journal(run.run_id)).effects("balance") == ["failed"]


def test_one_that_only_looks_leaves_nothing_to_undo(apps: Apps) -> None:
    with pytest.raises(InvalidArgument, match="is observe_only"):

        @tape.effect(registry=apps, semantics="observe_only", compensate=print)
        async def balance() -> None: ...


@pytest.fixture
async def sparing(
    tmp_path: Path, apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AppKit]:
    """A journal that takes less than an app may think."""
    monkeypatch.setattr(Runs, "limits", Limits())
    settings = Settings(limits=Limits(payload_bytes=2000))
    async with app_kit(tmp_path, apps=apps, settings=settings) as kit:
        yield kit


LARGE = "x" * 3000


@pytest.mark.parametrize("large", ["request", "result"])
async def test_a_look_that_the_journal_does_not_take_fails_its_run(
    sparing: AppKit, apps: Apps, large: str
) -> None:
    @tape.effect(registry=apps, semantics="observe_only")
    async def balance(_account: str) -> str:
        return LARGE if large == "result" else ""

    @tape.app("looks", registry=apps)
    async def looks(_ctx: Context) -> Any:
        return len(await balance(LARGE if large == "request" else ""))

    run = await ran(sparing, looks)
    assert run.status == RunStatus.FAILED
    assert outcome(run).startswith("TooLarge")
    assert run.fencing_token == 1


async def test_nothing_that_was_drawn_behind_a_refusal_stands_in_for_what_was_refused(
    tmp_path: Path, apps: Apps
) -> None:
    """Whoever goes on after a crash must not take the second draw for the first."""
    wired: list[Any] = []

    @tape.effect(registry=apps)
    async def wire(amount: Any) -> None:
        wired.append(amount)

    @tape.app("draws", registry=apps)
    async def draws(ctx: Context) -> Any:
        first = ctx.sample(lambda: LARGE)
        ctx.sample(lambda: 5)
        await wire(len(first))

    settings = Settings(limits=Limits(payload_bytes=2000))
    async for crash in crashes(tmp_path, draws, apps=apps, settings=settings):
        run = await crash.recovered()
        assert (run.status, outcome(run)[:8]) == (RunStatus.FAILED, "TooLarge"), crash.boundary
    assert wired == []
