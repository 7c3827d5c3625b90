"""Whether a subscription has this process to itself.

A turn of the writer with 500 messages takes some 60 ms, in which everybody else waits. So while
another subscription accepts messages here, too, each takes short turns: a firehose gets through
fewer messages then, and what comes beside it waits a fifth as long.
"""

from collections.abc import Callable
from typing import Final

MOST_TOGETHER: Final = 500
MOST_BESIDE_OTHERS: Final = 25
COMPANY_S: Final = 10.0
"""Another subscription counts for so long after it has accepted something."""


class Company:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last = self._last_other = ("", float("-inf"))
        """Who accepted last, and who did before that and is somebody else."""

    def most_together(self, name: str) -> int:
        """How many messages of a subscription may be accepted in one turn; it accepts some now."""
        now = self._now()
        if self._last[0] != name:
            self._last_other = self._last
        self._last = (name, now)
        return MOST_TOGETHER if now - self._last_other[1] > COMPANY_S else MOST_BESIDE_OTHERS
