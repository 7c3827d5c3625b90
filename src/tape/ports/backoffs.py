"""Leaving alone for a while what was not to be had, longer each time it is tried in vain."""

import asyncio
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """A pause, and when it is over by the loop's clock."""

    until: float
    pause_s: float

    @property
    def is_over(self) -> bool:
        return self.until <= asyncio.get_running_loop().time()


class Backoffs:
    """`jitter` says how long to wait instead of a pause."""

    def __init__(
        self, first_s: float, most_s: float, jitter: Callable[[float], float] = float
    ) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._jitter = jitter
        self.by_name: dict[Hashable, Backoff] = {}

    def __contains__(self, name: Hashable) -> bool:
        """Return whether to leave it alone now."""
        known = self.by_name.get(name)
        return known is not None and not known.is_over

    def add(self, name: Hashable) -> float:
        """Leave it alone for a while; return for how long."""
        known = self.by_name.get(name)
        pause_s = self._first_s if known is None else min(2 * known.pause_s, self._most_s)
        waits_s = self._jitter(pause_s)
        self.by_name[name] = Backoff(asyncio.get_running_loop().time() + waits_s, pause_s)
        return waits_s

    def forget(self, name: Hashable) -> None:
        self.by_name.pop(name, None)

    def forget_others(self, names: Collection[Hashable], *, if_over: bool = False) -> None:
        """Forget all but these, as they are settled or another's; with `if_over` only those whose
        pause is over. What is not forgotten grows without bound.
        """
        self.by_name = {
            name: known
            for name, known in self.by_name.items()
            if name in names or (if_over and not known.is_over)
        }
