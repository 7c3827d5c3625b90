"""ULIDs for entries: time-ordered, and increasing within one process.

A ULID is 10 characters of milliseconds and 16 of randomness in Crockford's base 32. Drawing them
one by one would cost more than the rest of an append, so a fresh random prefix is drawn at most
once a millisecond and the low 20 bits count.
"""

import secrets
import time
from collections.abc import Callable

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_LARGEST_RUN = 1 << 19  # the counter has 20 bits and starts anywhere in its lower half
_PREFIX_BITS = range(100, -1, -10)  # 22 characters, two at a time


class UlidFactory:
    """Ids, one or many at a time. Not thread-safe: one per event loop."""

    __slots__ = ("_count", "_millisecond", "_now_ms", "_prefix")

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._millisecond = -1
        self._count = 0
        self._prefix = ""

    def __next__(self) -> str:
        return self.take(1)[0]

    def take(self, count: int) -> list[str]:
        """The next `count` ids."""
        if count > _LARGEST_RUN:
            return self.take(_LARGEST_RUN) + self.take(count - _LARGEST_RUN)
        now = self._now_ms()
        first = self._count + 1
        if now > self._millisecond or first + count > 2 * _LARGEST_RUN:
            # A clock that stands still or steps back must not repeat or reverse ids.
            self._millisecond = max(now, self._millisecond + 1)
            drawn = secrets.randbits(60 + 19)
            number = self._millisecond << 60 | drawn >> 19
            self._prefix = "".join([_PAIRS[number >> bits & 1023] for bits in _PREFIX_BITS])
            first = drawn & (_LARGEST_RUN - 1)
        self._count = first + count - 1
        prefix = self._prefix
        return [
            prefix + _PAIRS[number >> 10] + _PAIRS[number & 1023]
            for number in range(first, first + count)
        ]
