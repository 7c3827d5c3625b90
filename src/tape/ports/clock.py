"""Time, in milliseconds since 1970. A store's clock is the authority for all that is in it."""

import time
from collections.abc import Callable

Clock = Callable[[], int]


def system_clock() -> int:
    return time.time_ns() // 1_000_000
