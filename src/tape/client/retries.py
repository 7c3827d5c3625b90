"""Calls that were cut off, sent again where a repeat cannot do harm."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from tape.errors import OutcomeUnknown, StoreUnavailable, VersionMismatch

A = TypeVar("A")

AWAY_FIRST_S = 0.1
AWAY_MOST_S = 2.0


async def call_with_retries(
    send: Callable[[], Awaitable[A]], patience_s: float, *, most_times: int = 0
) -> A:
    """The answer of `send`, called for so long or so often; 0 is no matter how often.

    If one of the calls may have been done, that is what the caller is told in the end.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + patience_s
    unknown: OutcomeUnknown | None = None
    for times, pause in enumerate(pauses(), 1):
        try:
            return await send()
        except StoreUnavailable as error:
            unknown = error if isinstance(error, OutcomeUnknown) else unknown
            if times == most_times or loop.time() + pause > give_up:
                raise unknown or error from None
        except VersionMismatch:
            if unknown is not None:  # it may be this call's own version that another has replaced
                raise unknown from None
            raise
        await asyncio.sleep(pause)
    raise AssertionError("pauses go on for ever")


def pauses() -> Iterator[float]:
    pause = AWAY_FIRST_S
    while True:
        yield pause
        pause = min(2 * pause, AWAY_MOST_S)
