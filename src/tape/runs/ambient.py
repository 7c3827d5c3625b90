"""The run that is being driven here, and the effect being done: what module-level calls act on."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from tape.errors import InvalidArgument


class AmbientRun(Protocol):
    """A run's context, as much as a declared effect must know of it."""

    def call_same_colour(self, effect: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do the effect the way the app's own kind of function would."""


CURRENT: ContextVar[AmbientRun | None] = ContextVar("tape_run", default=None)
WITHOUT_RUN: ContextVar[AmbientRun | None] = ContextVar("tape_without_run", default=None)
"""Does effects where there is no run: see `tape.testing.effects`."""
EFFECT_KEY: ContextVar[str] = ContextVar("tape_effect_key", default="")
WITHIN: ContextVar[str] = ContextVar("tape_within", default="")
"""What is being called that a replay does not call again, so that no step may be taken there."""

_IN_A_TEST = "; in a unit test, call the effect inside `with tape.testing.effects():`"


@contextmanager
def within(what: str) -> Iterator[None]:
    token = WITHIN.set(what)
    try:
        yield
    finally:
        WITHIN.reset(token)


def refuse_within(what: str) -> None:
    """Refuse a step in a place that a replay does not come to again: it would be missing there."""
    if inside := WITHIN.get():
        raise InvalidArgument(
            f"{what} cannot be called in {inside}, which is not called again in a replay: call "
            "it in the app"
        )


@contextmanager
def running(run: AmbientRun) -> Iterator[None]:
    """While its app is called, even if that is from inside of another run."""
    current, key, inside = CURRENT.set(run), EFFECT_KEY.set(""), WITHIN.set("")
    try:
        yield
    finally:
        CURRENT.reset(current)
        EFFECT_KEY.reset(key)
        WITHIN.reset(inside)


def current_run(what: str) -> Any:
    """The run around this call; refused where there is none."""
    run = CURRENT.get()
    if run is None:
        raise InvalidArgument(_only_in_a_run(what))
    return run


def current_actor(effect: str) -> AmbientRun:
    """Who does an effect that is called here: the run around this call, or a test."""
    actor = CURRENT.get() or WITHOUT_RUN.get()
    if actor is None:
        raise InvalidArgument(f"{_only_in_a_run(f'effect {effect!r}')}{_IN_A_TEST}")
    return actor


def idempotency_key() -> str:
    """Return the key of the effect that is being executed. Send it to the counterparty."""
    key = EFFECT_KEY.get()
    if not key:
        raise InvalidArgument(
            f"there is an idempotency key only while an effect is executed{_IN_A_TEST}"
        )
    return key


def _only_in_a_run(what: str) -> str:
    return f"{what} works only in a run: start the app with client.run or client.start_run"
