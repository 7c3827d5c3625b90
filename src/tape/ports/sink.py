"""A sink: where the relay takes the journal, entry by entry, in order."""

from collections.abc import Sequence
from typing import Protocol

from tape.model.entry import Entry


class Sink(Protocol):
    async def send(self, entries: Sequence[Entry]) -> None:
        """Deliver all of them, in order; returns when the far side has acknowledged every one.

        Raises a BrokerError at the first that was not taken. The relay then sends the same ones
        again, so those before it arrive twice.
        """

    async def close(self) -> None: ...
