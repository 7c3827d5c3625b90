"""What a demonstration is: two values of a setting, and something they make different."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from tape.errors import TapeError
from tape.settings import Settings


class Demonstration(NamedTuple):
    """`observe` says what comes of settings, in a folder of its own."""

    values: tuple[Any, Any]
    observe: Callable[[Settings, Path], Awaitable[Any]]


Demonstrations = dict[str, Demonstration]


def every_setting(section: Any = None, at: str = "") -> Iterator[str]:
    """The names of all settings, as the file has them under `tape:`."""
    section = Settings() if section is None else section
    for each in fields(section):
        value = getattr(section, each.name)
        path = f"{at}.{each.name}" if at else each.name
        if is_dataclass(value):
            yield from every_setting(value, path)
        else:
            yield path


def changed(settings: Any, path: str, value: Any) -> Any:
    """The settings with one of them another."""
    name, _, rest = path.partition(".")
    inner = changed(getattr(settings, name), rest, value) if rest else value
    return replace(settings, **{name: inner})


class Waited(BaseException):
    """A wait that nobody waits for: how long it would have been."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


async def first_wait(work: Awaitable[Any], what: str = "asyncio.sleep", skip: int = 0) -> float:
    """How long the work waits, the first time that it does after so many times."""
    left = skip

    def wait(*asked: Any, timeout: float | None = None, **_options: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            return _at_once()
        raise Waited(asked[0] if timeout is None else timeout)

    with patch(what, wait):
        try:
            await work
        except Waited as waited:
            return waited.seconds
    raise AssertionError("it did not wait")


async def _at_once() -> None:
    """A wait that is over."""


@contextmanager
def told(what: str, answer: Any = None) -> Iterator[list[Any]]:
    """With what something is called, in the place of the call: arguments, then keywords."""
    calls: list[Any] = []

    def call(*args: Any, **options: Any) -> Any:
        calls.append((args, options))
        if isinstance(answer, Exception):
            raise answer
        return answer

    with patch(what, call):
        yield calls


async def said(work: Awaitable[Any]) -> str:
    """Whether it is done, or what refuses it."""
    try:
        await work
    except TapeError as error:
        return type(error).__name__
    return "done"


async def cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
