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
EFFECT_KEY: ContextVar[str] = ContextVar("tape_effect_key", default="")
WITHIN: ContextVar[str] = ContextVar("tape_within", default="")
"""What is being called that a replay does not call again, so that no step may be taken there."""


@contextmanager
def within(what: str) -> Iterator[None]:
    token = WITHIN.set(what)
    try:
        yield
    finally:
        WITHIN.reset(token)


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
        raise InvalidArgument(
            f"{what} is only for an app while it is run: begin it with client.run or "
            "client.start_run"
        )
    return run


def idempotency_key() -> str:
    """The key of the effect being done, to be given to the counterparty."""
    key = EFFECT_KEY.get()
    if not key:
        raise InvalidArgument("there is a key only while an effect is being done")
    return key
