"""Two processes on one store, as good as, and a run that they drive step by step."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tape.bus import Bus
from tape.model.effect import BeginEffect, CompleteEffect, EffectStatus
from tape.model.lease import NewRun, Taker
from tape.model.run import RunName
from tape.runs.operations import Runs
from tape.settings import Settings
from tape.stores.by_url import open_store

ME = Taker("me")


@asynccontextmanager
async def two_buses(url: str) -> AsyncIterator[tuple[Bus, Bus]]:
    one, two = [Bus(await open_store(url, Settings()), Settings()) for _ in range(2)]
    yield one, two
    await one.close()
    await two.close()


async def begun(runs: Runs, name: str = "1") -> str:
    """A new run, held with token 1."""
    run = await runs.begin_run(NewRun(RunName("app", "", "", name)), ME)
    assert run.fencing_token == 1
    return run.run.run_id


async def take_step(runs: Runs, run_id: str, number: int, token: int = 1) -> Any:
    """The outcome of one effect and the beginning of the next, as a driver sends them."""
    begin = BeginEffect(0, "tool", number)
    if number == 0:
        return await runs.extend_run(run_id, token, [begin])
    key = f"{run_id}/decision-0/tool/{number - 1}"
    done = CompleteEffect(key, EffectStatus.CONFIRMED, "7")
    return await runs.extend_run(run_id, token, [done, begin])
