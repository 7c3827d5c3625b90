"""The run that is being driven here, and the effect being done: what module-level calls act on."""

from contextvars import ContextVar
from typing import Any, Protocol

from tape.errors import InvalidArgument


class AmbientRun(Protocol):
    """A run's context, as much as a declared effect must know of it."""

    def call_same_colour(self, effect: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do the effect the way the app's own kind of function would."""


CURRENT: ContextVar[AmbientRun | None] = ContextVar("tape_run", default=None)
EFFECT_KEY: ContextVar[str] = ContextVar("tape_effect_key", default="")


def current_run(what: str) -> Any:
    """The run around this call; refused where there is none."""
    run = CURRENT.get()
    if run is None:
        raise InvalidArgument(
            f"{what} is only for an app while it is run: start it with tape.start or tape.run"
        )
    return run


def idempotency_key() -> str:
    """The key of the effect being done, to be given to the counterparty."""
    key = EFFECT_KEY.get()
    if not key:
        raise InvalidArgument("there is a key only while an effect is being done")
    return key
