"""An effect in each state that a claim can find it in."""

from typing import Any

from tape.model.effect import (
    BeginEffect,
    CompleteEffect,
    DispatchMode,
    Effect,
    EffectStatus,
    Semantics,
)
from tape.model.effect_claim import (
    ClaimEffect,
    RecordDispatchAttempt,
    RecordExternalObservation,
    Resolution,
)
from tape.model.obligation import RegisterCompensation
from tape.model.run import RunStatus
from tape.model.run_end import EndRun
from tests.unit.model.run_world import TTL, World, driven

PENDING, CONFIRMED, FAILED, UNKNOWN = EffectStatus
INLINE = BeginEffect(0, "pay", 0, custom_key="k")
OUTBOX = INLINE._replace(dispatch_mode=DispatchMode.OUTBOX)
ONCE = OUTBOX._replace(semantics=Semantics.NON_IDEMPOTENT)
UNDO = RegisterCompensation("k", "undo")
AGAIN = RegisterCompensation("k", "undo the second")
BOTH = [OUTBOX, ONCE]


def begun(effect: BeginEffect) -> World:
    world = driven()
    world.drive(effect)
    return world


def claim(world: World, claimer: str = "d") -> Effect | None:
    claimed: Effect | None = world.change(ClaimEffect("k", claimer, TTL))
    return claimed


def claimed(effect: BeginEffect) -> World:
    """Under claim 1."""
    world = begun(effect)
    assert claim(world) is not None
    return world


def unknown(effect: BeginEffect = ONCE) -> World:
    """Nobody knows, and nobody looks yet."""
    world = begun(effect)
    if effect.dispatch_mode == DispatchMode.OUTBOX:
        claim(world)
        world.change(RecordDispatchAttempt("k", 1, "lost"))
    else:
        world.drive(CompleteEffect("k", UNKNOWN))
    assert world.effect("k").status == UNKNOWN
    return world


def observe(world: World, resolution: Resolution, token: int | None = None, **rest: Any) -> Any:
    token = world.effect("k").claim_token if token is None else token
    return world.change(
        RecordExternalObservation("k", token, resolution, **({"parent_run_id": ""} | rest))
    )


def end(world: World, status: RunStatus = RunStatus.FAILED) -> None:
    world.drive(EndRun(status, "1", ""))
