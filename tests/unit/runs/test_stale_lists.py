"""Who claims by a list that is no longer true does not do what the list was for."""

from typing import Any

import tape
from tape.model.effect import Effect, EffectStatus
from tape.model.run import Run, RunStatus
from tape.runs.declare import Observed
from tests.unit.runs.durable import World, settle

PENDING, CONFIRMED, UNKNOWN = EffectStatus.PENDING, EffectStatus.CONFIRMED, EffectStatus.UNKNOWN


class Listing:
    """Operations on runs whose lists are as they were a while ago."""

    def __init__(self, world: World, row: Effect) -> None:
        self._runs = world.runs
        self._row = row

    async def list_effects_to_dispatch(self, *_asked: object) -> list[Effect]:
        return [self._row]

    async def list_pending_effects(self, *_asked: object) -> list[Effect]:
        return [self._row]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)


class Payments:
    """A fee whose bank loses every acknowledgement, and looks into its books when asked."""

    def __init__(self, world: World) -> None:
        self.paid: list[str] = []
        self.checks = 0

        async def check(key: str, _request: Any) -> Observed:
            self.checks += 1
            return Observed("confirmed" if key in self.paid else "absent")

        @tape.effect(
            semantics="non_idempotent", dispatch="outbox", check=check, registry=world.apps
        )
        async def pay() -> None:
            self.paid.append(tape.idempotency_key())
            raise tape.AckLost("no answer")

        @tape.app("shop", registry=world.apps)
        async def shop(ctx: tape.Context) -> str:
            await pay()
            return "paid"

        self.app = shop


async def begun(world: World, payments: Payments) -> tuple[Run, Effect]:
    run = await world.begin(payments.app)
    return run, await world.effect(run, "pay")


async def test_what_is_in_doubt_by_now_is_not_dispatched(world: World) -> None:
    payments = Payments(world)
    run, listed = await begun(world, payments)
    await settle(world.outbox("a"))
    assert await world.effect_status(run, "pay") == UNKNOWN

    late = world.outbox("b", runs=Listing(world, listed))
    assert await late.once() == 1
    await late.settled()
    assert len(payments.paid) == 1
    await settle(world.reconciler())  # at once: the claim was given back
    assert await world.effect_status(run, "pay") == CONFIRMED
    await world.drive()
    assert await world.status(run) == RunStatus.TERMINAL


async def test_what_is_to_be_done_again_by_now_is_not_looked_into(world: World) -> None:
    payments = Payments(world)
    run, row = await begun(world, payments)
    late = world.reconciler("b", runs=Listing(world, row._replace(status=UNKNOWN.value)))
    assert await late.once() == 1
    await late.settled()
    assert payments.checks == 0
    await settle(world.outbox(), world.reconciler())
    assert len(payments.paid) == 1
    assert await world.effect_status(run, "pay") == CONFIRMED
