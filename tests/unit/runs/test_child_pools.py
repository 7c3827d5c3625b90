"""In which pool a child runs: the one that is asked for, its app's own, or its parent's."""

from typing import Any

import pytest

import tape
from tape import Context, SyncContext
from tape.runs.declare import Apps
from tape.testing.runs import AppKit
from tests.unit.runs.driven import found, outcome


@pytest.fixture
def pools_of_children(apps: Apps) -> list[Any]:
    @tape.app("plain", registry=apps)
    async def plain(ctx: Context) -> str:
        return ctx.run_id

    @tape.app("elsewhere", registry=apps, pool="gpu")
    async def elsewhere(ctx: Context) -> str:
        return ctx.run_id

    @tape.app("parent", registry=apps)
    async def parent(ctx: Context) -> list[str]:
        return [
            await ctx.start(plain),
            await ctx.start("by name"),
            await ctx.start(elsewhere),
            await ctx.start(plain, pool="asked"),
        ]

    @tape.app("sync parent", registry=apps)
    def sync_parent(ctx: SyncContext) -> list[str]:
        return [
            ctx.start(plain),
            ctx.start("by name"),
            ctx.start(elsewhere),
            ctx.start(plain, pool="asked"),
        ]

    return [parent, sync_parent]


@pytest.mark.parametrize("kind", [0, 1], ids=["async", "sync"])
@pytest.mark.parametrize("pool", ["shared", "iot"])
async def test_a_child_stays_in_the_pool_of_its_parent_unless_its_app_names_one(
    kit: AppKit, pools_of_children: list[Any], pool: str, kind: int
) -> None:
    run = await kit.start_run(pools_of_children[kind], pool=pool)
    await kit.work(pool)
    children = [await kit.get_run(run_id) for run_id in outcome(await found(kit, run))]
    assert [child and child.pool for child in children] == [pool, pool, "gpu", "asked"]
