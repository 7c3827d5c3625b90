"""Act 2: two people change one number, and neither undoes the other."""

import asyncio
import itertools

import orjson

from tape.cli.demo.stage import Follower, Stage
from tape.errors import VersionMismatch
from tape.model.value import ValueChange

TITLE = "One limit, two officers"
STORY = (
    "The desk's exposure limit is a value with a version. Two officers raise it at the same time. "
    "Each writes only if nobody wrote since they looked, and looks again if somebody did."
)
NAMESPACE, KEY = "desk", "exposure_limit"
START, STEP, ROUNDS = 1_000_000, 5_000, 20


async def play(stage: Stage) -> None:
    stage.followers["auditor"] = Follower(
        "/tape/value/changed/desk/**",
        'prev_value_json != "" && double(payload.value.value_json) > double(prev_value_json)',
    )
    stage.followers["auditor"].start(stage.client)
    await stage.client.set_value(NAMESPACE, KEY, START, if_version=0, writer="head of desk")
    watching = asyncio.create_task(_watch(stage, changes=2 * ROUNDS + 1))
    beaten = sum(await asyncio.gather(_officer(stage, "first"), _officer(stage, "second")))
    changes = await watching
    final = orjson.loads(changes[-1].value.value_json)
    stage.say(f"{2 * ROUNDS} raises of {STEP:,}, {beaten} of them at the second look or later")
    stage.promise(f"no raise was lost: the limit is {final:,}", final == START + 2 * ROUNDS * STEP)
    chained = all(
        later.prev_value_json == earlier.value.value_json
        and later.prev_version == earlier.value.version
        for earlier, later in itertools.pairwise(changes)
    )
    stage.promise(f"a watcher saw all {len(changes)} changes, each with the one before", chained)


async def _officer(stage: Stage, name: str) -> int:
    """How often the other one was quicker."""
    beaten = 0
    for _ in range(ROUNDS):
        while True:
            now = await stage.client.get_value(NAMESPACE, KEY)
            assert now is not None  # noqa: S101 - nobody deletes it in this act
            raised = orjson.loads(now.value_json) + STEP
            try:
                await stage.client.set_value(
                    NAMESPACE, KEY, raised, if_version=now.version, writer=f"{name} officer"
                )
            except VersionMismatch:
                beaten += 1
            else:
                break
    return beaten


async def _watch(stage: Stage, changes: int) -> list[ValueChange]:
    seen: list[ValueChange] = []
    async with stage.client.watch_value(NAMESPACE, KEY) as stream:
        async for change in stream:
            seen.append(change)
            if len(seen) == changes:
                break
    return seen
