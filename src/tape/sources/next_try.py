"""When a source that is away is tried next: after a pause that doubles with each failure."""

import asyncio
import random


class NextTry:
    def __init__(self, first_s: float = 0.5, most_s: float = 30.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._pause_s = first_s
        self._at = 0.0

    def failed(self) -> float:
        """For how long nothing is tried."""
        pause_s = self._pause_s * random.uniform(0.8, 1.0)  # noqa: S311 - only spreads retries
        self._at = asyncio.get_running_loop().time() + pause_s
        self._pause_s = min(2 * self._pause_s, self._most_s)
        return pause_s

    def succeeded(self) -> None:
        self._pause_s = self._first_s
        self._at = 0.0

    async def wait(self, most_s: float) -> bool:
        """Wait until it is time, at most so long; whether it is time."""
        left_s = self._at - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(min(left_s, most_s))
        return left_s <= most_s
