"""Calling what was declared with an effect, of either kind: its body, its check, its compensators.

Reactors do so, with no run at hand.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import Any

from tape.errors import GiveUp
from tape.ports.user_code import as_failure, called
from tape.runs.ambient import EFFECT_KEY
from tape.runs.declare import DeclaredEffect


async def call_declared(
    executor: Executor,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    key: str = "",
) -> Any:
    """What it returns: an asynchronous one on the loop, another in the executor. What it raises is
    an error, unless its task was cancelled.

    `key` is what `tape.idempotency_key()` says meanwhile.
    """
    body = plain(function)
    token = EFFECT_KEY.set(key)
    try:
        if inspect.iscoroutinefunction(body):
            return await body(*args, **kwargs)
        call = partial(copy_context().run, called, partial(body, *args, **kwargs))
        result = await asyncio.get_running_loop().run_in_executor(executor, call)
        return await result if inspect.isawaitable(result) else result
    except Exception:
        raise
    except BaseException as raised:
        raise as_failure(raised) from raised
    finally:
        EFFECT_KEY.reset(token)


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, where it was declared an effect."""
    return function.body if isinstance(function, DeclaredEffect) else function


def check_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Refuse a call that could not even begin: then it is certain that nothing was done."""
    try:
        inspect.signature(plain(function)).bind(*args, **kwargs)
    except TypeError as error:
        raise GiveUp(f"it does not accept the input it was started with: {error}") from None


def in_words(error: BaseException) -> str:
    """An error as text that any store takes."""
    words = f"{type(error).__name__}: {error}".replace("\0", "\ufffd")
    return words.encode(errors="replace").decode()
