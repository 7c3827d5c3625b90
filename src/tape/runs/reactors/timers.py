"""Timers: fires those that are due, by the store's clock."""

from collections.abc import Sequence

from tape.runs.boundary import boundary
from tape.runs.operations import RunOperations
from tape.telemetry import metrics

AT_A_TIME = 200


class Timers:
    """A reactor. Any number of them fire each timer once."""

    name = "timers"
    patterns: Sequence[str] = ("/tape/timer/set/**",)

    def __init__(self, runs: RunOperations) -> None:
        self._runs = runs
        self._next_in_ms: int | None = None

    async def once(self) -> int:
        self._next_in_ms = await self._runs.next_timer_in_ms()
        if self._next_in_ms != 0:
            return 0
        boundary("before FireTimer")
        fired = await self._runs.fire_due_timers(AT_A_TIME)
        boundary("after FireTimer")
        metrics.REACTOR_WORK.labels(self.name).inc(len(fired))
        return len(fired)

    async def due_in_s(self) -> float | None:
        return None if self._next_in_ms is None else self._next_in_ms / 1000
