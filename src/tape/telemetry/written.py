"""What the writers of this process have committed.

Plain numbers, so that a program with a store in process pays nothing for metrics it never shows.
"""

from threading import Lock


class Written:
    def __init__(self) -> None:
        self.batches = 0
        self.entries = 0
        self._lock = Lock()  # each client without an event loop writes on a thread of its own

    def add(self, entries: int) -> None:
        """A batch with that many entries is durable; one without any only looked."""
        if not entries:
            return
        with self._lock:
            self.batches += 1
            self.entries += entries


WRITTEN = Written()
