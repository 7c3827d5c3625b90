"""The raw limit of a queue in SQLite: two tables, two durable transactions per batch, no lease."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from benchmarks.workload import PAYLOAD

BATCH = 500
_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE queue (
  seq INTEGER PRIMARY KEY, status INTEGER NOT NULL, owner TEXT NOT NULL, payload TEXT NOT NULL
) STRICT;
CREATE TABLE ended (seq INTEGER PRIMARY KEY, owner TEXT NOT NULL) STRICT;
"""
_CLAIM = """
UPDATE queue SET status = 2, owner = 'me'
WHERE seq IN (SELECT seq FROM queue WHERE seq > ? AND status = 1 ORDER BY seq LIMIT ?)
RETURNING seq, payload
"""


def drain(path: Path, count: int) -> float:
    """Rows/s from a table of so many to none."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(_TABLES)
        db.execute("BEGIN")
        db.executemany(
            "INSERT INTO queue VALUES (?, 1, '', ?)", ((i + 1, PAYLOAD) for i in range(count))
        )
        db.execute("COMMIT")
        after = 0
        started = time.perf_counter()
        while rows := db.execute(_CLAIM, (after, BATCH)).fetchall():
            after = max(seq for seq, _payload in rows)
            keys = [(seq,) for seq, _payload in rows]
            db.execute("BEGIN IMMEDIATE")
            db.executemany("DELETE FROM queue WHERE seq = ?", keys)
            db.executemany("INSERT INTO ended VALUES (?, 'me')", keys)
            db.execute("COMMIT")
        return count / (time.perf_counter() - started)
