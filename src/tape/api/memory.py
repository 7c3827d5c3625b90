"""Memory that streams have used, given back to the system when they are over.

The allocator keeps what was freed between what is still used, so a server that once had many
readers would look large for ever. Where it can be told to trim, that is done a moment after.
"""

import asyncio
import ctypes
from collections.abc import Callable

AFTER_S = 1.0


def _trimmer() -> Callable[[int], int] | None:
    """glibc's own; elsewhere there is none."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    return trim


class Trimming:
    """Trims once after the last of a burst of calls."""

    def __init__(self) -> None:
        self._trim = _trimmer()
        self._due: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        if self._trim is None:
            return
        loop = asyncio.get_running_loop()
        if self._due is not None:
            self._due.cancel()
        self._due = loop.call_later(AFTER_S, loop.run_in_executor, None, self._trim, 0)
