"""Timers: each is fired once, when the store's clock says so."""

import asyncio

from tape.model.run import RunStatus
from tape.runs.boundary import set_boundary_hook
from tape.runs.declare import app
from tape.runs.driving.context import Context
from tape.runs.reactors.timers import AT_A_TIME, Timers
from tests.unit.runs.durable import World


async def test_a_run_sleeps_until_its_timer_is_fired(world: World) -> None:
    @app("sleeper", registry=world.apps)
    async def sleeper(ctx: Context) -> str:
        await ctx.sleep(100)
        return "awake"

    timers = Timers(world.runs)
    assert await timers.once() == 0
    assert await timers.due_in_s() is None
    run = await world.begin(sleeper)
    assert await timers.once() == 0
    assert await timers.due_in_s() == 100
    world.clock.pass_s(99.5)
    assert await timers.once() == 0
    assert await timers.due_in_s() == 0.5
    world.clock.pass_s(0.5)
    assert await timers.once() == 1
    assert await timers.once() == 0
    assert await timers.due_in_s() is None
    await world.drive()
    assert (await world.run(run.run_id)).outcome_json == '"awake"'


async def test_many_that_race_fire_each_once(world: World) -> None:
    @app("sleeper", registry=world.apps)
    async def sleeper(ctx: Context) -> None:
        for number in range(10):
            await ctx.set_timer(f"t{number}", 1, kind="mine")
        await ctx.gate("never")

    run = await world.begin(sleeper)
    world.clock.pass_s(1)
    fired = await asyncio.gather(*(Timers(world.runs).once() for _ in range(4)))
    assert sum(fired) == 10
    assert (await world.verbs(run)).count("timer fired") == 10
    assert await world.status(run) is RunStatus.WAITING


async def test_more_than_go_at_a_time_are_fired_one_lot_after_the_other(world: World) -> None:
    @app("sleeper", registry=world.apps)
    async def sleeper(ctx: Context) -> None:
        for number in range(AT_A_TIME + 1):
            await ctx.set_timer(f"t{number}", 1, kind="mine")

    await world.begin(sleeper)
    world.clock.pass_s(1)
    timers = Timers(world.runs)
    assert [await timers.once() for _ in range(3)] == [AT_A_TIME, 1, 0]


async def test_a_gate_opens_when_nobody_comes(world: World) -> None:
    @app("waiter", registry=world.apps)
    async def waiter(ctx: Context) -> object:
        return await ctx.gate("word", timeout_s=60)

    run = await world.begin(waiter)
    assert await world.status(run) is RunStatus.WAITING
    places: list[str] = []
    set_boundary_hook(places.append)
    try:
        assert await Timers(world.runs).once() == 0
        assert not places
        world.clock.pass_s(60)
        assert await Timers(world.runs).once() == 1
    finally:
        set_boundary_hook(None)
    assert places == ["before FireTimer", "after FireTimer"]
    await world.drive()
    assert (await world.run(run.run_id)).outcome_json == '{"timed_out":true}'
