"""How many streams there are on both doors together, and how many of one client.

A client is known by its token; where there are no tokens, by its address.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tape.api.memory import Trimming
from tape.api.turnstile import Turnstile
from tape.errors import Overloaded
from tape.journal.pacer import CLIENT
from tape.settings import DoorSettings
from tape.telemetry import metrics

RETRY_MS = 5_000


class StreamSlots:
    def __init__(self, settings: DoorSettings | None = None) -> None:
        self.settings = settings or DoorSettings()
        self._by_client: Counter[str] = Counter()
        self._open = 0
        self._trimming = Trimming()
        self.turnstile = Turnstile()

    @contextmanager
    def take(self, client: str) -> Iterator[None]:
        """Hold one for as long as a stream is open; Overloaded if there is none."""
        mine, settings = self._by_client[client], self.settings
        if mine >= settings.streams_per_client:
            raise Overloaded(
                f"this client has {mine} streams open, the most that one client may have "
                "(tape.doors.streams_per_client): close some, or follow a wider pattern with one",
                retry_after_ms=RETRY_MS,
            )
        if self._open >= settings.streams:
            raise Overloaded(
                f"{self._open} streams are open (tape.doors.streams): retry later",
                retry_after_ms=RETRY_MS,
            )
        self._count(client, 1)
        known = CLIENT.set(client)
        try:
            yield
        finally:
            CLIENT.reset(known)
            self._count(client, -1)
            self._trimming.soon()

    def _count(self, client: str, change: int) -> None:
        self._open += change
        self._by_client[client] += change
        if not self._by_client[client]:
            del self._by_client[client]
        metrics.STREAMS_OPEN.set(self._open)
