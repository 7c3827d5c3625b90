"""Nothing is done under a claim that others may have taken over by now."""

import asyncio
from typing import Any

import pytest

import tape
from tape.config import ReactorSettings
from tape.errors import StoreUnavailable
from tape.model.effect_claim import ClaimEffect, RenewClaim
from tape.model.run_write import RunWrite
from tape.runs.observed import Observed
from tests.unit.runs.durable import World

BRIEF = ReactorSettings(lease_ttl_s=0.3)


class Late:
    """Operations on runs whose answers to claims are long on their way, or whose renewals fail."""

    def __init__(self, world: World, *, late_s: float = 0.0) -> None:
        self._runs = world.runs
        self._late_s = late_s

    async def change_run(self, run_id: str, write: RunWrite) -> Any:
        if isinstance(write, RenewClaim):
            raise StoreUnavailable("away")
        reply = await self._runs.change_run(run_id, write)
        if isinstance(write, ClaimEffect):
            await asyncio.sleep(self._late_s)
        return reply

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
    outbox = world.outbox(settings=BRIEF, runs=Late(world))
    asked_at = asyncio.get_running_loop().time()
    assert await outbox.once() == 1
    await outbox.settled()
    (left_at,) = payments.left_at
    assert left_at < asked_at + BRIEF.lease_ttl_s
