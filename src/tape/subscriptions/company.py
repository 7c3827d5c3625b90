"""Whether a subscription has this process to itself.

A turn of the writer with 500 messages takes some 60 ms, in which everybody else waits. So while
another subscription accepts its messages as they come, a few at a time, each takes short turns: a
firehose gets through half as many messages then, and what comes beside it waits a tenth as long.
Subscriptions that all have much to accept take long turns: nobody would gain by short ones.
"""

from collections.abc import Callable
from typing import Final

MOST_TOGETHER: Final = 500
MOST_BESIDE_OTHERS: Final = 5
FEW: Final = 25
"""Who has so many messages to accept at once does not wait for each of them."""
COMPANY_S: Final = 10.0
"""Another subscription counts for so long after it has accepted a few."""


class Company:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last = self._last_other = ("", float("-inf"))
        """Who accepted a few last, and who did before that and is somebody else."""

    def note(self, name: str, count: int) -> None:
        """A subscription has so many messages to accept now."""
        if count >= FEW:
            return
        if self._last[0] != name:
            self._last_other = self._last
        self._last = (name, self._now())

    def most_together(self, name: str) -> int:
        """How many messages of a subscription may be accepted in one turn."""
        other, accepted_at = self._last if self._last[0] != name else self._last_other
        is_there = bool(other) and self._now() - accepted_at <= COMPANY_S
        return MOST_BESIDE_OTHERS if is_there else MOST_TOGETHER
