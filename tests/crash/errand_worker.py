"""A worker that runs errands: `python -m tests.crash.errand_worker WORKING`, the latter as JSON.

It notes each boundary that it comes to, and stops itself at one of them if it is told to. It can
also be forked from a process that has imported everything, which costs less; not so if it is to
reach a server, for gRPC does not bear it.
"""

import json
import os
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tape.programs.worker import WorkerOptions, run_worker
from tape.runs.boundary import set_boundary_hook
from tape.settings import DispatcherSettings, ReactorSettings, ReactorsSettings, Settings
from tape.stores.by_url import sqlite_path
from tests.crash.book import Book
from tests.crash.errands import Errands


class Spot(NamedTuple):
    """A boundary: its name, and the how-manieth of that name it is to a worker."""

    name: str
    nth: int

    def __str__(self) -> str:
        return f"{self.name} ({self.nth})"


class Working(NamedTuple):
    """What a worker is given; whoever starts it has made the folder."""

    url: str
    folder: str
    owner: str
    pace_s: float = 0.05
    ttl_s: float = 1.0
    poll_s: float = 0.1
    runs: int = 100
    grace_s: float = 30.0
    stops_at: Spot | None = None

    @property
    def book(self) -> Path:
        return Path(self.folder) / "book"

    @property
    def hold(self) -> Path:
        """While it is there, acts that were begun go on."""
        return Path(self.folder) / "hold"

    @property
    def ready(self) -> Path:
        """Is there once it works."""
        return Path(self.folder) / f"{self.owner}.ready"

    @property
    def trail(self) -> Path:
        """The boundaries that it comes to, a line each."""
        return Path(self.folder) / f"{self.owner}.trail"

    @property
    def log(self) -> Path:
        return Path(self.folder) / "workers.log"

    def command(self) -> tuple[str, ...]:
        """For a process of its own."""
        return ("-m", __name__, json.dumps(self._asdict()))


def work(given: Working) -> None:
    """Until SIGTERM."""
    os.dup2(os.open(given.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY), 2)
    set_boundary_hook(_trail(given))
    leases = ReactorSettings(lease_ttl_s=given.ttl_s)
    settings = Settings(
        dispatcher=DispatcherSettings(grace_s=given.grace_s),
        reactors=ReactorsSettings(
            recovery=leases,
            reconciler=leases,
            outbox=leases,
            backoff_first_s=0.1,
            backoff_most_s=0.5,
            poll_s=given.poll_s,
            runs=given.runs,
        ),
    )
    book = Book(given.book)
    errands = Errands(book, given.owner, pace_s=given.pace_s, hold=given.hold)
    options = WorkerOptions(
        url=given.url,
        owner=given.owner,
        settings=settings,
        apps=errands.apps,
    )
    run_worker(options, on_ready=lambda _ready: given.ready.touch())


def _trail(given: Working) -> Callable[[str], None]:
    file = os.open(given.trail, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    seen: Counter[str] = Counter()

    def come_to(name: str) -> None:
        os.write(file, f"{name}\n".encode())
        seen[name] += 1
        if given.stops_at is not None and tuple(given.stops_at) == (name, seen[name]):
            _await_unlocked(given.url)
            os.kill(os.getpid(), signal.SIGSTOP)

    return come_to


def _await_unlocked(url: str) -> None:
    """What the store's thread is at comes to its end: stopped with SQLite's lock in hand, a worker
    would hold up everybody.
    """
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")


if __name__ == "__main__":
    work(Working(**json.loads(sys.argv[1])))
