"""What an app says to the run around it, without the context at hand.

In an asynchronous app each of these gives what the context's own method gives: what has to be
waited for is awaited. `now`, `uuid`, `random`, `sample` and `patched` never are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from tape.model.timer import REDRIVE
from tape.model.value import ANY_VERSION
from tape.runs.ambient import current_run

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may spend; zero means no cap."""

    usd: float = 0.0
    tokens: int = 0


def now() -> datetime:
    """Return the time; every replay returns the same."""
    found: datetime = current_run("now").now()
    return found


def uuid() -> UUID:
    found: UUID = current_run("uuid").uuid()
    return found


def random() -> float:
    """Return a number in 0 <= x < 1; every replay returns the same."""
    found: float = current_run("random").random()
    return found


def sample(function: Callable[[], R], /, *, name: str = "sample") -> R:
    """Call the function once and return its result, now and in every replay.

    The function must not act on the world.
    """
    found: R = current_run("sample").sample(function, name=name)
    return found


def patched(name: str) -> bool:
    """Return whether this run takes the new branch: see Context.patched."""
    return bool(current_run("patched").patched(name))


def gate(name: str, payload: Any = None, *, timeout_s: float | None = None) -> Any:
    """Wait for a signal from outside, and return it."""
    return current_run("gate").gate(name, payload, timeout_s=timeout_s)


def sleep(seconds: float) -> Any:
    """Wait, by the store's clock."""
    return current_run("sleep").sleep(seconds)


def set_timer(timer_id: str, seconds: float, *, kind: str = REDRIVE, payload: Any = None) -> Any:
    return current_run("set_timer").set_timer(timer_id, seconds, kind=kind, payload=payload)


def cancel_timer(timer_id: str) -> Any:
    return current_run("cancel_timer").cancel_timer(timer_id)


def heartbeat() -> Any:
    """Renew the lease of this run now."""
    return current_run("heartbeat").heartbeat()


def is_cancelled() -> bool:
    """Return whether the cancellation of this run was requested."""
    return bool(current_run("is_cancelled").is_cancelled)


def set_value(namespace: str, key: str, value: Any, *, if_version: int = ANY_VERSION) -> Any:
    """Write a value as this run. Returns its version."""
    return current_run("set_value").set_value(namespace, key, value, if_version=if_version)


def get_value(namespace: str, key: str) -> Any:
    """Return a value as it was when this run first read it here."""
    return current_run("get_value").get_value(namespace, key)


def delete_value(namespace: str, key: str) -> Any:
    return current_run("delete_value").delete_value(namespace, key)


def with_budget(budget: Budget) -> Any:
    """Cap what this run may spend from here on."""
    return current_run("with_budget").set_budget(usd=budget.usd, tokens=budget.tokens)
