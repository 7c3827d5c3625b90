"""Nothing is done under a claim or lease that others may have taken over by now."""

import asyncio
from typing import Any, cast

import pytest

import tape
from tape.errors import StoreUnavailable
from tape.model.effect_claim import ClaimEffect, RenewClaim
from tape.model.lease import Taker
from tape.model.run import Run
from tape.model.run_write import RunWrite
from tape.runs.declare import Observed
from tape.runs.driving.drive import RunDriver
from tape.runs.driving.lease_keeper import LeaseKeeper
from tape.runs.driving.run_here import new_run
from tape.runs.operations import RunOperations
from tape.runs.reactors.recovery import Recovery
from tape.settings import ReactorSettings, ReactorsSettings
from tests.unit.runs.durable import World

BRIEF = ReactorSettings(lease_ttl_s=0.3)


class Late:
    """Operations on runs whose grants are long on their way, and whose claims cannot be renewed."""

    def __init__(self, world: World, *, late_s: float = 0.0) -> None:
        self._runs = world.runs
        self._clock = world.clock
        self._late_s = late_s
        self.taken_over = False

    async def change_run(self, run_id: str, write: RunWrite) -> Any:
        if isinstance(write, RenewClaim):
            raise StoreUnavailable("away")
        reply = await self._runs.change_run(run_id, write)
        if isinstance(write, ClaimEffect):
            await asyncio.sleep(self._late_s)
        return reply

    async def resume_run(self, run_id: str, taker: Taker, *, expected_token: int) -> Run:
        taken = await self._runs.resume_run(run_id, taker, expected_token=expected_token)
        await asyncio.sleep(self._late_s)
        if self.taken_over:
            self._clock.pass_s(taker.ttl_ms / 1000)
            await self._runs.resume_run(run_id, Taker("another"), expected_token=-1)
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)


class Payments:
    """A payment that takes for ever, and when it was begun and cut off by the loop's clock."""

    def __init__(self, world: World) -> None:
        self.begun_at: list[float] = []
        self.left_at: list[float] = []
        loop = asyncio.get_running_loop()

        def check(_key: str, _request: Any) -> Observed:
            return Observed("absent")

        @tape.effect(
            semantics="non_idempotent", dispatch="outbox", check=check, registry=world.apps
        )
        async def pay() -> None:
            self.begun_at.append(loop.time())
            try:
                await asyncio.Event().wait()
            finally:
                self.left_at.append(loop.time())

        @tape.app("shop", registry=world.apps)
        async def shop(_ctx: tape.Context) -> None:
            await pay()

        self.app = shop


async def test_one_whose_answer_came_too_late_is_not_acted_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    payments = Payments(world)
    await world.begin(payments.app)
    outbox = world.outbox(settings=BRIEF, runs=Late(world, late_s=BRIEF.lease_ttl_s))
    assert await outbox.once() == 1
    await outbox.settled()
    assert payments.begun_at == []
    assert "its claim ran out before it was begun" in caplog.text


async def test_an_act_is_cut_off_before_its_claim_is_over(world: World) -> None:
    payments = Payments(world)
    await world.begin(payments.app)
    # It is cut off half a heartbeat before the end, so that busy cores may do it a little later.
    settings = ReactorSettings(lease_ttl_s=3.0, heartbeat_s=2.0)
    outbox = world.outbox(settings=settings, runs=Late(world))
    asked_at = asyncio.get_running_loop().time()
    assert await outbox.once() == 1
    await outbox.settled()
    (left_at,) = payments.left_at
    assert left_at < asked_at + settings.lease_ttl_s


@pytest.mark.parametrize("taken_over", [True, False])
async def test_a_lease_whose_answer_came_too_late_is_asked_for_again(
    world: World, taken_over: bool
) -> None:
    done: list[str] = []

    @tape.effect(registry=world.apps)
    async def act() -> None:
        done.append(tape.idempotency_key())

    @tape.app("desk", registry=world.apps)
    async def desk(_ctx: tape.Context) -> None:
        await act()

    run = (await world.runs.begin_run(new_run(desk))).run
    # Asked for again, it is kept while the run goes on: on busy cores, too.
    settings = ReactorsSettings(recovery=ReactorSettings(lease_ttl_s=2.0))
    keeper = LeaseKeeper(world.runs, settings.recovery)
    driver = RunDriver(world.bus, keeper, world.executor)
    late = Late(world, late_s=settings.recovery.lease_ttl_s)
    late.taken_over = taken_over
    taker = Taker("late", "recovery", keeper.ttl_ms)
    runs = cast("RunOperations", late)
    recovery = Recovery(runs, driver, world.apps, settings, taker, "shared")
    assert await recovery.once() == 1
    await recovery.settled()
    await keeper.close()
    assert len(done) == (0 if taken_over else 1)
    verbs = await world.verbs(run)
    if taken_over:
        assert verbs == ["run runnable", "run running", "run running"]
    else:
        assert verbs[-1] == "run terminal"
