"""Subjects that are held up: one of their rows was not taken, and nothing may overtake it."""

from collections.abc import Collection
from typing import NamedTuple


class _HeldSubject(NamedTuple):
    row_id: int
    pause_s: float
    until: float


class HeldSubjects:
    """Each is tried again after a pause that doubles with each failure of the same row."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._holds: dict[str, _HeldSubject] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def hold(self, subject: str, row_id: int, now: float) -> float:
        """For how long."""
        before = self._holds.get(subject)
        pause_s = self._first_s
        if before is not None and before.row_id == row_id:
            pause_s = min(2 * before.pause_s, self._most_s)
        self._holds[subject] = _HeldSubject(row_id, pause_s, now + pause_s)
        return pause_s

    def release(self, subject: str) -> None:
        self._holds.pop(subject, None)

    def not_due(self, now: float) -> list[str]:
        """Those that nothing is tried of yet."""
        return [subject for subject, hold in self._holds.items() if hold.until > now]

    def release_gone(self, seen: Collection[str], now: float) -> None:
        """Those that were due, and of which there is nothing left to try."""
        for subject, hold in [*self._holds.items()]:
            if hold.until <= now and subject not in seen:
                del self._holds[subject]

    def next_due(self) -> float | None:
        return min((hold.until for hold in self._holds.values()), default=None)
