"""When the next start is allowed, where so many are allowed in a second.

The starts of a rate are equally far apart. A row remembers when the next one is free, so that the
rate holds over everybody who asks. What was not used in the last moment may be caught up, and
nothing of what was not used before that.
"""

from typing import Final, NamedTuple

CATCH_UP_US: Final = 100_000
"""What a rate did not use in the last tenth of a second may be caught up."""


class AllowedStarts(NamedTuple):
    """How many may start now, as the rate goes; the first of them counts from `base_us`."""

    most: int
    base_us: float
    pause_us: float

    def free_us_after(self, started: int) -> int:
        """When the next one is free once so many have started."""
        return round(self.base_us + started * self.pause_us)


def allowed_starts(per_s: float, free_at_us: int, now_us: int) -> AllowedStarts:
    """`per_s` is greater than 0."""
    pause_us = 1_000_000 / per_s
    base_us = max(free_at_us, now_us - CATCH_UP_US)
    return AllowedStarts(max(0, int((now_us - base_us) // pause_us) + 1), base_us, pause_us)


def free_by_rate(per_s: float, free_at_us: int, now_us: int) -> int:
    """When the next one is free by the rate of today: a slower one of before may have reserved a
    moment that is farther away than a pause."""
    return min(free_at_us, now_us + round(1_000_000 / per_s))


def free_after_idling(per_s: float, free_at_us: int, now_us: int) -> int:
    """When the next one became free, for who was idle. Whole starts are caught up then: with a part
    of one, those of a slow rate would be closer together than the rate allows."""
    pause_us = 1_000_000 / per_s
    return max(free_at_us, round(now_us - CATCH_UP_US // pause_us * pause_us))
