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
    """Trims a second after it is asked to, and not more often, however often it is asked."""

    def __init__(self) -> None:
        self._trim = _trimmer()
        self._is_due = False
        self._is_asked_again = False

    def soon(self) -> None:
        if self._trim is None:
            return
        if self._is_due:  # what is freed now may be too late for that one
            self._is_asked_again = True
            return
        self._is_due = True
        loop = asyncio.get_running_loop()
        loop.call_later(AFTER_S, self._trim_now, loop, self._trim)

    def _trim_now(self, loop: asyncio.AbstractEventLoop, trim: Callable[[int], int]) -> None:
        self._is_due = False
        loop.run_in_executor(None, trim, 0)
        if self._is_asked_again:
            self._is_asked_again = False
            self.soon()
