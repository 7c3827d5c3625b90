"""The boundaries that a listening process comes to, and the one at which it ends or stops itself.

Each is a line in a file, so that who looks later can tell which there are. Calls are noted before
and after, as "before ack" and "after ack".
"""

import os
import signal
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tape.stores.by_url import sqlite_path


class Spot(NamedTuple):
    """A boundary: its name, and the how-manieth of that name it is to a process. `at_end`: it is
    come to only when the process is asked to end."""

    name: str
    nth: int = 1
    at_end: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({self.nth})"


class Trail:
    """`stops` is whether the process stops itself there, instead of being killed."""

    def __init__(self, path: Path, store_url: str, spot: Spot | None, *, stops: bool) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._store_url = store_url
        self._spot = spot
        self._stops = stops
        self._lock = threading.Lock()
        self.seen: Counter[str] = Counter()

    def note(self, name: str) -> None:
        with self._lock:
            self.seen[name] += 1
            nth = self.seen[name]
            os.write(self._file, f"{name}\n".encode())
        if self._spot is None or self._spot[:2] != (name, nth):
            return
        if self._stops:
            _await_unlocked(self._store_url)
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            os.kill(os.getpid(), signal.SIGKILL)


def read_trail(path: Path) -> Counter[str]:
    """How often each boundary was come to."""
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


def _await_unlocked(url: str) -> None:
    """What the store's thread is at comes to its end: stopped with SQLite's lock in hand, a process
    would hold up everybody."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")
