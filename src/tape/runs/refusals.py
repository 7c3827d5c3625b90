"""What was not to be had, and is left alone for a while: longer each time it is tried in vain."""

import asyncio
from collections.abc import Hashable, Iterable
from typing import NamedTuple

FIRST_S = 0.25
MOST_S = 10.0


class _Pause(NamedTuple):
    until: float
    seconds: float


class Refusals:
    def __init__(self) -> None:
        self._pauses: dict[Hashable, _Pause] = {}

    def __contains__(self, name: Hashable) -> bool:
        pause = self._pauses.get(name)
        return pause is not None and pause.until > asyncio.get_running_loop().time()

    def add(self, name: Hashable) -> None:
        known = self._pauses.get(name)
        seconds = FIRST_S if known is None else min(2 * known.seconds, MOST_S)
        self._pauses[name] = _Pause(asyncio.get_running_loop().time() + seconds, seconds)

    def keep_only(self, names: Iterable[Hashable]) -> None:
        """Forget the others: they are settled, or another's."""
        self._pauses = {name: self._pauses[name] for name in names if name in self._pauses}
