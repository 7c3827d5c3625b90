"""A worker's reactors together: what they have begun is waited for, at the end as well."""

import asyncio
from typing import Any

import tape
from tape.model.run import RunStatus
from tape.runs.declare import App, Apps, Observed
from tape.runs.reactors.run_reactors import RunReactors
from tape.settings import ReactorsSettings
from tests.unit.runs.durable import World


class Slow:
    """An act of the outbox that goes on until it is let."""

    def __init__(self, world: World) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

        async def check(_key: str, _request: Any) -> Observed:
            return Observed("absent")

        @tape.effect(
            semantics="non_idempotent", dispatch="outbox", check=check, registry=world.apps
        )
        async def pay() -> str:
            self.begun.set()
            await self.go_on.wait()
            return "paid"

        @tape.app("shop", registry=world.apps)
        async def shop(ctx: tape.Context) -> str:
            return await pay()

        self.app: App[Any] = shop


def reactors(world: World, apps: Apps) -> RunReactors:
    return RunReactors(
        world.bus, apps, ReactorsSettings(poll_s=0.05), world.executor, owner="a", pool="shared"
    )


async def never_ring(_pattern: str, _ring: object) -> None:
    await asyncio.Event().wait()


async def test_once_waits_for_what_is_in_hand(world: World) -> None:
    slow = Slow(world)
    slow.go_on.set()
    run = await world.begin(slow.app)
    works = reactors(world, world.apps)
    assert await works.once() > 0
    await works.close()
    assert await world.status(run) == RunStatus.TERMINAL


async def test_the_end_waits_for_what_is_in_hand(world: World) -> None:
    slow = Slow(world)
    run = await world.begin(slow.app)
    stop = asyncio.Event()
    working = asyncio.create_task(reactors(world, world.apps).work(never_ring, stop, grace_s=30))
    await slow.begun.wait()
    stop.set()
    await asyncio.sleep(0)
    slow.go_on.set()
    await working
    assert "effect confirmed" in await world.verbs(run)


async def test_an_act_that_outlasts_the_grace_is_left_in_doubt(world: World) -> None:
    slow = Slow(world)
    run = await world.begin(slow.app)
    stop = asyncio.Event()
    working = asyncio.create_task(reactors(world, world.apps).work(never_ring, stop, grace_s=0))
    await slow.begun.wait()
    stop.set()
    await working
    verbs = await world.verbs(run)
    assert "effect claimed" in verbs
    assert "effect confirmed" not in verbs
