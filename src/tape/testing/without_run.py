"""Effects in a unit test, without a run and without a store.

def test_charge():
    with tape.testing.effects():
        assert charge("ada", 4200)["cents"] == 4200
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from tape.model.effect import effect_key
from tape.model.json_text import to_json
from tape.runs.ambient import EFFECT_KEY, WITHOUT_RUN, refuse_within, within
from tape.runs.declare import DeclaredEffect
from tape.settings import Limits

RUN_ID = "test-run"


@contextmanager
def effects(key: str = "") -> Iterator[None]:
    """Let effects be called without a run: inside this block, each call calls its function once.

    `tape.idempotency_key()` is `key`; by default `test-run/decision-0/<tool>/<call>`, with calls
    counted from 0. A run must be able to record the arguments and results; the caller gets a result
    as JSON returns it. The function's exception is raised unchanged, and nothing is retried.
    """
    token = WITHOUT_RUN.set(_DirectCalls(key))
    try:
        yield
    finally:
        WITHOUT_RUN.reset(token)


class _DirectCalls:
    def __init__(self, key: str) -> None:
        self._key = key
        self._calls = 0

    def call_same_colour(
        self, effect: DeclaredEffect[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        name = effect.spec.name
        refuse_within(f"effect {name}")
        to_json({"args": args, "kwargs": kwargs}, Limits(), field=f"arguments of {name}")
        key = self._key or effect_key(RUN_ID, 0, name, self._calls)
        self._calls += 1
        if effect.is_async:
            return _awaited(effect, key, args, kwargs)
        with _doing(name, key):
            return _recorded(name, effect.body(*args, **kwargs))


async def _awaited(
    effect: DeclaredEffect[Any, Any], key: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    with _doing(effect.spec.name, key):
        return _recorded(effect.spec.name, await effect.body(*args, **kwargs))


@contextmanager
def _doing(name: str, key: str) -> Iterator[None]:
    token = EFFECT_KEY.set(key)
    try:
        with within(f"effect {name!r}"):
            yield
    finally:
        EFFECT_KEY.reset(token)


def _recorded(name: str, result: Any) -> Any:
    """A result as an app gets it, now and in a replay."""
    return orjson.loads(to_json(result, Limits(), field=f"result of {name}"))
