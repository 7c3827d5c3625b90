"""A database read beside those who work on it, with none of their code."""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from tape.stores.by_url import sqlite_path
from tests.crash.reacting import Recorded, Row

LOOK_EVERY_S = 0.03
ASK_EVERY_S = 0.1
STOPS_S = 30.0

# One statement, so one moment: the head, the matcher, each cursor.
MOMENT = """
SELECT h.head, m.fencing_token, m.position, c.reaction_id, c.shard, c.last_global_seq, c.following,
  c.matched, c.predicate_errors
FROM (SELECT coalesce(max(global_seq), 0) AS head FROM tape_journal) h
CROSS JOIN tape_matcher m LEFT JOIN tape_reaction_cursors c ON TRUE
"""
TASKS = """
SELECT reaction_id, shard, source_global_seq, status, attempts FROM tape_task_queue
UNION ALL SELECT reaction_id, shard, source_global_seq, status, attempts FROM tape_task_ended
"""
TALLIES = """
SELECT reaction_id, queued, in_flight, dead_letters FROM tape_reaction_tallies
"""
COUNTS = """
SELECT reaction_id, sum(matched), sum(predicate_errors), min(following), min(last_global_seq)
FROM tape_reaction_cursors GROUP BY reaction_id
"""
AT_REST = """
SELECT (SELECT count(*) FROM tape_task_queue),
  (SELECT max(global_seq) FROM tape_journal) - (SELECT position FROM tape_matcher),
  (SELECT count(*) FROM tape_reaction_cursors WHERE following = 0)
"""


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    if url.startswith("postgres"):
        with psycopg.connect(url) as connection:
            return connection.execute(statement.encode()).fetchall()
    with closing(sqlite3.connect(sqlite_path(url), timeout=30)) as db:
        return db.execute(statement).fetchall()


def deadlocks(url: str) -> int:
    """How often Postgres had to end a quarrel over locks in this database."""
    if not url.startswith("postgres"):
        return 0
    statement = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    ((count,),) = query(url, statement)
    return int(count)


def is_stopped(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat").read_text()
    return status.rpartition(")")[2].split()[0] == "T"


def stop_unlocked(url: str, pid: int) -> None:
    """Stop a process. With SQLite's lock in hand it would hold up everybody, so we have it then."""
    if not url.startswith("sqlite:"):
        os.kill(pid, signal.SIGSTOP)
        return
    with closing(sqlite3.connect(sqlite_path(url), timeout=30, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        os.kill(pid, signal.SIGSTOP)
        await_true(lambda: is_stopped(pid), STOPS_S, lambda: f"{pid} does not stop")
        db.execute("ROLLBACK")


def tasks(url: str) -> list[Row]:
    return [Row(*row) for row in query(url, TASKS)]


def journal(url: str) -> list[Recorded]:
    statement = "SELECT global_seq, subject, payload_json FROM tape_journal ORDER BY global_seq"
    return [Recorded(*row) for row in query(url, statement)]


class Cursor(NamedTuple):
    last_global_seq: int
    following: int
    matched: int
    predicate_errors: int


class Watcher:
    """Looks again and again; cursors must not go back, nor be where nobody has been."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher")
        self._cursors: dict[tuple[str, int], Cursor] = {}
        self._token = self._position = 0
        self.faults: list[str] = []
        self.looks = 0
        self.tokens: set[int] = set()

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            with closing(self._open()) as connection:
                ending = False
                while not ending:
                    ending = self._stop.wait(LOOK_EVERY_S)  # and once more at the end
                    self._look(connection.execute(MOMENT).fetchall())
        except Exception as error:  # noqa: BLE001 - a watcher that fell asleep is a fault as well
            self.faults.append(f"could not look: {error!r}")

    def _open(self) -> Any:
        if self._url.startswith("postgres"):
            return psycopg.connect(self._url, autocommit=True)
        return sqlite3.connect(sqlite_path(self._url), timeout=30)

    def _look(self, rows: list[tuple[Any, ...]]) -> None:
        self.looks += 1
        head, token, position = rows[0][:3]
        self._expect(position <= head, f"the matcher is at {position}, the journal ends at {head}")
        self._expect(position >= self._position, f"position {self._position} became {position}")
        self._expect(token >= self._token, f"token {self._token} became {token}")
        self._token, self._position = token, position
        self.tokens.add(token)
        for _, _, _, reaction_id, shard, *numbers in rows:
            if reaction_id is not None:
                self._look_at((reaction_id, shard), Cursor(*numbers), position)

    def _look_at(self, key: tuple[str, int], cursor: Cursor, position: int) -> None:
        self._expect(
            cursor.last_global_seq <= position, f"{key} at {cursor}, the matcher at {position}"
        )
        before = self._cursors.get(key, Cursor(0, 0, 0, 0))
        back = any(now < was for now, was in zip(cursor, before, strict=True))
        self._expect(not back, f"{key} went back from {before} to {cursor}")
        self._cursors[key] = cursor

    def _expect(self, holds: object, otherwise: str) -> None:
        if not holds:
            self.faults.append(otherwise)


def await_true(ask: Callable[[], bool], timeout_s: float, otherwise: Callable[[], str]) -> None:
    """Ask again and again, within bounds."""
    give_up = time.monotonic() + timeout_s
    while not ask():
        if time.monotonic() > give_up:
            raise AssertionError(f"after {timeout_s} s {otherwise()}")
        time.sleep(ASK_EVERY_S)


def await_rest(url: str, look: Callable[[], None], timeout_s: float) -> None:
    """Until nothing is queued and everything has been considered; `look` is called in between."""

    def at_rest() -> bool:
        look()
        return query(url, AT_REST) == [(0, 0, 0)]

    def otherwise() -> str:
        ((queued, unmatched, late),) = query(url, AT_REST)
        return f"{queued} tasks are queued, {unmatched} entries unmatched, {late} cursors late"

    await_true(at_rest, timeout_s, otherwise)
